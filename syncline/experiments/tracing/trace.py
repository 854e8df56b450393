"""``syncline trace``: run foreign scripts once, and say what they would take on networks; ``whatif``: say it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncline.backend.tracing.ranks import DEFAULT_OPTIONS, ForeignScript, TraceOptions, traced
from syncline.backend.tracing.record import Computed, MessageSent, RankRecord, Started, notes_of
from syncline.errors import SpecError
from syncline.experiments.folder import RunFolder, environment
from syncline.experiments.tracing.clocks import TraceRecord, sites_of
from syncline.experiments.tracing.links import links_of_record
from syncline.experiments.tracing.named import read_names, script_names, write_records
from syncline.experiments.tracing.rows import TimedReplay, loss_rows, replay_rows, timed_replays
from syncline.experiments.tracing.scenario import ReplayedOn
from syncline.experiments.tracing.sensitivities import sensitivities
from syncline.experiments.tracing.written import write_replays
from syncline.specs.cluster.spec_fields import check_joinable
from syncline.specs.experiment import check_distinct

MOST_WORKERS, MOST_SHAPED = 256, 1024
"""Each is a process of some hundred MB; by shapes, what it does is kept in some MB."""

TraceAnswer = dict[str, Any]


def check_trace(program: ForeignScript, workers: int, question: ReplayedOn, most: int = MOST_WORKERS) -> None:
    """Refuse before anything starts.

    Raises:
        SpecError: a script that is not there, too many workers, a network that cannot join them.
    """
    if program.function is None and not program.is_module and not Path(program.target).is_file():
        raise SpecError("script", program.target, "a Python file, or -m and a module's name, behind --")
    if not 1 <= workers <= most:
        raise SpecError("--workers", workers, f"a number from 1 to {most}")
    check_joinable(question.networks, workers)


def check_ranks(name: str, ranks: list[RankRecord]) -> list[RankRecord]:
    """Return the ranks of a script as they are.

    Raises:
        SpecError: none of them has computed or sent anything, so that there is nothing to keep.
    """
    if not any(isinstance(event, Computed | Started | MessageSent) for rank in ranks for event in rank.events):
        raise SpecError("script", name, "a script that computes or communicates")
    return ranks


def trace(
    programs: Sequence[ForeignScript],
    workers: int,
    question: ReplayedOn,
    out: Path,
    exact: bool = False,
    run: Callable[[ForeignScript, int, TraceOptions], list[RankRecord]] = traced,
    most: int = MOST_WORKERS,
    options: TraceOptions = DEFAULT_OPTIONS,
) -> TraceAnswer:
    """Run programs on so many ranks, one after another, keep their records, and replay them.

    Args:
        programs: what is run; the first is the baseline of speedups.
        workers: ranks, one process each.
        question: on what they are replayed.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        exact: likewise.
        run: what runs a program on so many ranks.
        most: ranks that it can run.
        options: how programs are recorded.

    Returns:
        ``rows``, one per network and program, ``sites``, one per network, program and line, ``links``, one per network,
        program and link, ``losses``, one per program and step, ``notes`` of what was done otherwise than a program
        says, and ``folder``.

    Raises:
        SynclineError: what `check_trace` refuses, or a rank that failed.
    """
    if not programs:
        raise SpecError("script", list(programs), "a script, or several")
    for program in programs:
        check_trace(program, workers, question, most)
    with RunFolder(out, exact) as folder:
        records = [
            TraceRecord(name, check_ranks(name, run(program, workers, options)))
            for name, program in zip(script_names(programs), programs, strict=True)
        ]
        write_records(folder, records)
        words = {record.name: list(program.words) for record, program in zip(records, programs, strict=True)}
        told = _written(folder, "trace", records, question, {"scripts": words} | asdict(options))
    return told | {"folder": str(folder.path)}


def whatif(folders: Sequence[Path], question: ReplayedOn, out: Path | None = None, exact: bool = False) -> TraceAnswer:
    """Replay records, and say what decides their step times.

    Args:
        folders: of traces; the first record is the baseline of speedups.
        question: on what they are replayed.
        out: the folder to write; none: nothing is. See ``RunFolder`` for ``exact``.

    Returns:
        What `trace` does, with ``sensitivities``; ``folder`` if one was written.

    Raises:
        SpecError: a folder that has no record, networks that cannot join the ranks.
    """
    if not folders:
        raise SpecError("record", list(folders), "the folder of a trace, or several")
    records = [record for folder in folders for record in read_names(folder)]
    if len({record.name for record in records}) < len(records):  # the same script, several times
        records = [record._replace(name=record.folder) for record in records]
    check_distinct("record", [record.name for record in records])
    for record in records:
        check_joinable(question.networks, len(record.ranks))
    if out is None:
        return told_of(records, question, whatif=True)[0]
    with RunFolder(out, exact) as folder:
        told = _written(folder, "whatif", records, question, {"records": [str(one.resolve()) for one in folders]})
    return told | {"folder": str(folder.path)}


def _written(
    folder: RunFolder, command: str, records: Sequence[TraceRecord], question: ReplayedOn, beside: TraceAnswer
) -> TraceAnswer:
    told, timed = told_of(records, question, command == "whatif")
    write_replays(folder, timed, told["rows"], question)
    kept = {name: value for name, value in told.items() if name != "losses"}  # curves have them
    folder.json("run", environment() | {"command": command} | beside | {"question": question.fields()} | kept)
    return told


def told_of(
    records: Sequence[TraceRecord], question: ReplayedOn, whatif: bool
) -> tuple[TraceAnswer, list[TimedReplay]]:
    """What is told of records, and their replays."""
    timed = timed_replays(records, question)
    sites = {(one.record.name, one.on.name): sites_of(one.record, one.on, one.replayed) for one in timed}
    told: TraceAnswer = {
        "rows": replay_rows(timed, question),
        "sites": [row for of in sites.values() for row in of],
        "links": [row for one in timed for row in links_of_record(one.record, one.on, one.clock.step_time_s, question)],
        "losses": loss_rows(records),
        "notes": [{"script": one.name, "note": note} for one in records for note in notes_of(one.ranks)],
    }
    if whatif:
        told["sensitivities"] = [
            row for one in timed for row in sensitivities(one, question, sites[one.record.name, one.on.name])
        ]
    return told, timed
