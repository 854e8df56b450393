"""The commands ``syncline trace``, which runs foreign scripts once and replays them on networks, and ``whatif``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncline.errors import SpecError
from syncline.files import read_json
from syncline.measure.recording.ranks import DEFAULT_OPTIONS, ForeignScript, TraceOptions, trace_program
from syncline.measure.recording.record import Computed, MessageSent, RankRecord, Started, notes_of
from syncline.measure.recording.record_files import read_record, record_tables
from syncline.measure.replaying.bottlenecks import link_rows, sensitivities
from syncline.measure.replaying.clocks import TimedReplay, TraceRecord, line_rows, loss_rows, replay_rows, timed_replays
from syncline.measure.replaying.replay_folder import write_replays
from syncline.measure.replaying.scenario import ReplayedOn
from syncline.runs.folders.folder import RunFolder, environment
from syncline.specs.cluster.clusters import check_network_sizes
from syncline.specs.experiment import check_distinct

MAX_WORKERS, MAX_WORKERS_BY_SHAPES = 256, 1024
"""Largest number of workers: each is a process of some hundred MB; by shapes, its state takes some MB."""

RECORDS_FOLDER = "records"
"""The folder of the records of several scripts, as ``records/1`` and so on; one script has its record beside it."""

TraceAnswer = dict[str, Any]


def check_trace(program: ForeignScript, workers: int, question: ReplayedOn, max_workers: int = MAX_WORKERS) -> None:
    """Check, before any process starts, that a program can be traced and that each network joins all workers."""
    if program.function is None and not program.is_module and not Path(program.target).is_file():
        raise SpecError("script", program.target, "a Python file, or -m and a module's name, after --")
    if not 1 <= workers <= max_workers:
        raise SpecError("--workers", workers, f"a number from 1 to {max_workers}")
    check_network_sizes(question.networks, workers)


def trace(
    programs: Sequence[ForeignScript],
    workers: int,
    question: ReplayedOn,
    out: Path,
    exact: bool = False,
    run: Callable[[ForeignScript, int, TraceOptions], list[RankRecord]] = trace_program,
    max_workers: int = MAX_WORKERS,
    options: TraceOptions = DEFAULT_OPTIONS,
) -> TraceAnswer:
    """Run programs on a number of ranks, one after another, keep their records, and replay them.

    Args:
        programs: the programs to run; the first is the baseline of speedups.
        run: function that runs a program on this number of ranks, and returns the record of each.
        max_workers: largest number of ranks that ``run`` can run.

    Returns:
        ``rows`` (one per network and program), ``sites`` (per network, program and line), ``links`` (per network,
        program and link), ``losses`` (per program and step), ``notes`` on how a recording differs from its program, and
        ``folder``.

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
            events = (event for rank in ranks for event in rank.events)
            if not any(isinstance(event, Computed | Started | MessageSent) for event in events):
                raise SpecError("script", name, "a script that computes or communicates")
            records.append(TraceRecord(name, ranks))
        for number, record in enumerate(records, start=1):
            subfolder = "" if len(records) == 1 else f"{RECORDS_FOLDER}/{number}/"
            (folder.working / subfolder).mkdir(parents=True, exist_ok=True)
            for table_name, tables in record_tables(record.ranks).items():
                folder.long_table(subfolder + table_name, tables)
        script_words = {record.name: list(program.words) for record, program in zip(records, programs, strict=True)}
        origin = {"scripts": script_words} | asdict(options)
        result = _replay_into_folder(folder, records, question, whatif=False, origin=origin)
    return result | {"folder": str(folder.path)}


def whatif(folders: Sequence[Path], question: ReplayedOn, out: Path | None = None, exact: bool = False) -> TraceAnswer:
    """Replay records, and return what decides their step times.

    Args:
        folders: folders of traces; the first record is the baseline of speedups.
        out: the folder to write; None: no folder is written.
        exact: refuse an existing folder, see `RunFolder`; otherwise a number is added to its name.

    Returns:
        The result of `trace` and ``sensitivities``; if no folder was written, without ``folder``.

    Raises:
        SpecError: a folder has no record, or a network cannot join the ranks.
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
        result, _ = replay_records(records, question, whatif=True)
        return result
    with RunFolder(out, exact) as folder:
        origin = {"records": [str(path.resolve()) for path in folders]}
        result = _replay_into_folder(folder, records, question, whatif=True, origin=origin)
    return result | {"folder": str(folder.path)}


def _replay_into_folder(
    folder: RunFolder, records: Sequence[TraceRecord], question: ReplayedOn, whatif: bool, origin: dict[str, Any]
) -> TraceAnswer:
    """Replay records, write the results into the run folder of ``syncline trace`` or ``whatif``, and return them."""
    result, replays = replay_records(records, question, whatif)
    write_replays(folder, replays, rows=result["rows"], question=question)
    command = {"command": "whatif" if whatif else "trace", **origin, "question": question.fields()}
    run_fields = environment() | command | result
    del run_fields["losses"]  # the file of curves has them
    folder.json("run", run_fields)
    return result


def replay_records(
    records: Sequence[TraceRecord], question: ReplayedOn, whatif: bool
) -> tuple[TraceAnswer, list[TimedReplay]]:
    """Replay records on networks; return the result of ``syncline trace`` or ``whatif``, and the replays."""
    replays = timed_replays(records, question)
    result: TraceAnswer = {
        "rows": replay_rows(replays, question),
        "sites": [],  # rows for lines of the scripts
        "links": [],
        "losses": loss_rows(records),
        "notes": [{"script": record.name, "note": note} for record in records for note in notes_of(record.ranks)],
    }
    if whatif:
        result["sensitivities"] = []
    for timed in replays:
        lines = line_rows(timed.record, timed.network, timed.replayed)
        result["sites"] += lines
        result["links"] += link_rows(timed.record, timed.network, timed.clock.step_time_s, question)
        if whatif:
            result["sensitivities"] += sensitivities(timed, question, lines)
    return result, replays


def script_names(programs: Sequence[ForeignScript]) -> list[str]:
    """Return a distinct name for each program: its file or module, with arguments or a number if names repeat."""
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        names = [" ".join([program.name, *program.args]) for program in programs]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, start=1)]


def read_records(folder: Path) -> list[TraceRecord]:
    """Return the records in a run folder, with their names."""
    subfolders = sorted((folder / RECORDS_FOLDER).glob("*"), key=lambda path: path.name.zfill(9))  # 2 before 10
    try:
        names = [str(name) for name in read_json(folder / "run.json")["scripts"]]
    except (OSError, ValueError, KeyError, TypeError):
        names = []  # the folder was not written by `syncline trace`
    if not subfolders:  # the record of one script
        return [TraceRecord(names[0] if names else folder.name, read_record(folder), folder.name)]
    if len(names) != len(subfolders):  # the user has changed the folder
        names = [path.name for path in subfolders]
    return [
        TraceRecord(name, read_record(path), folder=f"{folder.name}/{name}")
        for name, path in zip(names, subfolders, strict=True)
    ]
