"""Files that are whole or not there: a full disk or a kill leaves what there was before."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from syncline.errors import SynclineError, error_text
from syncline.interrupts import Deferral

NOT_AS_WRITTEN = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, RecursionError,
    NotImplementedError,
)  # fmt: skip
"""Errors that a file with other content than a command has written can raise in the code that reads it."""


def open_standard_streams() -> None:
    """Open the standard streams that the caller has closed, to nothing.

    Otherwise the next file or pipe that this process opens would become standard error, and lines for people would go
    into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        OSError: of the reading.
        ValueError: no JSON, or nested too deep.
    """
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("nested too deep") from None


@contextmanager
def refuse_changed_files(path: Path) -> Iterator[None]:
    """Around what reads results: files that somebody has changed are a mistake in the input, told in one line.

    Readers that know what a file should hold refuse it themselves (`syncline.runs.folders.result_files`); this catches
    what only shows when several files do not fit each other.

    Raises:
        SynclineError: what is there is not what was written, or cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise SynclineError(f"folder: {error.filename or path} cannot be read ({error_text(error)})") from error
    except NOT_AS_WRITTEN as error:
        raise SynclineError(f"folder: {path}/ is not as it was written ({error_text(error)})") from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Where to write what is to be called ``path``: a name beside it, which takes its place at the end.

    What is no file (a pipe, ``/dev/stdout``), or is in a folder that takes no new names, is written where it is.

    Raises:
        OSError: of the renaming; and whatever the block raises, after which nothing is left.
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
    """Make a folder, hidden if in a folder of the user's; the block's end removes it, and a signal that ends us."""
    made: list[str] = []

    def remove() -> None:
        for name in made:
            shutil.rmtree(name, ignore_errors=True)

    with (
        Deferral(remove),
        tempfile.TemporaryDirectory(prefix="syncline-" if parent is None else ".syncline-", dir=parent) as name,
    ):
        made.append(name)
        yield Path(name)
