"""A user's own scripts and functions under a simulated clock."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.result import Result, check_results, later, place
from syncline.errors import SpecError
from syncline.questions.declare import listed
from syncline.questions.trace import NETWORKS, Trace
from syncline.questions.whatif import Whatif

if TYPE_CHECKING:
    from syncline.measure.replaying.scenario import ReplayedOn


def answer_trace(question: Trace) -> Result:
    """Return the trace of scripts or functions; a command's scripts run in processes that this process forks."""
    from syncline.measure.recording.ranks import TraceOptions, program_of, script_of, traced
    from syncline.measure.recording.shapes import parse_ranks, trace_by_shapes
    from syncline.measure.replaying.scenario import ReplayedOn
    from syncline.measure.replaying.subprocess_trace import traced_apart
    from syncline.measure.replaying.trace import MOST_SHAPED, MOST_WORKERS, trace

    if question.ranks is not None and not question.shapes:
        raise SpecError("--ranks", question.ranks, "--shapes beside it, as with real math all ranks are recorded")
    command_lines = scripts_of(question)
    programs = [script_of(words) for words in command_lines] or [program_of(source) for source in listed(question.what)]
    if not programs:
        raise SpecError("what", None, "a script, or a function that does the same")
    run: Any = traced if command_lines else traced_apart
    if question.shapes:
        run = partial(trace_by_shapes, ranks=parse_ranks(question.ranks))
    replay = ReplayedOn.from_options(
        question.networks or NETWORKS, question.hardware, question.algorithm, question.host,
        target_loss=question.target_loss,
    )  # fmt: skip
    with place(question, "-".join(["trace", *dict.fromkeys(program.name for program in programs)])) as target:
        answer = trace(
            programs, question.workers, replay, target.path, exact=target.exact, run=run,
            max_workers=MOST_SHAPED if question.shapes else MOST_WORKERS,
            options=TraceOptions(question.gpu, question.clock),
        )  # fmt: skip
    return replay_result("trace", answer, replay, target.scratch)


def answer_whatif(question: Whatif) -> Result:
    """Return the replays of a question's records."""
    from syncline.measure.replaying.scenario import Changes, ReplayedOn
    from syncline.measure.replaying.trace import whatif

    check_results("record", question.record)
    folders = [Path(source.folder or "") if isinstance(source, Result) else Path(source) for source in question.record]
    changes = Changes(
        question.scale_bandwidth, question.scale_latency, question.scale_compute, question.overlap, question.compiled,
        question.async_tp,
    )  # fmt: skip
    replay = ReplayedOn.from_options(
        question.networks or NETWORKS, question.hardware, question.algorithm, question.host, changes,
        question.target_loss,
    )  # fmt: skip
    with place(question, "whatif", folder=None) as target:
        answer = whatif(folders, replay, target.path, exact=target.exact)
    return replay_result("whatif", answer, replay, target.scratch)


def scripts_of(question: Trace) -> list[list[str]]:
    """Return the words of each script of a command line; nothing for a question of Python.

    Raises:
        SpecError: the words of a script cannot be read.
    """
    try:
        words = [shlex.split(text) for text in question.scripts or ()]
    except ValueError as error:
        raise SpecError("--script", question.scripts, f"words as one types them ({error})") from None
    return words or ([list(question.script)] if question.script else [])


def replay_result(command: str, answer: Mapping[str, Any], question: ReplayedOn, scratch: Path | None = None) -> Result:
    """Return the result of a trace, or of replays of records."""
    tables = later("syncline.measure.replaying.tables:trace_tables", answer, question)
    folder = Path(answer["folder"]) if "folder" in answer else None
    return Result(command, answer, tables=tables, folder=folder, scratch=scratch)
