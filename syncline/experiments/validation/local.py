"""``syncline validate`` of trainings: between processes of this machine, whose loopback device is calibrated first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from syncline.backend.hosts import LocalHosts
from syncline.costmodel import Link
from syncline.errors import SpecError, SynclineError
from syncline.experiments.calibration.calibrate import calibrate
from syncline.experiments.calibration.plan import Calibration, calibrate_warnings, numbers_of
from syncline.experiments.validation.processes import Question, validate_processes
from syncline.files import temporary_folder
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
    """Calibrate if need be, predict, measure.

    Args:
        specs: the trainings.
        workers: numbers of processes, with commas between; that of the specs if none.
        cluster: what a calibration of this machine wrote; if none, one is done now.
        repeats: trainings of each that count.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        on_progress: told what is going on, a line each.

    Returns:
        See `validate_processes`.

    Raises:
        SynclineError: what cannot be used, or a process that failed.
    """
    numbers = tuple(numbers_of(workers)) if workers else tuple(sorted({spec.workers for spec in specs}))
    question = Question(tuple(specs), numbers, repeats)
    if exact and out.exists():
        raise SpecError("--out", str(out), "a folder that does not exist yet")  # before minutes of measuring
    for warning in calibrate_warnings(numbers):
        on_progress(f"warning: {warning}")
    if cluster is not None:
        return validate_processes(question, LocalHosts(_link(cluster)), out, exact=exact, on_progress=on_progress)
    with temporary_folder() as folder:
        file = folder / "this-machine.yaml"
        on_progress(f"calibrating {' and '.join(map(str, numbers))} processes of this machine")
        told = calibrate(Calibration(specs[0].problem), numbers, file, exact=True)
        if "failed" in told:
            raise SynclineError(told["failed"])
        return validate_processes(question, LocalHosts(_link(file)), out, exact=exact, on_progress=on_progress)


def _link(cluster: Path) -> Link:
    found = network(cluster, "--cluster")
    if not isinstance(found, Link) or found.gloo is None:
        raise SpecError("--cluster", str(cluster), "a file that 'syncline calibrate' has written")
    return found
