"""Files of results in JSON and Parquet: values as JSON has them, and readers that refuse what no command writes.

A folder may be cut off by a full disk, edited, or made by another version. Each reader checks that a file exists, can
be read, and has the columns and types that the calling code needs; otherwise it raises an error of one line.

The manifest of a result folder: a SHA-256 hash of each file, written last.

A folder inside that has its own manifest (a run of a sweep) is listed by that manifest alone, so a change anywhere
below changes a hash above. The manifest shows damage; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.errors import SpecError, error_text
from syncline.files import (
    read_json,
    refuse_changed_files,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ColumnType:
    """The type of a column in JSON rows and in Parquet.

    Attributes:
        name: name in an error line.
        python: types of a value in JSON.
        arrow: predicates of ``pyarrow.types``, one of which is true of the column in Parquet.
        optional: whether a value can be missing.
        finite: whether a number must be finite.
    """

    name: str
    python: tuple[type, ...]
    arrow: tuple[str, ...]
    optional: bool = False
    finite: bool = False

    def accepts(self, value: Any) -> bool:
        """Return whether a value in JSON is of this type."""
        if value is None:
            return self.optional
        if isinstance(value, float) and not math.isfinite(value):  # a command writes null in its place
            return False
        return isinstance(value, self.python) and (bool in self.python or not isinstance(value, bool))

    def accepts_column(self, column: pa.ChunkedArray) -> bool:
        """Return whether a column in Parquet is of this type."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not any(getattr(pa.types, predicate)(kind) for predicate in self.arrow):
            return self.optional and pa.types.is_null(kind)
        if column.null_count and not self.optional:
            return False
        return not self.finite or not pa.types.is_floating(kind) or pc.all(pc.is_finite(column)).as_py() is not False


_NUMBERS = ("is_integer", "is_floating")
TEXT = ColumnType("text", (str,), ("is_string", "is_large_string"))
TEXT_OR_NONE = ColumnType("text or nothing", (str,), ("is_string", "is_large_string"), optional=True)
WHOLE = ColumnType("whole numbers", (int,), ("is_integer",))
WHOLE_OR_NONE = ColumnType("whole numbers or nothing", (int,), ("is_integer",), optional=True)
FINITE = ColumnType("finite numbers", (int, float), _NUMBERS, finite=True)
NUMBER_OR_NONE = ColumnType("numbers or nothing", (int, float), _NUMBERS, optional=True)
BOOLEAN = ColumnType("true or false", (bool,), ("is_boolean",))
OBJECT = ColumnType("objects", (dict,), ())
LIST = ColumnType("lists", (list,), ())

ColumnTypes = dict[str, ColumnType]

CURVES: ColumnTypes = {
    "method": TEXT, "network": TEXT, "seed": WHOLE, "step": WHOLE, "seconds": FINITE, "bytes": FINITE,
    "loss": NUMBER_OR_NONE, "train_loss": NUMBER_OR_NONE,
}  # fmt: skip
TIMELINE: ColumnTypes = {
    "method": TEXT, "network": TEXT, "worker": WHOLE, "stream": TEXT, "what": TEXT, "label": TEXT, "start_s": FINITE,
    "end_s": FINITE, "nbytes": NUMBER_OR_NONE, "step": WHOLE,
}  # fmt: skip
LEDGER: ColumnTypes = {"method": TEXT, "step": WHOLE, "label": TEXT, "collective": TEXT, "payload_bytes": FINITE}
SWEEP_METRICS: ColumnTypes = {"step": WHOLE, "eval_loss": NUMBER_OR_NONE}
FINALS: ColumnTypes = {
    "method": TEXT, "seed": WHOLE, "step": WHOLE, "loss": NUMBER_OR_NONE, "step_time_s": NUMBER_OR_NONE,
    "bytes_per_worker": NUMBER_OR_NONE,
}  # fmt: skip
AVERAGES: ColumnTypes = {"method": TEXT, "seed": WHOLE, "step": WHOLE, "averaged": BOOLEAN, "trigger": NUMBER_OR_NONE}
NETWORKS: ColumnTypes = {"method": TEXT, "setting": TEXT, "network": TEXT, "step_time_s": NUMBER_OR_NONE}

SWEEP_RUNS: ColumnTypes = {
    "run": TEXT, "configuration": WHOLE, "training": TEXT, "method": TEXT, "values": OBJECT,
}  # fmt: skip
"""Columns of the runs that a ``sweep.json`` lists."""

CLOCK: ColumnTypes = dict.fromkeys(
    ("step_time_s", "compute_s", "communication_s", "communication_share", "exposed_communication_s",
     "bytes_per_worker", "wall_clock_s"), NUMBER_OR_NONE,
)  # fmt: skip
TRAINING: ColumnTypes = {"method": TEXT, "network": TEXT, "workers": WHOLE, "steps": WHOLE}

ROWS: dict[str, ColumnTypes] = {
    "run": TRAINING | {"seed": WHOLE, "diverged_at": WHOLE_OR_NONE},
    "compare": TRAINING | CLOCK | {"speedup": NUMBER_OR_NONE, "loss": NUMBER_OR_NONE, "diverged_at": WHOLE_OR_NONE},
    "collectives": {
        "collective": TEXT, "algorithm": TEXT, "network": TEXT, "workers": WHOLE, "nbytes": FINITE, "protocol": TEXT,
        "chosen_by": LIST, "contention": BOOLEAN, "fastest": BOOLEAN,
    },
    "launch": TRAINING | CLOCK | {"seed": WHOLE, "diverged_at": WHOLE_OR_NONE},
    "pipeline": {
        "schedule": TEXT, "network": TEXT, "makespan_s": NUMBER_OR_NONE, "closed_form_s": NUMBER_OR_NONE,
        "bubble": FINITE, "utilisation": FINITE, "microbatches_per_s": FINITE, "per_stage": LIST,
    },
    "project": {"workers": WHOLE, "network": TEXT},
    "trace": TRAINING | CLOCK | {"hardware": TEXT, "speedup": NUMBER_OR_NONE},
    "sweep": {"method": TEXT, "network": TEXT, "workers": WHOLE, "seed": WHOLE},
}  # fmt: skip
"""The columns that a command's rows have in ``run.json``, as far as its tables need them."""

EVERY_ROW: ColumnTypes = {
    "method": TEXT_OR_NONE, "network": TEXT_OR_NONE, "schedule": TEXT_OR_NONE, "basis": TEXT_OR_NONE,
    "stuck": TEXT_OR_NONE, "seed": WHOLE_OR_NONE, "steps": NUMBER_OR_NONE, "diverged_at": WHOLE_OR_NONE,
    "loss": NUMBER_OR_NONE, "speedup": NUMBER_OR_NONE,
}  # fmt: skip
"""The types of columns that have one meaning in the rows of all commands of `ROWS`, if a row has them."""


def plain(value: Any) -> Any:
    """Return nested results with NumPy numbers as Python's, and with None for numbers that are not finite."""
    if hasattr(value, "as_plain"):  # rows that are stored as columns
        return value.as_plain()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: Any) -> str:
    """Return the text of a JSON file with a result; numbers that JSON does not have become null."""
    return json.dumps(plain(value), indent=1) + "\n"


def read_object(path: Path) -> dict[str, Any]:
    """Return the object that a JSON file of a folder holds.

    Raises:
        SpecError: the file cannot be read, or holds something else.
    """
    try:
        value = read_json(path)
    except OSError as error:
        raise SpecError("folder", str(path), f"a file that can be read ({error.strerror})") from None
    except ValueError as error:
        raise SpecError("folder", str(path), f"a file of JSON ({error_text(error)})") from None
    if not isinstance(value, dict):
        raise SpecError("folder", str(path), f"a JSON object, not {type(value).__name__}")
    return value


def read_noted(path: Path) -> dict[str, Any]:
    """Return the content of a ``run.json`` or ``sweep.json``, whose ``rows`` are objects.

    Raises:
        SpecError: the file cannot be read, or has no such rows.
    """
    noted = read_object(path)
    if not isinstance(noted.get("rows"), list):
        raise SpecError("folder", str(path), "a list of rows in 'rows'")
    check_rows(noted["rows"], path, {})
    return noted


def check_rows(rows: Sequence[Any], path: Path, columns: ColumnTypes, name: str = "rows") -> None:
    """Refuse rows that no command has written.

    Args:
        rows: rows from a JSON file.
        path: the file.
        columns: columns that each row must have; none if rows may hold anything, as a study's or those of a user's CSV.
        name: name of the list in the file.

    Raises:
        SpecError: a row that is no object, has no such column, or has a value of another type.
    """
    for number, row in enumerate(rows):
        where = f"folder.{path}.{name}.{number}"
        if not isinstance(row, dict):
            raise SpecError(where, row, "an object")
        for column, kind in ((EVERY_ROW | columns) if columns else {}).items():
            if column in columns and column not in row:
                raise SpecError(where, sorted(row), f"a row with {column!r}")
            if column in row and not kind.accepts(row[column]):
                raise SpecError(f"{where}.{column}", row[column], kind.name)
        for column, value in row.items() if columns else ():
            if column.endswith(("_s", "_bytes", "_share")) and not _is_quantity(value):
                raise SpecError(f"{where}.{column}", value, NUMBER_OR_NONE.name)


def is_row(row: Any, columns: ColumnTypes) -> bool:
    """Return whether a row is one that a command has written."""
    try:
        check_rows([row], Path(), columns)
    except SpecError:
        return False
    return True


def _is_quantity(value: Any) -> bool:
    """Return whether a value can be a quantity with a unit: a number, a missing one, or several of them."""
    return all(map(_is_quantity, value)) if isinstance(value, list) else NUMBER_OR_NONE.accepts(value)


def read_parquet(path: Path, columns: ColumnTypes, only: Iterable[str] | None = None) -> pa.Table:
    """Return a table of Parquet, whose columns are checked.

    Args:
        path: the file.
        columns: columns that the table must have, with their types.
        only: the columns to read; all of the file by default.

    Raises:
        SpecError: the file cannot be read, has no such column, or one of another type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            table = file.read(None if only is None else [*only])
    except OSError as error:
        raise SpecError("folder", str(path), f"a file of Parquet ({error.strerror or error_text(error)})") from None
    except (pa.ArrowException, ValueError) as error:
        raise SpecError("folder", str(path), f"a file of Parquet ({error_text(error)})") from None
    for name in columns if only is None else only:
        kind = columns.get(name)
        if table.column_names.count(name) != 1:
            raise SpecError(f"folder.{path}", table.column_names, f"a table with one column {name!r}")
        if kind is not None and not kind.accepts_column(table[name]):
            raise SpecError(f"folder.{path}.{name}", str(table[name].type), f"a column of {kind.name}")
    return table


MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """Write the hashes of all files in a folder, as the last file of it."""
    working = folder / f".{MANIFEST}.partial"  # a fixed name: one process writes a folder, a kill leaves one file
    working.unlink(missing_ok=True)
    files = {name: _entry(folder / name) for name in _names(folder)}
    working.write_text(json.dumps({"hash": "sha256", "files": files}, indent=1) + "\n", encoding="utf-8")
    working.replace(folder / MANIFEST)


def remove_manifest(folder: Path) -> None:
    """Remove the manifest, because files of the folder will change; `write_manifest` follows."""
    (folder / MANIFEST).unlink(missing_ok=True)


def verify(folder: Path) -> list[dict[str, str]]:
    """Compare a folder with its manifest, and the folders inside with theirs.

    Returns:
        A row for each file that differs: its ``state``, which is ``missing``, ``changed`` or ``added``, and ``file``.

    Raises:
        SpecError: the folder has no manifest.
        SynclineError: the manifest cannot be read.
    """
    if not (folder / MANIFEST).is_file():
        expected = f"a folder with a {MANIFEST}, which the command that fills the folder writes last"
        raise SpecError("run", str(folder), expected)
    with refuse_changed_files(folder):
        listed: dict[str, Any] = dict(read_json(folder / MANIFEST)["files"])
    names = list(_names(folder))
    rows = [{"state": "missing", "file": name} for name in listed if name not in names]
    for name in names:
        if name not in listed:
            rows.append({"state": "added", "file": name})
        elif not stat.S_ISREG((folder / name).lstat().st_mode) or _entry(folder / name) != listed[name]:
            rows.append({"state": "changed", "file": name})
        if "/" in name and name.endswith(f"/{MANIFEST}"):
            inside = name.removesuffix(MANIFEST)
            rows += [row | {"file": inside + row["file"]} for row in verify(folder / inside)]
    return sorted(rows, key=lambda row: row["file"])


def num_files(folder: Path) -> int:
    """Return the number of files that the manifest of a folder and those of the folders inside list."""
    inside = [folder / name.removesuffix(MANIFEST) for name in _names(folder) if name.endswith(f"/{MANIFEST}")]
    return len(read_json(folder / MANIFEST)["files"]) + sum(map(num_files, inside))


def _names(folder: Path, inside: str = "") -> Iterator[str]:
    """Yield the files of a folder by their paths in it; of a folder inside with a manifest, the manifest alone."""
    for path in sorted((folder / inside).iterdir()):
        name = f"{inside}{path.name}"
        if not path.is_dir() or path.is_symlink():
            if name != MANIFEST:
                yield name
        elif (path / MANIFEST).is_file():
            yield f"{name}/{MANIFEST}"
        else:
            yield from _names(folder, f"{name}/")


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
