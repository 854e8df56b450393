"""Files: atomic writing, which leaves the previous file after a full disk or a kill; reading of JSON, CSV and YAML."""

from __future__ import annotations

import csv
import functools
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from syncline.errors import SpecError, SynclineError, error_text
from syncline.interrupts import Deferral

READING_ERRORS = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RecursionError,
    NotImplementedError,
)  # fmt: skip
"""Errors that a file with other content than a command has written can raise in the code that reads it."""


def open_standard_streams() -> None:
    """Open the standard streams that the caller of this process has closed, on the null device.

    Otherwise the next file or pipe that this process opens could become standard error, and messages would be written
    into it.
    """
    for descriptor in range(3):  # standard input, output and error
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this descriptor
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not JSON, or nested too deep.
    """
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file by the names in its first line."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def refuse_changed_files(path: Path) -> Iterator[None]:
    """Raise a `SynclineError` for any error in the block, which reads results: a user has changed their files.

    Readers that check the content of a file refuse it themselves (`syncline.runs.folders.result_files`); this context
    catches errors that only occur when several files are inconsistent.

    Raises:
        SynclineError: the files were changed since they were written, or cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise SynclineError(f"folder: {error.filename or path} cannot be read ({error_text(error)})") from error
    except READING_ERRORS as error:
        raise SynclineError(f"folder: {path}/ is not as it was written ({error_text(error)})") from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; at the end of the block the file is renamed to ``path``.

    The block gets ``path`` itself if that is no regular file (a pipe, ``/dev/stdout``), or its folder is not writable.

    Raises:
        OSError: the file cannot be renamed. If the block raises an error, the temporary file is removed.
    """
    target = Path(os.path.realpath(path))
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        yield path
        return
    working = target.with_name(f".{target.name}.partial-{os.getpid()}")
    with Deferral(partial(working.unlink, missing_ok=True)):
        try:
            yield working
            working.replace(target)
        finally:
            working.unlink(missing_ok=True)


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder, hidden if in ``parent``; it is removed after the block, or when a signal ends the process."""
    folders: list[str] = []  # empty until the folder exists; `remove` must be known before that

    def remove() -> None:
        for name in folders:
            shutil.rmtree(name, ignore_errors=True)

    with (
        Deferral(remove),
        tempfile.TemporaryDirectory(prefix="syncline-" if parent is None else ".syncline-", dir=parent) as name,
    ):
        folders.append(name)
        yield Path(name)


def parse_yaml(text: str) -> Any:
    """Return the content of a YAML text.

    The text is YAML 1.1 with two differences. Floats of YAML 1.1 need a dot, so that 1e-3 would be text; here it is a
    number, as in YAML 1.2. A duplicate key is an error, as YAML demands; PyYAML would silently take the last value.

    Raises:
        ValueError: the text is not YAML, has a duplicate key, or is too large; the message is one line.
    """
    import yaml  # imported late, because many commands read no file

    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"{len(text):,} characters, and at most {MOST_CHARACTERS:,} are read")

    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is not None and _count_expanded_values(node, {}) > MOST_VALUES:
            raise ValueError(f"aliases that unfold to more than {MOST_VALUES:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).replace('in "<unicode string>", ', "at ").split())) from None
    except RecursionError:
        raise ValueError("nested too deep") from None


MOST_CHARACTERS = 1_000_000
"""Largest number of characters of a text: reading them takes about ten seconds, and a spec has a few thousand."""

MOST_VALUES = 1_000_000
"""Largest number of values with all aliases expanded: a few lines of nested aliases could fill the memory."""


def _count_expanded_values(node: Any, counts: dict[int, float]) -> float:
    """Return the number of values of a node with all aliases expanded; infinity if the node contains itself."""
    if id(node) in counts:
        return counts[id(node)]
    counts[id(node)] = math.inf  # until the node is counted: it is met again only if it contains itself
    children: list[Any] = []
    for entry in node.value if isinstance(node.value, list) else []:
        children += entry if isinstance(entry, tuple) else [entry]  # a mapping has pairs of key and value
    counts[id(node)] = 1.0 + sum(_count_expanded_values(child, counts) for child in children)
    return counts[id(node)]


@functools.cache
def _loader() -> Any:
    """Return the loader of PyYAML with the differences that `parse_yaml` describes."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            """Return the content of a mapping, or raise an error for a duplicate key or a key that is ``key:value``."""
            seen: set[str] = set()
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                if node.flow_style and ":" in key.value and value.value == "" and value.style is None:
                    problem = f"a space is missing behind the colon of {key.value!r}"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    # A text of this form is a float; the list has the characters with which it can begin.
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )
    return Loader


def write_csv(rows: Sequence[dict[str, Any]], file: Path) -> Path:
    """Write the rows below a line of names, with lists joined by spaces, and return the path.

    Raises:
        SpecError: the path cannot be written to.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as working, working.open("w", newline="", encoding="utf-8") as csv_file:
            writer = csv.DictWriter(csv_file, list(rows[0]))
            writer.writeheader()
            for row in rows:
                lists = {name: " ".join(map(str, cell)) for name, cell in row.items() if isinstance(cell, list | tuple)}
                writer.writerow(row | lists)
    except OSError as error:
        raise SpecError("--csv", str(file), f"a place that can be written to ({error.strerror})") from None
    return file
