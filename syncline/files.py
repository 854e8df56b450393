"""Reading of files, and atomic writing: after a full disk or a kill the previous file is unchanged."""

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
    """Open the standard streams that the caller has closed, on the null device.

    Otherwise the next file or pipe that this process opens could become standard error, and messages would be written
    into it.
    """
    for descriptor in range(3):
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


@contextmanager
def refuse_changed_files(path: Path) -> Iterator[None]:
    """Turn errors while results are read into one line, because changed files are a mistake in the input.

    Readers that check the content of a file refuse it themselves (`syncline.runs.folders.result_files`); this context
    catches errors that only occur when several files are inconsistent.

    Raises:
        SynclineError: the files were changed since they were written, or cannot be read.
    """
    try:
        yield
    except OSError as error:
        raise SynclineError(f"folder: {error.filename or path} cannot be read ({error_text(error)})") from error
    except NOT_AS_WRITTEN as error:
        raise SynclineError(f"folder: {path}/ is not as it was written ({error_text(error)})") from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; at the end of the block the file is renamed to ``path``.

    If ``path`` is no regular file (a pipe, ``/dev/stdout``), or its folder is not writable, it is written directly.

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
    folders: list[str] = []

    def remove() -> None:
        for name in folders:
            shutil.rmtree(name, ignore_errors=True)

    with (
        Deferral(remove),
        tempfile.TemporaryDirectory(prefix="syncline-" if parent is None else ".syncline-", dir=parent) as name,
    ):
        folders.append(name)
        yield Path(name)
