"""Folders of Chakra traces: ``NAME.RANK.et``, and ``comm_groups.json`` if a group has only some of the ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.errors import SpecError, require_one_of
from syncline.files import atomic_path, read_json
from syncline.measure.recording.record import RankRecord
from syncline.measure.recording.record_files import read_record, record_tables
from syncline.measure.replaying.chakra.export import ChakraNumbers, NodeBuilder, build_head
from syncline.measure.replaying.chakra.load import RecordBuilder, TraceGroups, order_nodes, read_pytorch_groups
from syncline.measure.replaying.chakra.schema import attributes_of, chakra_messages, read_messages, write_messages
from syncline.measure.replaying.replay import host_behaviour, parse_computing, segment_seconds
from syncline.questions.scripts import ACTIONS, Chakra
from syncline.runs.folders.folder import RunFolder, environment
from syncline.units import format_bytes

GROUPS_FILE = "comm_groups.json"
"""The file name for ASTRA-sim's ``--comm-group-configuration``."""

NAME = "trace"
"""The name of the trace files; ASTRA-sim's ``--workload-configuration`` is ``FOLDER/trace``."""

TRACE_FILE = re.compile(r"(.*)\.(\d+)\.et")
"""The name of a trace file: a name and a rank."""


def convert(question: Chakra) -> tuple[list[dict[str, Any]], Path, str]:
    """Convert a recorded trace to Chakra execution traces, or back; return a row per rank, the folder, a message."""
    require_one_of("action", question.action, ACTIONS)
    source, exact = question.source, question.out is not None  # a default folder gets a number if it exists
    kind = "chakra" if question.action == "export" else "record"
    target = Path(question.out or f"runs/{source.resolve().name}-{kind}")
    if question.action == "export":
        rows, folder = export_record(source, question.hardware, question.host, out=target, exact=exact)
        return rows, folder, f"{len(rows)} ranks, {format_bytes(sum(row['bytes'] for row in rows))} in {folder}/"
    rows, folder = import_chakra(source, target, exact=exact)
    return rows, folder, f"record in {folder}/; on networks: syncline whatif {folder} --hardware measured --network NET"


def export_record(
    source: Path, machine: Any, host: str | None, out: Path, exact: bool = False
) -> tuple[list[dict[str, Any]], Path]:
    """Write the record of a folder as Chakra traces, in which computing takes the time of some hardware.

    Args:
        machine: hardware, or ``measured``, as a user writes it.
        host: ``ahead`` or ``waits``; None: the behaviour of the hardware's hosts.

    Returns:
        Rows, one per rank, and the folder.
    """
    hardware = parse_computing(machine, "--hardware")
    host_mode = host_behaviour(host, hardware, "--host")
    ranks = read_record(source)
    segment_s = [segment_seconds(record, hardware) for record in ranks]
    head_fields = {"hardware": hardware.name, "host": host_mode}
    return write_chakra(
        ranks, segment_s, host_runs_ahead=host_mode == "ahead", head_fields=head_fields, out=out, exact=exact
    )


def write_chakra(
    ranks: Sequence[RankRecord],
    segment_s: Sequence[Sequence[float]],
    host_runs_ahead: bool,
    head_fields: dict[str, str],
    out: Path,
    exact: bool = True,
) -> tuple[list[dict[str, Any]], Path]:
    """Write a record as Chakra traces, one file per rank.

    Args:
        segment_s: for each rank, the seconds of its segments.
        head_fields: fields that the head of each file has.

    Returns:
        Rows, one per rank: its file, nodes and bytes; and the folder.
    """
    chakra_messages()  # raises an error if protobuf is not installed
    with RunFolder(out, exact) as folder:
        (folder.working / "figures").rmdir()  # traces have none
        numbers = ChakraNumbers(ranks)
        rows = []
        for rank, (record, segment_s_of_rank) in enumerate(zip(ranks, segment_s, strict=True)):
            file = f"{NAME}.{rank}.et"
            head = build_head(record, len(ranks), head_fields)
            nodes = list(NodeBuilder(record, segment_s_of_rank, numbers, host_runs_ahead).build())
            file_bytes = write_messages(folder.working / file, [head, *nodes])
            rows.append({"rank": rank, "file": file, "nodes": len(nodes), "bytes": file_bytes})
        if numbers.groups:
            with atomic_path(folder.working / GROUPS_FILE) as target:
                target.write_text(numbers.groups_as_json(), encoding="utf-8")
    return rows, folder.path


def import_chakra(source: Path, out: Path, exact: bool = False) -> tuple[list[dict[str, Any]], Path]:
    """Read Chakra traces and write them as a record.

    Returns:
        Rows, one per rank: the number of its events and of its computing segments; and the record's folder.

    Raises:
        SynclineError: the traces cannot be read, or are not of a training; or protobuf is missing.
    """
    ranks = read_chakra(source)
    with RunFolder(out, exact) as folder:
        for name, tables in record_tables(ranks).items():
            folder.long_table(name, tables)
        folder.json("run", environment() | {"chakra": str(source), "workers": len(ranks)})
    rows = [
        {"rank": rank, "events": len(record.events), "segments": len(record.segments)}
        for rank, record in enumerate(ranks)
    ]
    return rows, folder.path


def read_chakra(source: Path) -> list[RankRecord]:
    """Return the record of each rank from a folder of Chakra traces."""
    chakra_messages()  # raises an error if protobuf is not installed
    files = find_trace_files(source)
    groups = _read_group_file(source, len(files))
    contents = []
    for file in files:
        head, *nodes = read_messages(file)
        for name, group_ranks in read_pytorch_groups(nodes).items():
            _check_group(group_ranks, len(files), path=str(file))
            groups.setdefault(name, group_ranks)
        contents.append((attributes_of(head), order_nodes(nodes, str(file))))
    trace_groups = TraceGroups(len(files), groups, messages={})  # the builders number the messages
    return [
        RecordBuilder(rank, head_attributes, trace_groups, path=files[rank].name).build(ordered_nodes)
        for rank, (head_attributes, ordered_nodes) in enumerate(contents)
    ]


def find_trace_files(source: Path) -> list[Path]:
    """Return the files ``NAME.RANK.et`` of a folder, by rank.

    Raises:
        SpecError: the folder has no such files, files with several names, or no file for one of the ranks.
    """
    expected = "a folder of Chakra execution traces, NAME.0.et, NAME.1.et and so on"
    files_by_name: dict[str, dict[int, Path]] = {}
    paths = source.iterdir() if source.is_dir() else ()
    for path in paths:
        match = TRACE_FILE.fullmatch(path.name)
        if match is not None and path.is_file():
            name, rank_digits = match.groups()
            files_by_name.setdefault(name, {})[int(rank_digits)] = path
    if len(files_by_name) != 1:
        raise SpecError("trace", str(source), f"{expected}, of one NAME" if files_by_name else expected)
    ((name, file_of_rank),) = files_by_name.items()
    ranks = range(len(file_of_rank))
    if missing_ranks := set(ranks) - file_of_rank.keys():
        raise SpecError("trace", str(source), f"{expected} ({name}.{min(missing_ranks)}.et is missing)")
    return [file_of_rank[rank] for rank in ranks]


def _read_group_file(source: Path, num_ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups in ASTRA-sim's file of groups; an empty dict if there is no file."""
    path = source / GROUPS_FILE
    if not path.is_file():
        return {}
    try:
        groups = {str(name): tuple(group) for name, group in read_json(path).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        message = " ".join(str(error).split())
        raise SpecError("trace", str(path), f"ranks by number of a group, as JSON ({message})") from None
    for group in groups.values():
        _check_group(group, num_ranks, path=str(path))
    return groups


def _check_group(group: tuple[Any, ...], num_ranks: int, path: str) -> None:
    """Refuse a group with a value that is no rank, or with the same rank twice."""
    for rank in group:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < num_ranks:
            raise SpecError(f"trace.{path}", rank, f"a rank from 0 to {num_ranks - 1}")
    if len(set(group)) < len(group):
        raise SpecError(f"trace.{path}", json.dumps(group), "different ranks of a group")
