"""Files that describe networks and hardware: files with the fields alone, and cluster files with a section for each.

A calibration writes a cluster file: ``name``, a section ``network``, a section ``hardware``, and other measurements,
which this module does not read.
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
"""Folder of the files that come with Syncline."""


def is_file(value: Any) -> TypeGuard[str | Path]:
    """Return whether a value names a YAML file: a path, or text that ends in ``.yaml`` or ``.yml``."""
    return isinstance(value, Path) or (isinstance(value, str) and value.endswith(SUFFIXES))


def read_section(file: Path, section: Literal["network", "hardware"], path: str) -> Mapping[str, Any]:
    """Return the fields of a section of a cluster file, or of a file that holds these fields alone, with a name.

    The name is the section's, else the file's ``name``, else the file's own name.

    Args:
        file: path of a YAML file, relative to the working directory.
        section: name of the section.
        path: the field's name, for the error line.

    Raises:
        SpecError: the file cannot be read, holds no fields, or is a cluster file without this section.
    """
    fields = parse_fields(read_text(file, path), str(file), path, "a file", AS_IN[section])
    if not any(isinstance(fields.get(name), Mapping) for name in SECTIONS):
        return _named(with_tables_beside(file, fields), fields.get("name") or file.stem)
    if not isinstance(fields.get(section), Mapping):
        raise SpecError(path, str(file), f"a file with a section '{section}: {{...}}', which this one lacks")
    name = fields[section].get("name") or fields.get("name") or file.stem
    return _named(with_tables_beside(file, fields[section]), name)


def with_tables_beside(file: Path, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a file with the path of its table of lines, which is relative to the file's folder."""
    lines = fields.get("lines")
    return {**fields, "lines": str(file.parent / lines)} if isinstance(lines, str) else fields


def _named(fields: Mapping[str, Any], name: Any) -> Mapping[str, Any]:
    """Return the fields with a name, unless they are the arguments of a function call."""
    return fields if fields.get("kind") == PYTHON else {**fields, "name": str(name)}


def read_text(file: Path, path: str) -> str:
    """Return the text of a file.

    Raises:
        SpecError: the file cannot be read, or is no text.
    """
    check_file(file, path)
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(path, str(file), f"a file that can be read ({error.strerror})") from error
    except ValueError as error:  # bytes that are no text
        raise SpecError(path, str(file), f"a file of text ({error})") from error


def check_file(file: Path, path: str) -> None:
    """Refuse a file outside of the package while a folder of results is being read.

    A folder of results has to be complete: reading it reads no other files.

    Raises:
        SpecError: a folder of results is being read, and the file does not come with Syncline.
    """
    if specs_are_data() and not file.is_relative_to(PACKAGE):
        raise SpecError(path, str(file), "no file, because reading results reads their folder alone")


def parse_fields(text: str, source: str, path: str, content_name: str, example: str) -> Mapping[str, Any]:
    """Return the fields that a YAML text holds.

    Raises:
        SpecError: the text is not YAML, or holds no mapping.
    """
    try:
        fields = parse_yaml(text)
    except ValueError as error:
        raise SpecError(path, source, f"{content_name} in YAML ({error})") from error
    if not isinstance(fields, Mapping):
        raise SpecError(path, source, example)
    return fields
