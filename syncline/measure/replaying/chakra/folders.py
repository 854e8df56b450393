"""Folders of Chakra traces: ``NAME.RANK.et``, and ``comm_groups.json`` if a group has only some of the ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.errors import SpecError, one_of
from syncline.files import atomic_path, read_json
from syncline.measure.recording.record import RankRecord
from syncline.measure.recording.record_files import parts_of_record, read_record
from syncline.measure.replaying.chakra.export import ChakraNumbers, NodesOfRank, head_of
from syncline.measure.replaying.chakra.load import RecordOfRank, TraceGroups, groups_in, issued
from syncline.measure.replaying.chakra.schema import (
    ChakraMessage,
    attributes_of,
    chakra_messages,
    read_messages,
    write_messages,
)
from syncline.measure.replaying.replay import computing_on, known_host, segment_seconds
from syncline.questions.scripts import ACTIONS, Chakra
from syncline.runs.folders.folder import RunFolder, environment
from syncline.units import format_bytes

GROUPS = "comm_groups.json"
"""The file name for ASTRA-sim's ``--comm-group-configuration``."""

NAME = "trace"
"""The name of the trace files; ASTRA-sim's ``--workload-configuration`` is ``FOLDER/trace``."""

FILE = re.compile(r"(.*)\.(\d+)\.et")


def converted(question: Chakra) -> tuple[list[dict[str, Any]], Path, str]:
    """Convert a recorded trace to Chakra execution traces, or back; return the rows, the new folder and a line."""
    if question.action not in ACTIONS:
        raise SpecError("action", question.action, one_of(ACTIONS, question.action))
    source, exact = question.source, question.out is not None
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
    """Write the record of a folder as Chakra traces, with the microseconds of a machine.

    Args:
        machine: hardware, or ``measured``, as a user writes it.
        host: ``ahead`` or ``waits``; None: as hosts of the hardware do.
        out: the folder to write; see ``RunFolder`` for ``exact``.

    Returns:
        Rows, one per rank, and the folder.
    """
    hardware = computing_on(machine, "--hardware")
    host_mode = known_host(host, hardware, "--host")
    ranks = read_record(source)
    seconds = [segment_seconds(record, hardware) for record in ranks]
    return write_chakra(
        ranks,
        seconds,
        ahead=host_mode == "ahead",
        head_fields={"hardware": hardware.name, "host": host_mode},
        out=out,
        exact=exact,
    )


def write_chakra(
    ranks: Sequence[RankRecord],
    seconds: Sequence[Sequence[float]],
    ahead: bool,
    head_fields: dict[str, str],
    out: Path,
    exact: bool = True,
) -> tuple[list[dict[str, Any]], Path]:
    """Write a record as Chakra traces, one file per rank.

    Args:
        ranks: the record of each rank.
        seconds: seconds of each rank's segments.
        ahead: whether the host runs ahead of its streams.
        head_fields: fields that the head of each file has.
        out: a new folder; see ``RunFolder`` for ``exact``.

    Returns:
        Rows, one per rank: its file, nodes and bytes; and the folder.
    """
    chakra_messages()  # refuses if protobuf is not installed
    with RunFolder(out, exact) as folder:
        (folder.working / "figures").rmdir()
        numbering = ChakraNumbers(ranks)
        rows = []
        for rank, (record, segment_s) in enumerate(zip(ranks, seconds, strict=True)):
            file = f"{NAME}.{rank}.et"
            nodes: list[ChakraMessage] = list(NodesOfRank(rank, record, segment_s, numbering, ahead))
            size = write_messages(folder.working / file, [head_of(record, len(ranks), head_fields), *nodes])
            rows.append({"rank": rank, "file": file, "nodes": len(nodes), "bytes": size})
        if numbering.groups:
            with atomic_path(folder.working / GROUPS) as target:
                target.write_text(numbering.file(), encoding="utf-8")
    return rows, folder.path


def import_chakra(source: Path, out: Path, exact: bool = False) -> tuple[list[dict[str, Any]], Path]:
    """Read Chakra traces and write them as a record.

    Args:
        out: the folder to write; see ``RunFolder`` for ``exact``.

    Returns:
        Rows, one per rank: the number of its events and of its computing segments; and the record's folder.

    Raises:
        SynclineError: the traces cannot be read, or are not of a training; or protobuf is missing.
    """
    ranks = read_chakra(source)
    with RunFolder(out, exact) as folder:
        for name, parts in parts_of_record(ranks).items():
            folder.long_table(name, parts)
        folder.json("run", environment() | {"chakra": str(source), "workers": len(ranks)})
    rows = [
        {"rank": rank, "events": len(record.events), "segments": len(record.segments)}
        for rank, record in enumerate(ranks)
    ]
    return rows, folder.path


def read_chakra(source: Path) -> list[RankRecord]:
    """Return the record of each rank from a folder of Chakra traces."""
    chakra_messages()  # refuses if protobuf is not installed
    files = files_of(source)
    groups = _groups_of(source, len(files))
    contents = []
    for file in files:
        head, *nodes = read_messages(file)
        for name, ranks in groups_in(nodes).items():
            groups.setdefault(name, _checked(ranks, len(files), str(file)))
        contents.append((file, attributes_of(head), issued(nodes, str(file))))
    trace = TraceGroups(len(files), groups, {})
    return [RecordOfRank(rank, head, trace, file.name).take(nodes) for rank, (file, head, nodes) in enumerate(contents)]


def files_of(source: Path) -> list[Path]:
    """Return the files ``NAME.RANK.et`` of a folder, by rank."""
    expected = "a folder of Chakra execution traces, NAME.0.et, NAME.1.et and so on"
    programs: dict[str, dict[int, Path]] = {}
    for path in source.iterdir() if source.is_dir() else ():
        if (match := FILE.fullmatch(path.name)) and path.is_file():
            programs.setdefault(match[1], {})[int(match[2])] = path
    if len(programs) != 1:
        raise SpecError("trace", str(source), f"{expected}, of one NAME" if programs else expected)
    ((name, files),) = programs.items()
    if sorted(files) != list(range(len(files))):
        lacks = next(rank for rank in range(len(files)) if rank not in files)
        raise SpecError("trace", str(source), f"{expected} ({name}.{lacks}.et is not there)")
    return [files[rank] for rank in range(len(files))]


def _groups_of(source: Path, ranks: int) -> dict[str, tuple[int, ...]]:
    """Return the groups that the file for ASTRA-sim names; none without the file."""
    path = source / GROUPS
    if not path.is_file():
        return {}
    try:
        content = read_json(path)
        groups = {str(name): tuple(members) for name, members in content.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        message = " ".join(str(error).split())
        raise SpecError("trace", str(path), f"ranks by number of a group, as JSON ({message})") from None
    return {name: _checked(members, ranks, str(path)) for name, members in groups.items()}


def _checked(group: Sequence[Any], ranks: int, path: str) -> tuple[int, ...]:
    """Return the ranks of a group as a tuple; refuse a rank that is not there or twice."""
    for rank in group:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < ranks:
            raise SpecError(f"trace.{path}", rank, f"a rank from 0 to {ranks - 1}")
    if len(set(group)) < len(group):
        raise SpecError(f"trace.{path}", json.dumps(list(group)), "ranks of a group, none twice")
    return tuple(group)
