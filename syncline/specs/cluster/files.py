"""Files that describe networks and hardware: plain ones, and a cluster's with a section for each.

A cluster's file is what a calibration writes: ``name``, a section ``network``, a section ``hardware``, and whatever
else was measured, which is not read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeGuard

from syncline.errors import SpecError
from syncline.registry import PYTHON, specs_are_data
from syncline.yamls import parse_yaml

SECTIONS = ("network", "hardware")

AS_IN = {
    "network": "a network's fields, as in 'latency: ...' and 'bandwidth: ...'",
    "hardware": "a machine's fields, as in 'peak_flops: ...' and 'mfu: ...'",
}

SUFFIXES = (".yaml", ".yml")

PACKAGE = Path(__file__).resolve().parents[2]
"""Where the files are that come with Syncline."""


def is_file(value: Any) -> TypeGuard[str | Path]:
    """Whether a user means a file: a path, or text that ends as its name does."""
    return isinstance(value, Path) or (isinstance(value, str) and value.endswith(SUFFIXES))


def section_of(file: Path, section: Literal["network", "hardware"], path: str) -> Mapping[str, Any]:
    """The fields of a section of a cluster's file, or of a file that is nothing else; named as the file says or is.

    Args:
        file: in YAML, from the working directory.
        section: which.
        path: the field's name, for the error line.

    Raises:
        SpecError: a file that cannot be read, holds no fields, or is a cluster's without this section.
    """
    fields = fields_of(text_in(file, path), str(file), path, "a file", AS_IN[section])
    if not any(isinstance(fields.get(name), Mapping) for name in SECTIONS):
        return _named(fields, fields.get("name") or file.stem)
    if not isinstance(fields.get(section), Mapping):
        raise SpecError(path, str(file), f"a file with a section '{section}: {{...}}', which this one lacks")
    name = fields[section].get("name") or fields.get("name") or file.stem
    return _named(fields[section], name)


def _named(fields: Mapping[str, Any], name: Any) -> Mapping[str, Any]:
    """The fields with a name, unless they are the arguments of a call."""
    return fields if fields.get("kind") == PYTHON else {**fields, "name": str(name)}


def text_in(file: Path, path: str) -> str:
    """Return what stands in a file.

    Raises:
        SpecError: it cannot be read, or is no text.
    """
    check_file(file, path)
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(path, str(file), f"a file that can be read ({error.strerror})") from error
    except ValueError as error:  # bytes that are no text
        raise SpecError(path, str(file), f"a file of text ({error})") from error


def check_file(file: Path, path: str) -> None:
    """Refuse a file that a folder of results names: the folder holds all that is read of it.

    Raises:
        SpecError: a folder of results is being read, and the file does not come with Syncline.
    """
    if specs_are_data() and not file.is_relative_to(PACKAGE):
        raise SpecError(path, str(file), "no file, because reading results reads their folder alone")


def fields_of(text: str, source: str, path: str, what: str, as_in: str) -> Mapping[str, Any]:
    """The fields that a YAML text holds.

    Raises:
        SpecError: no YAML, or something else in it.
    """
    try:
        fields = parse_yaml(text)
    except ValueError as error:
        raise SpecError(path, source, f"{what} in YAML ({error})") from error
    if not isinstance(fields, Mapping):
        raise SpecError(path, source, as_in)
    return fields
