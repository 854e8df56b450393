"""Records by name: a run folder has the record of one script itself, those of several in ``records/1`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncline.files import read_json
from syncline.measure.recording.ranks import ForeignScript
from syncline.measure.replaying.clocks import TraceRecord
from syncline.measure.replaying.record_files import parts_of_record, read_record
from syncline.runs.folders.folder import RunFolder

SEVERAL = "records"


def script_names(programs: Sequence[ForeignScript]) -> list[str]:
    """Return the names of programs in rows: files or modules, with arguments or numbers if names repeat."""
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        names = [" ".join([program.name, *program.args]) for program in programs]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, start=1)]


def write_records(folder: RunFolder, records: Sequence[TraceRecord]) -> None:
    """Write records into a run folder."""
    for number, record in enumerate(records, start=1):
        inside = "" if len(records) == 1 else f"{SEVERAL}/{number}/"
        (folder.working / inside).mkdir(parents=True, exist_ok=True)
        for name, parts in parts_of_record(record.ranks).items():
            folder.long_table(inside + name, parts)


def read_names(folder: Path) -> list[TraceRecord]:
    """Return the records in a run folder, with their names.

    Raises:
        SpecError: the folder has no record.
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
