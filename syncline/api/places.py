"""Where a result goes: a folder that the user names, or one that lives as long as the result."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Scratch:
    """A temporary folder: removed when nobody uses it any more, or at the end of Python."""

    path: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="syncline-")))

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextmanager
def place(out: str | Path | None, name: str) -> Iterator[tuple[Path, Scratch | None]]:
    """The path to write to, and the temporary folder that it is in, if it is.

    Of a failure the temporary folder is kept, if anything is in it: the error says where.
    """
    if out is not None:
        yield Path(out), None
        return
    scratch = Scratch()
    try:
        yield scratch.path / name, scratch
    except BaseException:
        with suppress(OSError):  # something is in it
            scratch.path.rmdir()
        raise
