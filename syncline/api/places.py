"""Folders of results: a folder that the user names, or a temporary one that lives as long as the result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Scratch:
    """A temporary folder; it is removed with the result that uses it, or at the end of Python."""

    path: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="syncline-")))

    def remove(self) -> None:
        """Remove the folder with all its files."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def place(out: str | Path | None, name: str) -> Iterator[tuple[Path, Scratch | None]]:
    """Yield the path to write to, and the temporary folder around it if the user names no folder.

    After an error a temporary folder that holds files is kept; the error message names its path.
    """
    if out is not None:
        yield Path(out), None
        return
    scratch = Scratch()
    try:
        yield scratch.path / name, scratch
    except BaseException:
        with suppress(OSError):  # the folder is not empty
            scratch.path.rmdir()
        raise
