"""The commands ``syncline trace``, which runs foreign scripts once and replays them on networks, and ``whatif``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncline.errors import SpecError
from syncline.files import read_json
from syncline.measure.recording.ranks import DEFAULT_OPTIONS, ForeignScript, TraceOptions, traced
from syncline.measure.recording.record import Computed, MessageSent, RankRecord, Started, notes_of
from syncline.measure.recording.record_files import parts_of_record, read_record
from syncline.measure.replaying.bottlenecks import links_of_record, sensitivities
from syncline.measure.replaying.clocks import TimedReplay, TraceRecord, loss_rows, replay_rows, sites_of, timed_replays
from syncline.measure.replaying.replay_folder import write_replays
from syncline.measure.replaying.scenario import ReplayedOn
from syncline.runs.folders.folder import RunFolder, environment
from syncline.specs.cluster.clusters import check_network_sizes
from syncline.specs.experiment import check_distinct

MOST_WORKERS, MOST_SHAPED = 256, 1024
"""Largest number of workers: each is a process of some hundred MB; by shapes, its state takes some MB."""

SEVERAL = "records"
"""The folder of the records of several scripts, as ``records/1`` and so on; one script has its record beside it."""

TraceAnswer = dict[str, Any]


def check_trace(program: ForeignScript, workers: int, question: ReplayedOn, max_workers: int = MOST_WORKERS) -> None:
    """Check that a program can be traced, before any process starts.

    Args:
        workers: number of ranks, one process each.
        question: the replay, with the networks that must join that number of workers.
        max_workers: largest number of ranks.
    """
    if program.function is None and not program.is_module and not Path(program.target).is_file():
        raise SpecError("script", program.target, "a Python file, or -m and a module's name, behind --")
    if not 1 <= workers <= max_workers:
        raise SpecError("--workers", workers, f"a number from 1 to {max_workers}")
    check_network_sizes(question.networks, workers)


def trace(
    programs: Sequence[ForeignScript],
    workers: int,
    question: ReplayedOn,
    out: Path,
    exact: bool = False,
    run: Callable[[ForeignScript, int, TraceOptions], list[RankRecord]] = traced,
    max_workers: int = MOST_WORKERS,
    options: TraceOptions = DEFAULT_OPTIONS,
) -> TraceAnswer:
    """Run programs on a number of ranks, one after another, keep their records, and replay them.

    Args:
        programs: the programs to run; the first is the baseline of speedups.
        workers: number of ranks, one process each.
        out: the folder to write; see ``RunFolder`` for ``exact``.
        max_workers: largest number of ranks that ``run`` can run.

    Returns:
        ``rows``, one per network and program, ``sites``, one per network, program and line, ``links``, one per network,
        program and link, ``losses``, one per program and step, ``notes`` on deviations of the recording from a program,
        and ``folder``.

    Raises:
        SynclineError: an input that `check_trace` refuses, a rank that failed, or a script that neither computes nor
            communicates.
    """
    if not programs:
        raise SpecError("script", list(programs), "a script, or several")
    for program in programs:
        check_trace(program, workers, question, max_workers)
    with RunFolder(out, exact) as folder:
        records = []
        for name, program in zip(script_names(programs), programs, strict=True):
            ranks = run(program, workers, options)
            if not any(isinstance(event, Computed | Started | MessageSent) for rank in ranks for event in rank.events):
                raise SpecError("script", name, "a script that computes or communicates")
            records.append(TraceRecord(name, ranks))
        write_records(folder, records)
        script_words = {record.name: list(program.words) for record, program in zip(records, programs, strict=True)}
        result = _written(folder, "trace", records, question, fields={"scripts": script_words} | asdict(options))
    return result | {"folder": str(folder.path)}


def whatif(folders: Sequence[Path], question: ReplayedOn, out: Path | None = None, exact: bool = False) -> TraceAnswer:
    """Replay records, and return what decides their step times.

    Args:
        folders: folders of traces; the first record is the baseline of speedups.
        out: the folder to write; None: no folder is written. See ``RunFolder`` for ``exact``.

    Returns:
        The result of `trace` with ``sensitivities``; ``folder`` if a folder was written.

    Raises:
        SpecError: a folder that has no record, networks that cannot join the ranks.
    """
    if not folders:
        raise SpecError("record", list(folders), "the folder of a trace, or several")
    records = [record for folder in folders for record in read_records(folder)]
    if len({record.name for record in records}) < len(records):  # several records of the same script
        records = [record._replace(name=record.folder) for record in records]
    check_distinct("record", [record.name for record in records])
    for record in records:
        check_network_sizes(question.networks, len(record.ranks))
    if out is None:
        return results_of(records, question, whatif=True)[0]
    with RunFolder(out, exact) as folder:
        result = _written(folder, "whatif", records, question, {"records": [str(path.resolve()) for path in folders]})
    return result | {"folder": str(folder.path)}


def _written(
    folder: RunFolder, command: str, records: Sequence[TraceRecord], question: ReplayedOn, fields: TraceAnswer
) -> TraceAnswer:
    """Replay the records as the question asks, write what ``trace`` or ``whatif`` prints into its folder; return it."""
    result, replays = results_of(records, question, whatif=command == "whatif")
    write_replays(folder, replays, rows=result["rows"], question=question)
    stored_fields = {
        name: value for name, value in result.items() if name != "losses"
    }  # the file of curves has the losses
    folder.json("run", environment() | {"command": command} | fields | {"question": question.fields()} | stored_fields)
    return result


def results_of(
    records: Sequence[TraceRecord], question: ReplayedOn, whatif: bool
) -> tuple[TraceAnswer, list[TimedReplay]]:
    """Return what ``syncline trace`` or ``whatif`` answers for records, and the replays."""
    replays = timed_replays(records, question)
    result: TraceAnswer = {
        "rows": replay_rows(replays, question),
        "sites": [],
        "links": [],
        "losses": loss_rows(records),
        "notes": [{"script": record.name, "note": note} for record in records for note in notes_of(record.ranks)],
    }
    if whatif:
        result["sensitivities"] = []
    for timed_replay in replays:
        sites = sites_of(timed_replay.record, timed_replay.on, timed_replay.replayed)
        result["sites"] += sites
        result["links"] += links_of_record(
            timed_replay.record, timed_replay.on, timed_replay.clock.step_time_s, question
        )
        if whatif:
            result["sensitivities"] += sensitivities(timed_replay, question, sites)
    return result, replays


def script_names(programs: Sequence[ForeignScript]) -> list[str]:
    """Return a distinct name for each program: its file or module, with arguments or a number if names repeat."""
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        names = [" ".join([program.name, *program.args]) for program in programs]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, start=1)]


def write_records(folder: RunFolder, records: Sequence[TraceRecord]) -> None:
    """Write the records of scripts into a run folder."""
    for number, record in enumerate(records, start=1):
        folder_prefix = "" if len(records) == 1 else f"{SEVERAL}/{number}/"
        (folder.working / folder_prefix).mkdir(parents=True, exist_ok=True)
        for name, parts in parts_of_record(record.ranks).items():
            folder.long_table(folder_prefix + name, parts)


def read_records(folder: Path) -> list[TraceRecord]:
    """Return the records in a run folder, with their names."""
    subfolders = sorted((folder / SEVERAL).glob("*"), key=lambda path: path.name.zfill(9))
    try:
        names = [str(name) for name in read_json(folder / "run.json")["scripts"]]
    except (OSError, ValueError, KeyError, TypeError):
        names = []  # the folder was not written by `syncline trace`
    if not subfolders:
        return [TraceRecord(names[0] if names else folder.name, read_record(folder), folder.name)]
    names = names if len(names) == len(subfolders) else [path.name for path in subfolders]
    return [
        TraceRecord(name, read_record(path), f"{folder.name}/{name}")
        for name, path in zip(names, subfolders, strict=True)
    ]
