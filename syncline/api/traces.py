"""A user's own scripts and functions under a simulated clock."""

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
"""A script: its file, or its command line (``"train.py --lr 1"``, ``"-m my.training"``); or a function."""

NETWORKS = ("infiniband", "10gbe", "wan")
"""The networks of a trace by default."""

HARDWARE = "a100"
"""The hardware of a trace by default."""


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
    """Run an unchanged torch.distributed script, with its own arithmetic, and compute its time on networks.

    The script runs in new processes, whatever the state of this one; its output goes to ``sys.stderr``.

    Args:
        what: a script, or a function without arguments that does the same; the first of several is the baseline of the
            speedups.
        workers: P, the number of workers, with one process each.
        networks: the networks; three of the presets by default.
        hardware: the hardware that computes; or ``measured`` for the times of the recording, ``measured:0.5`` for half
            of them.
        algorithm: the algorithm of all collectives; or ``auto``, ``gloo`` or ``nccl`` for the choice that each makes.
        host: ``ahead`` if the host runs ahead of its device, like a GPU's, ``waits`` if not, like a CPU; by default the
            hardware decides.
        target_loss: the loss whose time is computed; by default the highest final loss of several scripts.
        gpu: ``none``: the script sees no GPU; ``auto``: it sees those of ``CUDA_VISIBLE_DEVICES``, else one per rank.
        clock: ``allow`` a script to decide by the clock of the recording, or ``refuse`` it.
        out: see `sl.compare`.
        exact: see `sl.compare`.

    Returns:
        The result with a row per script and network; `Result.json` also has ``sites``, ``links`` and ``losses``.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted; or a rank failed, and the
            message has its traceback.
    """
    from syncline.measure.recording.ranks import TraceOptions
    from syncline.measure.replaying.scenario import ReplayedOn
    from syncline.measure.replaying.subprocess_trace import traced_apart
    from syncline.measure.replaying.trace import trace as experiment

    scripts = list(what) if isinstance(what, Sequence) and not isinstance(what, str) else [what]
    programs = [program_of(script) for script in scripts]
    chosen_networks = listed(NETWORKS if networks is None else networks)
    question = ReplayedOn.from_options(chosen_networks, hardware, algorithm, host, target_loss=target_loss)
    options = TraceOptions(gpu, clock)
    with place(out, folder_name(programs)) as (path, scratch):
        answer = experiment(
            programs, workers, question, path, exact=exact and out is not None, run=traced_apart, options=options
        )
    return replay_result("trace", answer, question, scratch)


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
    """Replay the records of traces on other networks or hardware, and find what determines their step times.

    Args:
        record: the folder or the result of a trace; the first of several is the baseline of the speedups.
        networks: see `sl.trace`.
        hardware: see `sl.trace`.
        algorithm: see `sl.trace`.
        host: see `sl.trace`.
        scale_bandwidth: factor on the bandwidth of all links.
        scale_latency: factor on the latency of all links.
        scale_compute: factor on the speed of computing.
        overlap: let collectives run while a worker computes; otherwise a worker waits for each call at once.
        target_loss: see `sl.trace`.
        out: see `sl.compare`.
        exact: see `sl.compare`.

    Returns:
        The result with a row per record and network; `Result.json` also has ``sites``, ``links``, ``losses`` and
        ``sensitivities``.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.
    """
    from syncline.measure.replaying.scenario import Changes, ReplayedOn
    from syncline.measure.replaying.trace import whatif as experiment

    records = list(record) if isinstance(record, Sequence) and not isinstance(record, str) else [record]
    folders = [Path(source.folder or "") if isinstance(source, Result) else Path(source) for source in records]
    changes = Changes(scale_bandwidth, scale_latency, scale_compute, overlap)
    chosen_networks = listed(NETWORKS if networks is None else networks)
    question = ReplayedOn.from_options(chosen_networks, hardware, algorithm, host, changes, target_loss)
    with place(out, "whatif") as (path, scratch):
        answer = experiment(folders, question, path, exact=exact and out is not None)
    return replay_result("whatif", answer, question, scratch)


def program_of(source: Traceable) -> ForeignScript:
    """Return the program of a script, a command line or a function.

    Raises:
        SpecError: the argument is neither a script nor a function; or it is a script where no code may run.
    """
    from syncline.measure.recording.ranks import ForeignScript, script_of

    if callable(source):
        import cloudpickle

        return ForeignScript(getattr(source, "__name__", "function"), function=cloudpickle.dumps(source))
    if isinstance(source, Path) or (isinstance(source, str) and Path(source).is_file()):
        return script_of([str(source)])
    try:
        words = shlex.split(source)
    except (ValueError, AttributeError):
        words = []
    if not words:
        raise SpecError("script", source, "a Python file, what would be typed to run it, or a function")
    return script_of(words)


def folder_name(programs: Sequence[ForeignScript]) -> str:
    """Return the default name of a trace's folder."""
    return "-".join(["trace", *dict.fromkeys(program.name for program in programs)])


def replay_result(
    command: str, answer: Mapping[str, Any], question: ReplayedOn, scratch: Scratch | None = None
) -> Result:
    """Return the result of a trace, or of replays of records."""

    def tables() -> list[Group]:
        from syncline.measure.replaying.tables import trace_tables

        return trace_tables(answer, question)

    folder = Path(answer["folder"]) if "folder" in answer else None
    return Result(command, answer, tables=tables, folder=folder, scratch=scratch)
