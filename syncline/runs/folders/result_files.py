"""Files of results in JSON and Parquet with the types of their columns, and the manifests of result folders.

A folder may be cut off by a full disk, edited, or made by another version. Each reader checks that a file exists, can
be read, and has the columns and types that the calling code needs; otherwise it raises an error of one line.

A manifest has a SHA-256 hash of each file of a folder, and is written last. If a subfolder has its own manifest (a run
of a sweep), only that manifest is listed, so that a change anywhere below changes a hash above. The manifest shows
damage; it is no signature.
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

from syncline.columns import column_of
from syncline.errors import SpecError, error_text
from syncline.files import parse_yaml, read_json, refuse_changed_files

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ColumnType:
    """The type that a column must have in JSON rows and in Parquet.

    Attributes:
        python: Python types of a value that was read from JSON.
        arrow: names of functions of ``pyarrow.types``; one of them must be true of the column in Parquet.
    """

    name: str
    python: tuple[type, ...]
    arrow: tuple[str, ...]
    optional: bool = False
    finite: bool = False

    @property
    def arrow_type(self) -> pa.DataType:
        """Return the type of the column in Parquet: text, 64-bit integers or 64-bit floats."""
        import pyarrow as pa

        if str in self.python:
            return pa.string()
        return pa.float64() if float in self.python else pa.int64()

    def accepts(self, value: Any) -> bool:
        """Return whether a value in JSON is of this type."""
        if value is None:
            return self.optional
        if isinstance(value, float) and not math.isfinite(value):  # commands write null for NaN and infinite numbers
            return False
        if isinstance(value, bool):  # Python counts it as an integer
            return bool in self.python
        return isinstance(value, self.python)

    def accepts_column(self, column: pa.ChunkedArray) -> bool:
        """Return whether a column in Parquet is of this type."""
        import pyarrow as pa
        import pyarrow.compute as pc

        value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not any(getattr(pa.types, predicate)(value_type) for predicate in self.arrow):
            return self.optional and pa.types.is_null(value_type)  # the type of a column without any value
        if column.null_count and not self.optional:
            return False
        if self.finite and pa.types.is_floating(value_type):
            all_finite = pc.all(pc.is_finite(column)).as_py()
            return all_finite is None or all_finite  # None: no values
        return True


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

TYPES: ColumnTypes = {
    "text": TEXT, "text?": TEXT_OR_NONE, "whole": WHOLE, "whole?": WHOLE_OR_NONE, "finite": FINITE, "bool": BOOLEAN,
    "list": LIST, "object": OBJECT,
}  # fmt: skip
"""Types by the names that `syncline.columns` uses; other columns have numbers or nothing."""


def type_of(name: str) -> ColumnType:
    """Return the type of a column."""
    return TYPES.get(column_of(name).type, NUMBER_OR_NONE)


def _types_of(names: str) -> ColumnTypes:
    """Return the types of columns whose names are separated by spaces."""
    return {name: type_of(name) for name in names.split()}


CURVES = _types_of("method network seed step seconds bytes loss train_loss")
TIMELINE = _types_of("method network worker stream what label start_s end_s nbytes step") | {"nbytes": NUMBER_OR_NONE}
LEDGER = _types_of("method step label collective payload_bytes")
SWEEP_METRICS = _types_of("step eval_loss")
FINALS = _types_of("method seed step loss step_time_s bytes_per_worker")
AVERAGES = _types_of("method seed step averaged trigger")
NETWORKS = _types_of("method setting network step_time_s")
SWEEP_RUNS = _types_of("run configuration training method values")
"""Columns of the list ``runs`` in a ``sweep.json``."""

CLOCK = _types_of(
    "step_time_s compute_s communication_s communication_share exposed_communication_s bytes_per_worker wall_clock_s"
)
TRAINING = _types_of("method network workers steps")

ROWS: dict[str, ColumnTypes] = {
    "run": TRAINING | _types_of("seed diverged_at"),
    "compare": TRAINING | CLOCK | _types_of("speedup loss diverged_at"),
    "collectives": _types_of("collective algorithm network workers nbytes protocol chosen_by contention fastest"),
    "launch": TRAINING | CLOCK | _types_of("seed diverged_at"),
    "pipeline": _types_of("schedule network makespan_s closed_form_s bubble utilisation microbatches_per_s per_stage"),
    "project": _types_of("workers network"),
    "trace": TRAINING | CLOCK | _types_of("hardware speedup"),
    "sweep": _types_of("method network workers seed"),
}
"""Columns that the rows in ``run.json`` need for a command's tables, by command."""

EVERY_ROW: ColumnTypes = {
    **dict.fromkeys(("method", "network", "schedule", "basis", "stuck"), TEXT_OR_NONE),
    "seed": WHOLE_OR_NONE, "steps": NUMBER_OR_NONE, **_types_of("diverged_at loss speedup"),
}  # fmt: skip
"""The types of columns that mean the same in the rows of all commands; a row may lack them."""


def json_value(value: Any) -> Any:
    """Return nested values as JSON can store them: NumPy's numbers as Python's, infinite numbers and NaN as None."""
    if hasattr(value, "json_rows"):  # rows that are stored as columns
        return value.json_rows()
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        return json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(value: Any) -> str:
    """Return a result as the text of a JSON file; infinite numbers and NaN become null."""
    return json.dumps(json_value(value), indent=1) + "\n"


def object_or_none(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON or YAML file; None if the file cannot be read or contains no object."""
    try:
        content = read_json(path) if path.suffix == ".json" else parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of a result folder.

    Raises:
        SpecError: the file cannot be read, or contains no JSON object.
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


def read_run_record(path: Path) -> dict[str, Any]:
    """Return the JSON object of a ``run.json`` or ``sweep.json``, which has a list of objects in ``rows``.

    Raises:
        SpecError: the file cannot be read, or has no such list.
    """
    record = read_object(path)
    if not isinstance(record.get("rows"), list):
        raise SpecError("folder", str(path), "a list of rows in 'rows'")
    check_rows(record["rows"], path, columns={})  # rows may have any columns
    return record


def check_rows(rows: Sequence[Any], path: Path, columns: ColumnTypes, name: str = "rows") -> None:
    """Refuse rows of a JSON file that lack a column or have a value of another type.

    Columns of `EVERY_ROW`, and columns whose names have a unit, are checked if they are there.

    Args:
        path: the file, for the error.
        columns: columns that each row must have. If it is empty, as for a study, rows with any columns are accepted.

    Raises:
        SpecError: a row is no object, lacks a column, or has a value of another type.
    """
    for index, row in enumerate(rows):
        where = f"folder.{path}.{name}.{index}"
        if not isinstance(row, dict):
            raise SpecError(where, row, "an object")
        if not columns:
            continue
        for column, column_type in (EVERY_ROW | columns).items():
            if column in row and not column_type.accepts(row[column]):
                raise SpecError(f"{where}.{column}", row[column], column_type.name)
            if column not in row and column in columns:
                raise SpecError(where, sorted(row), f"a row with {column!r}")
        for column, value in row.items():
            has_unit = column.endswith(("_s", "_bytes", "_share"))
            if has_unit and not _is_quantity(value):
                raise SpecError(f"{where}.{column}", value, NUMBER_OR_NONE.name)


def is_row(row: Any, columns: ColumnTypes) -> bool:
    """Return whether a row has these columns, with values of their types."""
    try:
        check_rows([row], path=Path(), columns=columns)  # no error is shown, so any path will do
    except SpecError:
        return False
    return True


def _is_quantity(value: Any) -> bool:
    """Return whether a value is a number, None, or a list of such values."""
    if isinstance(value, list):
        return all(_is_quantity(item) for item in value)
    return NUMBER_OR_NONE.accepts(value)


def read_parquet(path: Path, columns: ColumnTypes, only: Iterable[str] | None = None) -> pa.Table:
    """Return the table in a Parquet file after a check of its columns.

    Args:
        only: names of the columns to read; all by default. Only these are then checked.

    Raises:
        SpecError: the file cannot be read, lacks a column, or has a column of another type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=None if only is None else [*only])
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = getattr(error, "strerror", None) or error_text(error)
        raise SpecError("folder", str(path), f"a file of Parquet ({reason})") from None
    for name in columns if only is None else only:
        column_type = columns.get(name)
        if table.column_names.count(name) != 1:  # Parquet allows several columns of one name
            raise SpecError(f"folder.{path}", table.column_names, f"a table with one column {name!r}")
        if column_type is not None and not column_type.accepts_column(table[name]):
            raise SpecError(f"folder.{path}.{name}", str(table[name].type), f"a column of {column_type.name}")
    return table


MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """Write the hashes of all files in a folder into its manifest, which must be the last file that is written."""
    working = folder / f".{MANIFEST}.partial"  # one name, so that kills leave at most one file
    working.unlink(missing_ok=True)
    files = {name: _size_and_hash(folder / name) for name in _listed_names(folder)}
    working.write_text(json.dumps({"hash": "sha256", "files": files}, indent=1) + "\n", encoding="utf-8")
    working.replace(folder / MANIFEST)


def remove_manifest(folder: Path) -> None:
    """Remove the manifest of a folder before its files change; `write_manifest` makes a new one."""
    (folder / MANIFEST).unlink(missing_ok=True)


def verify(folder: Path) -> list[dict[str, str]]:
    """Compare a folder with its manifest, and the folders inside that have a manifest with theirs.

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
    names = list(_listed_names(folder))
    rows = [{"state": "missing", "file": name} for name in listed if name not in names]
    for name in names:
        is_regular_file = stat.S_ISREG((folder / name).lstat().st_mode)  # neither a link nor a pipe, which would block
        if name not in listed:
            rows.append({"state": "added", "file": name})
        elif not is_regular_file or _size_and_hash(folder / name) != listed[name]:
            rows.append({"state": "changed", "file": name})
        if name.endswith(f"/{MANIFEST}"):
            subfolder = name.removesuffix(MANIFEST)
            rows += [row | {"file": subfolder + row["file"]} for row in verify(folder / subfolder)]
    return sorted(rows, key=lambda row: row["file"])


def num_files(folder: Path) -> int:
    """Return the number of files that the manifests of a folder and of its subfolders list."""
    count = len(read_json(folder / MANIFEST)["files"])
    for name in _listed_names(folder):
        if name.endswith(f"/{MANIFEST}"):
            count += num_files(folder / name.removesuffix(MANIFEST))
    return count


def _listed_names(folder: Path, subfolder: str = "") -> Iterator[str]:
    """Yield the relative paths of a subfolder's files for the folder's manifest.

    If a subfolder has its own manifest, only that manifest is listed.
    """
    for path in sorted((folder / subfolder).iterdir()):
        name = f"{subfolder}{path.name}"
        if not path.is_dir() or path.is_symlink():
            if name != MANIFEST:
                yield name
        elif (path / MANIFEST).is_file():
            yield f"{name}/{MANIFEST}"
        else:
            yield from _listed_names(folder, f"{name}/")


def _size_and_hash(path: Path) -> dict[str, Any]:
    """Return a file's entry in the manifest: its size in bytes and its hash."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
