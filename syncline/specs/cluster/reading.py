"""Reading of users' descriptions of networks and hardware: mappings, files, and the bounds that a calibration writes.

A pydantic model validates each mapping; error lines name the field as the user wrote it. A file has the fields of a
network or of a machine, or is a cluster file with a section for each. A calibration writes a cluster file: ``name``, a
section ``network``, a section ``hardware``, and other measurements, which this module does not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeGuard

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from syncline.costmodel.numerics.uncertainty import RANGES, Scope, Uncertainty
from syncline.errors import SpecError, one_of
from syncline.fields import INSTANCE, Spec, explain, parsed
from syncline.files import parse_yaml
from syncline.registry import PYTHON, specs_are_data
from syncline.units import parse_bandwidth, parse_bytes

Name = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]
"""Text for people; a number becomes text."""

Number = Annotated[float, Field(strict=True)]
"""A number that is written as a number."""

Bandwidth = Annotated[float, parsed(parse_bandwidth)]
"""A rate: ``10 Gbit/s``, or a number of bytes per second."""

Bytes = Annotated[float, parsed(parse_bytes)]
"""A size: ``4 MiB``, or a number of bytes."""


def whole_number(value: Any, path: str, expected: str = "a number of workers, at least 1") -> int:
    """Return a whole number of at least one, or raise a `SpecError` that says what was expected."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(path, value, expected)
    return value


def count_validator(unit: str) -> BeforeValidator:
    """Return a validator of whole numbers of at least one; its error line says ``a number of ..., at least 1``."""
    return parsed(lambda value, path: whole_number(value, path, f"a number of {unit}, at least 1"))


class Description(Spec):
    """A description that users write as a mapping."""

    model_config = ConfigDict(populate_by_name=True)

    needs: ClassVar[str]
    """Error text for a missing field: what a description needs."""

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of the fields as users write them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def read(cls, fields: Mapping[str, Any], path: str) -> Self:
        """Return the validated description of these fields; errors name the field below ``path``."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            problem = explain(error, lambda _: cls.names())
            first_error, *_ = error.errors(include_url=False)
            is_field_missing = first_error["type"] == "missing" and problem.value is None
            expected = cls.needs if is_field_missing else problem.expected
            raise SpecError(f"{path}.{problem.path}", problem.value, expected) from None


def list_validator(parse_item: Callable[[Any, str], Any], item_description: str) -> BeforeValidator:
    """Return a validator of a list; its error lines name the index of a wrong item.

    Args:
        parse_item: function that returns an item from its value and its path.
    """

    def parse(value: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise SpecError(path, value, f"a list: {item_description}")
        return tuple(parse_item(item, f"{path}.{i}") for i, item in enumerate(value))

    return parsed(parse)


@contextmanager
def user_field_names(path: str) -> Iterator[None]:
    """Rename fields in errors of the cost model to the user's fields: ``link.latency_s`` becomes ``PATH.latency``."""
    try:
        yield
    except SpecError as error:
        is_users_path = error.path == path or error.path.startswith(f"{path}.")
        if is_users_path:
            raise
        field_path = error.path.removeprefix("link.").removeprefix("network.").removeprefix("hardware.")
        if not field_path.startswith("memory"):  # users write ``memory_bytes_per_s`` in full
            field_path = field_path.removesuffix("_bytes_per_s").removesuffix("_s")
        raise SpecError(f"{path}.{field_path}", error.value, error.expected) from None


FIELD_EXAMPLES = {
    "network": "a network's fields, as in 'latency: ...' and 'bandwidth: ...'",
    "hardware": "a machine's fields, as in 'peak_flops: ...' and 'mfu: ...'",
}
"""What an error line expects in each section of a cluster file."""

SECTIONS = tuple(FIELD_EXAMPLES)
"""The sections of a cluster file that are read."""

SUFFIXES = (".yaml", ".yml")
"""The endings of files that describe a network, hardware or a cluster."""

PACKAGE = Path(__file__).resolve().parents[2]
"""Folder of the files that come with Syncline."""


def is_file(value: Any) -> TypeGuard[str | Path]:
    """Return whether a value names a YAML file: a path, or text that ends in ``.yaml`` or ``.yml``."""
    return isinstance(value, Path) or (isinstance(value, str) and value.endswith(SUFFIXES))


def name_or_file(names: Iterable[str], value: Any, files: str, code: bool = True) -> str:
    """Return the end of an error line about text that is neither an accepted name nor a file with an accepted ending.

    Args:
        names: the accepted names.
        value: the text; if it ends as the name of a file does, the line lists no names.
        files: the accepted files.
        code: whether ``module:name`` is accepted.

    >>> name_or_file(["wan"], "wann", "a .yaml file"), name_or_file(["wan"], "lab.py", "a .yaml file")
    ("one of 'wan' (did you mean 'wan'?), or a .yaml file, or module:name", 'a .yaml file, or lab.py:NAME')
    """
    ending = re.search(r"[.][A-Za-z]+$", value) if isinstance(value, str) else None
    if ending is None:
        return f"{one_of(names, value)}, or {files}" + (", or module:name" if code else "")
    if ending[0] == ".json":
        return f"{files}; JSON is YAML, too, if the file's name ends in .yaml"
    return f"{files}, or {value}:NAME" if code and ending[0] == ".py" else files


def read_section(file: Path, section: Literal["network", "hardware"], path: str) -> Mapping[str, Any]:
    """Return the fields of a section of a cluster file, or of a file that holds these fields alone, with a name.

    The name is the section's, else the file's ``name``, else the file's own name.

    Args:
        file: path of a YAML file, relative to the working directory.
        path: the field's name, for the error line.
    """
    file_fields = fields_of_file(file, path, FIELD_EXAMPLES[section])
    has_sections = any(isinstance(file_fields.get(name), Mapping) for name in SECTIONS)
    fields = file_fields.get(section) if has_sections else file_fields
    if not isinstance(fields, Mapping):
        raise SpecError(path, str(file), f"a file with a section '{section}: {{...}}', which this one lacks")
    fields = with_table_beside(file, fields)
    if fields.get("kind") == PYTHON:  # the fields are the arguments of a function, which need not take a name
        return fields
    name = fields.get("name") or file_fields.get("name") or file.stem
    return {**fields, "name": str(name)}


def with_table_beside(file: Path, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a file; the path of a table in ``lines``, relative to the file's folder, is resolved."""
    lines = fields.get("lines")
    return {**fields, "lines": str(file.parent / lines)} if isinstance(lines, str) else fields


def read_text(file: Path, path: str) -> str:
    """Return the text of a file; refuse a file that cannot be read."""
    check_file(file, path)
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(path, str(file), f"a file that can be read ({error.strerror})") from error
    except ValueError as error:  # bytes that are no text
        raise SpecError(path, str(file), f"a file of text ({error})") from error


def check_file(file: Path, path: str) -> None:
    """Refuse a file outside of the package while a folder of results is being read.

    A spec in a folder of results is then only data: reading it reads no other files.
    """
    if specs_are_data() and not file.is_relative_to(PACKAGE):
        raise SpecError(path, str(file), "no file, because reading results only reads their folder")


def fields_of_file(file: Path, path: str, example: str) -> Mapping[str, Any]:
    """Return the mapping of fields in a YAML file; see `parse_fields` for the arguments."""
    return parse_fields(read_text(file, path), path, example, file=file)


def parse_fields(text: str, path: str, example: str, file: Path | None = None) -> Mapping[str, Any]:
    """Return the mapping of fields that a YAML text contains.

    Args:
        path: the field's name, for the error line.
        example: what would be accepted, for the error line.
        file: the file with the text; None if the user wrote the text in the field.
    """
    shown, content_name = (text, "fields") if file is None else (str(file), "a file")
    try:
        fields = parse_yaml(text)
    except ValueError as error:
        raise SpecError(path, shown, f"{content_name} in YAML ({error})") from error
    if not isinstance(fields, Mapping):
        raise SpecError(path, shown, example)
    return fields


BOUNDS_FIELDS = ("low", "high", "points", "basis")
"""Required fields of bounds."""

BOUNDS_EXAMPLE = (
    f"what a calibration writes: {{low: 0.97, high: 1.05, points: 24, basis: ...}}, and ranges of {', '.join(RANGES)}"
)


def parse_bounds(value: Any, path: str = "bounds") -> Uncertainty:
    """Return the bounds of a calibrated network or machine from the fields of its file."""
    if isinstance(value, Uncertainty):
        return value
    known_fields = {*BOUNDS_FIELDS, *RANGES, "families"}
    if not isinstance(value, Mapping) or not {*BOUNDS_FIELDS} <= {*value} <= known_fields:
        raise SpecError(path, dict(value) if isinstance(value, Mapping) else value, BOUNDS_EXAMPLE)
    try:
        ranges: dict[str, Any] = {name: tuple(map(float, value[name])) for name in RANGES if name in value}
        scope = Scope(tuple(map(str, value.get("families", ()))), **ranges)
        low, high, points = float(value["low"]), float(value["high"]), int(value["points"])
        return Uncertainty(low, high, points=points, basis=str(value["basis"]), sources=0, scope=scope)
    except (TypeError, ValueError):
        raise SpecError(path, dict(value), BOUNDS_EXAMPLE) from None


def bounds_fields(bounds: Uncertainty) -> dict[str, Any]:
    """Return the fields from which `parse_bounds` makes the same bounds again."""
    fields = {"low": bounds.low, "high": bounds.high, "points": bounds.points, "basis": bounds.basis}
    for name in RANGES:
        ends = getattr(bounds.scope, name)
        if ends is not None:
            fields[name] = [int(end) if end == int(end) else end for end in ends]  # without ".0"
    if bounds.scope.families:
        fields["families"] = list(bounds.scope.families)
    return fields


BoundsField = Annotated[Uncertainty, INSTANCE, parsed(parse_bounds)]
"""The errors of predictions, from a calibration."""
