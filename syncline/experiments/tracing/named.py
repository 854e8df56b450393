"""Records by name: of one script in a run folder itself, of several in ``records/1``, ``records/2`` and so on there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncline.backend.tracing.ranks import ForeignScript
from syncline.experiments.folder import RunFolder
from syncline.experiments.tracing.clocks import TraceRecord
from syncline.experiments.tracing.kept import parts_of_record, read_record
from syncline.files import read_json

SEVERAL = "records"


def script_names(programs: Sequence[ForeignScript]) -> list[str]:
    """What rows call programs: their files or modules; with their arguments where these are the same; else numbered."""
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        names = [" ".join([program.name, *program.args]) for program in programs]
    return [name if names.count(name) == 1 else f"{name} ({at})" for at, name in enumerate(names, start=1)]


def write_records(folder: RunFolder, records: Sequence[TraceRecord]) -> None:
    """Keep records in a run folder."""
    for number, record in enumerate(records, start=1):
        inside = "" if len(records) == 1 else f"{SEVERAL}/{number}/"
        (folder.working / inside).mkdir(parents=True, exist_ok=True)
        for name, parts in parts_of_record(record.ranks).items():
            folder.long_table(inside + name, parts)


def read_names(folder: Path) -> list[TraceRecord]:
    """The records in a run folder, by their names.

    Raises:
        SpecError: there is none.
    """
    inside = sorted((folder / SEVERAL).glob("*"), key=lambda path: path.name.zfill(9))
    names = _names_in(folder)
    if not inside:
        return [TraceRecord(names[0] if names else folder.name, read_record(folder), folder.name)]
    names = names if len(names) == len(inside) else [path.name for path in inside]
    return [
        TraceRecord(name, read_record(path), f"{folder.name}/{name}") for name, path in zip(names, inside, strict=True)
    ]


def _names_in(folder: Path) -> list[str]:
    try:
        scripts = read_json(folder / "run.json")["scripts"]
        return [str(name) for name in scripts]
    except (OSError, ValueError, KeyError, TypeError):
        return []
