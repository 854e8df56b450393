"""Files that are whole or not there: a full disk or a kill leaves what there was before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
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
    try:
        yield working
        working.replace(target)
    finally:
        working.unlink(missing_ok=True)
