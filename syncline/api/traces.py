"""Scripts and functions of a user's own under a simulated clock."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import listed
from syncline.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.measure.recording.ranks import ForeignScript
    from syncline.measure.replaying.scenario import ReplayedOn

Traceable: TypeAlias = str | Path | Callable[[], object]
"""A script: its file, or what would be typed (``"train.py --lr 1"``, ``"-m my.training"``); or a function."""

NETWORKS = ("infiniband", "10gbe", "wan")
"""If none is named."""

HARDWARE = "a100"
"""If none is named."""


@checked
def trace(
    what: Traceable | Sequence[Traceable],
    *,
    workers: int = 4,
    networks: Any = None,
    hardware: Any = HARDWARE,
    algorithm: str | None = None,
    host: str | None = None,
    target_loss: float | None = None,
    gpu: str = "auto",
    clock: str = "refuse",
    out: str | Path | None = None,
    exact: bool = True,
) -> Result:
    """Run a torch.distributed script as it is, with its own math, and say what it would take on networks.

    It runs in processes that are started for it, whatever this one has done; what it prints goes to ``sys.stderr``.

    Args:
        what: a script, or a function without arguments that does what a script does; of several the first is the
            baseline of the speedups.
        workers: P, one process each.
        networks: on which networks; three of the presets unless given.
        hardware: that computes; or ``measured``, ``measured:0.5``: what recording took, and half of it.
        algorithm: of all collectives; or ``auto``, ``gloo``, ``nccl`` for their choice.
        host: ``ahead`` of its device, as a GPU's, or ``waits``, as a CPU; by the hardware unless given.
        target_loss: whose time is told; of several scripts the highest final loss unless given.
        gpu: ``none``: the script sees no GPU; ``auto``: those of ``CUDA_VISIBLE_DEVICES``, else one for each rank.
        clock: ``allow`` a script to decide by the clock of the recording, or ``refuse``.
        out: see `sl.compare`.
        exact: see `sl.compare`.

    Returns:
        Beside the rows, ``sites``, ``links`` and ``losses`` in `Result.json`.

    Raises:
        SynclineError: what is wrong, where, and what would be accepted; a rank that failed, whose traceback is told.
    """
    from syncline.measure.recording.ranks import TraceOptions
    from syncline.measure.replaying.scenario import ReplayedOn
    from syncline.measure.replaying.subprocess_trace import traced_apart
    from syncline.measure.replaying.trace import trace as experiment

    several = list(what) if isinstance(what, Sequence) and not isinstance(what, str) else [what]
    programs = [program_of(one) for one in several]
    joined = listed(NETWORKS if networks is None else networks)
    question = ReplayedOn.of(joined, hardware, algorithm, host, target_loss=target_loss)
    options = TraceOptions(gpu, clock)
    with place(out, folder_name(programs)) as (path, scratch):
        told = experiment(
            programs, workers, question, path, exact=exact and out is not None, run=traced_apart, options=options
        )
    return replayed("trace", told, question, scratch)


@checked
def whatif(
    record: str | Path | Result | Sequence[str | Path | Result],
    *,
    networks: Any = None,
    hardware: Any = HARDWARE,
    algorithm: str | None = None,
    host: str | None = None,
    scale_bandwidth: float = 1.0,
    scale_latency: float = 1.0,
    scale_compute: float = 1.0,
    overlap: bool = True,
    target_loss: float | None = None,
    out: str | Path | None = None,
    exact: bool = True,
) -> Result:
    """Replay the records of traces on other networks or hardware, and say what decides their step times.

    Args:
        record: the folder or the result of a trace; of several the first is the baseline of the speedups.
        networks: see `sl.trace`.
        hardware: see `sl.trace`.
        algorithm: see `sl.trace`.
        host: see `sl.trace`.
        scale_bandwidth: factor on the bandwidth of all links.
        scale_latency: factor on the latency of all links.
        scale_compute: factor on the speed of computing.
        overlap: whether calls run beside what is computed; if not, each is waited for at once.
        target_loss: see `sl.trace`.
        out: see `sl.compare`.
        exact: see `sl.compare`.

    Returns:
        Beside the rows, ``sites``, ``links``, ``losses`` and ``sensitivities`` in `Result.json`.

    Raises:
        SynclineError: what is wrong, where, and what would be accepted.
    """
    from syncline.measure.replaying.scenario import Changes, ReplayedOn
    from syncline.measure.replaying.trace import whatif as experiment

    several = list(record) if isinstance(record, Sequence) and not isinstance(record, str) else [record]
    folders = [Path(one.folder or "") if isinstance(one, Result) else Path(one) for one in several]
    changes = Changes(scale_bandwidth, scale_latency, scale_compute, overlap)
    joined = listed(NETWORKS if networks is None else networks)
    question = ReplayedOn.of(joined, hardware, algorithm, host, changes, target_loss)
    with place(out, "whatif") as (path, scratch):
        told = experiment(folders, question, path, exact=exact and out is not None)
    return replayed("whatif", told, question, scratch)


def program_of(what: Traceable) -> ForeignScript:
    """Return the program that a user means by a script or a function.

    Raises:
        SpecError: neither; or a script where no code may run.
    """
    from syncline.measure.recording.ranks import ForeignScript, script_of

    if callable(what):
        import cloudpickle

        return ForeignScript(getattr(what, "__name__", "function"), function=cloudpickle.dumps(what))
    if isinstance(what, Path) or (isinstance(what, str) and Path(what).is_file()):
        return script_of([str(what)])
    try:
        words = shlex.split(what)
    except (ValueError, AttributeError):
        words = []
    if not words:
        raise SpecError("script", what, "a Python file, what would be typed to run it, or a function")
    return script_of(words)


def folder_name(programs: Sequence[ForeignScript]) -> str:
    """What a trace's folder is called unless somebody says."""
    return "-".join(["trace", *dict.fromkeys(program.name for program in programs)])


def replayed(command: str, told: Mapping[str, Any], question: ReplayedOn, scratch: Scratch | None = None) -> Result:
    """The result of a trace, or of replays of records."""

    def tables() -> list[Group]:
        from syncline.measure.replaying.tables import trace_tables

        return trace_tables(told, question)

    folder = Path(told["folder"]) if "folder" in told else None
    return Result(command, told, tables=tables, folder=folder, scratch=scratch)
