"""Folders of Chakra traces: ``NAME.RANK.et``, and ``comm_groups.json`` where only some ranks take part in something."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.backend.tracing.record import RankRecord
from syncline.errors import SpecError
from syncline.experiments.folder import RunFolder, environment
from syncline.experiments.tracing.chakra.given import ChakraNumbers, NodesOfRank, head_of
from syncline.experiments.tracing.chakra.schema import (
    ChakraMessage,
    attributes_of,
    chakra_messages,
    read_messages,
    write_messages,
)
from syncline.experiments.tracing.chakra.taken import GivenPlaces, RecordOfRank, groups_in, issued
from syncline.experiments.tracing.computing import computing_on, segment_seconds
from syncline.experiments.tracing.kept import parts_of_record, read_record
from syncline.experiments.tracing.programs import known_host
from syncline.files import read_json, whole_file

GROUPS = "comm_groups.json"
"""ASTRA-sim's ``--comm-group-configuration``."""

NAME = "trace"
"""Of the files; ASTRA-sim's ``--workload-configuration`` is ``FOLDER/trace``."""

FILE = re.compile(r"(.*)\.(\d+)\.et")


def export_record(
    source: Path, machine: Any, host: str | None, out: Path, exact: bool = False
) -> tuple[list[dict[str, Any]], Path]:
    """Write the record of a folder as Chakra traces, with the microseconds of a machine.

    Args:
        source: the folder of a trace.
        machine: hardware, or ``measured``, as a user writes it.
        host: ``ahead`` or ``waits``; none: as hosts of the hardware do.
        out: the folder to write; see ``RunFolder`` for ``exact``.

    Returns:
        Rows, one per rank, and the folder.

    Raises:
        SynclineError: a record, hardware or folder that cannot be used; or protobuf is not there.
    """
    on = computing_on(machine, "--hardware")
    does = known_host(host, on, "--host")
    ranks = read_record(source)
    seconds = [segment_seconds(one, on) for one in ranks]
    return give_chakra(ranks, seconds, does == "ahead", {"hardware": on.name, "host": does}, out, exact)


def give_chakra(
    ranks: Sequence[RankRecord],
    seconds: Sequence[Sequence[float]],
    ahead: bool,
    told: dict[str, str],
    out: Path,
    exact: bool = True,
) -> tuple[list[dict[str, Any]], Path]:
    """Write a record as Chakra traces.

    Args:
        ranks: the record.
        seconds: of each rank's segments.
        ahead: whether the host runs ahead of its streams.
        told: what stands in the head of each file.
        out: a new folder; see ``RunFolder`` for ``exact``.

    Returns:
        Rows, one per rank: its file, nodes and bytes; and the folder.

    Raises:
        SynclineError: a folder that is there, or protobuf is not.
    """
    chakra_messages()
    with RunFolder(out, exact) as folder:
        (folder.working / "figures").rmdir()
        numbering = ChakraNumbers(ranks)
        rows = []
        for rank, (record, of) in enumerate(zip(ranks, seconds, strict=True)):
            file = f"{NAME}.{rank}.et"
            nodes: list[ChakraMessage] = list(NodesOfRank(rank, record, of, numbering, ahead))
            size = write_messages(folder.working / file, [head_of(record, len(ranks), told), *nodes])
            rows.append({"rank": rank, "file": file, "nodes": len(nodes), "bytes": size})
        if numbering.groups:
            with whole_file(folder.working / GROUPS) as target:
                target.write_text(numbering.file(), encoding="utf-8")
    return rows, folder.path


def take_chakra(source: Path, out: Path, exact: bool = False) -> tuple[list[dict[str, Any]], Path]:
    """Keep Chakra traces as a record.

    Args:
        source: their folder.
        out: the folder to write; see ``RunFolder`` for ``exact``.

    Returns:
        Rows, one per rank: its events, and how many segments computed; and the record's folder.

    Raises:
        SynclineError: traces that cannot be read, or are none of a training; or protobuf is not there.
    """
    ranks = read_chakra(source)
    with RunFolder(out, exact) as folder:
        for name, parts in parts_of_record(ranks).items():
            folder.long_table(name, parts)
        folder.json("run", environment() | {"chakra": str(source), "workers": len(ranks)})
    rows = [{"rank": rank, "events": len(one.events), "segments": len(one.segments)} for rank, one in enumerate(ranks)]
    return rows, folder.path


def read_chakra(source: Path) -> list[RankRecord]:
    """The record of a folder of Chakra traces.

    Raises:
        SynclineError: as `take_chakra`.
    """
    chakra_messages()
    files = files_of(source)
    groups = _groups_of(source, len(files))
    places = GivenPlaces(len(files), groups, {})
    read = []
    for file in files:
        head, *nodes = read_messages(file)
        for name, ranks in groups_in(nodes).items():
            groups.setdefault(name, _checked(ranks, len(files), str(file)))
        read.append((file, attributes_of(head), issued(nodes, str(file))))
    return [RecordOfRank(rank, head, places, file.name).take(nodes) for rank, (file, head, nodes) in enumerate(read)]


def files_of(source: Path) -> list[Path]:
    """The traces of a folder, by rank.

    Raises:
        SpecError: there are none, those of several programs, or some are missing.
    """
    expected = "a folder of Chakra execution traces, NAME.0.et, NAME.1.et and so on"
    found: dict[str, dict[int, Path]] = {}
    for path in source.iterdir() if source.is_dir() else ():
        if (match := FILE.fullmatch(path.name)) and path.is_file():
            found.setdefault(match[1], {})[int(match[2])] = path
    if len(found) != 1:
        raise SpecError("trace", str(source), f"{expected}, of one NAME" if found else expected)
    ((name, of),) = found.items()
    if sorted(of) != list(range(len(of))):
        lacks = next(rank for rank in range(len(of)) if rank not in of)
        raise SpecError("trace", str(source), f"{expected} ({name}.{lacks}.et is not there)")
    return [of[rank] for rank in range(len(of))]


def _groups_of(source: Path, ranks: int) -> dict[str, tuple[int, ...]]:
    path = source / GROUPS
    if not path.is_file():
        return {}
    try:
        told = read_json(path)
        groups = {str(name): tuple(of) for name, of in told.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        said = " ".join(str(error).split())
        raise SpecError("trace", str(path), f"ranks by number of a group, as JSON ({said})") from None
    return {name: _checked(of, ranks, str(path)) for name, of in groups.items()}


def _checked(group: Sequence[Any], ranks: int, path: str) -> tuple[int, ...]:
    for rank in group:
        if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < ranks:
            raise SpecError(f"trace.{path}", rank, f"a rank from 0 to {ranks - 1}")
    if len(set(group)) < len(group):
        raise SpecError(f"trace.{path}", json.dumps(list(group)), "ranks of a group, none twice")
    return tuple(group)
