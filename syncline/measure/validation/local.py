"""The command ``syncline validate`` for trainings: between processes of this machine, over its calibrated loopback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from syncline.costmodel import Link
from syncline.errors import SpecError, SynclineError
from syncline.files import temporary_folder
from syncline.measure.calibration.calibrate import calibrate
from syncline.measure.calibration.plan import Calibration, calibrate_warnings, numbers_of
from syncline.measure.processes.hosts import LocalHosts
from syncline.measure.validation.processes import Question, validate_processes
from syncline.specs import CompareSpec, RunSpec, network


def validate_local(
    specs: Sequence[RunSpec | CompareSpec],
    workers: str | None,
    cluster: Path | None,
    repeats: int,
    out: Path,
    *,
    exact: bool = False,
    on_progress: Callable[[str], object] = print,
) -> dict[str, Any]:
    """Calibrate the machine if there is no calibration, predict, and measure.

    Args:
        specs: the trainings.
        workers: numbers of processes, with commas between; those of the specs if None.
        cluster: file of a calibration of this machine; if None, the machine is calibrated now.
        repeats: number of trainings of each that count.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        on_progress: function that gets a line about each stage of the work.

    Returns:
        See `validate_processes`.

    Raises:
        SynclineError: an argument cannot be used, or a process failed.
    """
    numbers = tuple(numbers_of(workers)) if workers else tuple(sorted({spec.workers for spec in specs}))
    question = Question(tuple(specs), numbers, repeats)
    if exact and out.exists():
        raise SpecError("--out", str(out), "a folder that does not exist yet")  # raised before minutes of measuring
    for warning in calibrate_warnings(numbers):
        on_progress(f"warning: {warning}")
    if cluster is not None:
        return validate_processes(question, LocalHosts(_link(cluster)), out, exact=exact, on_progress=on_progress)
    with temporary_folder() as folder:
        file = folder / "this-machine.yaml"
        on_progress(f"calibrating {' and '.join(map(str, numbers))} processes of this machine")
        calibrated = calibrate(Calibration(specs[0].problem), numbers, file, exact=True)
        if "failed" in calibrated:
            raise SynclineError(calibrated["failed"])
        return validate_processes(question, LocalHosts(_link(file)), out, exact=exact, on_progress=on_progress)


def _link(cluster: Path) -> Link:
    joined = network(cluster, "--cluster")
    if not isinstance(joined, Link) or joined.gloo is None:
        raise SpecError("--cluster", str(cluster), "a file that 'syncline calibrate' has written")
    return joined
