"""A user's own scripts and functions under a simulated clock."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.places import Scratch, place
from syncline.api.result import Result, check_results
from syncline.errors import SpecError, names_options
from syncline.questions.declare import listed
from syncline.questions.trace import NETWORKS, Trace
from syncline.questions.whatif import Whatif

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.measure.recording.ranks import ForeignScript
    from syncline.measure.replaying.scenario import ReplayedOn


def answer_trace(
    question: Trace, programs: Sequence[ForeignScript] | None = None, shaping: Callable[..., Any] | None = None
) -> Result:
    """Return the trace of a question.

    Args:
        question: the question.
        programs: the programs, if they are made already; they then run in processes that this one forks.
        shaping: the function that records by shapes alone, of more ranks, in place of the scripts' own arithmetic.
    """
    from syncline.measure.recording.ranks import TraceOptions, traced
    from syncline.measure.replaying.scenario import ReplayedOn
    from syncline.measure.replaying.subprocess_trace import traced_apart
    from syncline.measure.replaying.trace import MOST_SHAPED, MOST_WORKERS, trace

    if question.what is None and programs is None:
        raise SpecError("what", None, "a script, or a function that does the same")
    run: Any = shaping or (traced_apart if programs is None else traced)
    programs = [program_of(script) for script in listed(question.what)] if programs is None else programs
    replay = ReplayedOn.from_options(
        question.networks or NETWORKS, question.hardware, question.algorithm, question.host,
        target_loss=question.target_loss,
    )  # fmt: skip
    exact = question.exact and question.out is not None
    with place(question.out, folder_name(programs)) as (path, scratch):
        answer = trace(
            programs, question.workers, replay, path, exact=exact, run=run,
            max_workers=MOST_SHAPED if shaping else MOST_WORKERS, options=TraceOptions(question.gpu, question.clock),
        )  # fmt: skip
    return replay_result("trace", answer, replay, scratch)


def answer_whatif(question: Whatif) -> Result:
    """Return the replays of a question's records."""
    from syncline.measure.replaying.scenario import Changes, ReplayedOn
    from syncline.measure.replaying.trace import whatif

    check_results("record", question.record)
    folders = [Path(source.folder or "") if isinstance(source, Result) else Path(source) for source in question.record]
    changes = Changes(question.scale_bandwidth, question.scale_latency, question.scale_compute, question.overlap)
    replay = ReplayedOn.from_options(
        question.networks or NETWORKS, question.hardware, question.algorithm, question.host, changes,
        question.target_loss,
    )  # fmt: skip
    no_folder = names_options.get() and question.out is None
    with nullcontext((None, None)) if no_folder else place(question.out, "whatif") as (path, scratch):
        answer = whatif(folders, replay, path, exact=question.exact and question.out is not None)
    return replay_result("whatif", answer, replay, scratch)


def program_of(source: str | Path | Callable[[], object]) -> ForeignScript:
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
