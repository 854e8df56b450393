"""The path of a result: the one that a question names, a new one in ``runs``, or a temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from syncline.errors import called_by_command


class Place(NamedTuple):
    """The path to which a result's files are written.

    Attributes:
        path: the path; None if nothing is written.
        exact: whether a path that exists is refused; otherwise a number is added to its name.
        scratch: the temporary folder around the path, or None. It is removed with the result, or at the end of Python.
    """

    path: Path | None
    exact: bool = False
    scratch: Path | None = None


@contextmanager
def result_place(question: Any, name: str, folder: str | Path | None = "runs") -> Iterator[Any]:
    """Yield the `Place` of the result of a command or of a function.

    The path is the question's ``out`` if that is set. Otherwise a command writes to ``folder/name``, and a function
    called from Python writes into a temporary folder. After an error, a temporary folder that has files is kept.

    Args:
        question: the options of the command, or the arguments of the function (`syncline.questions`).
        name: name of the path.
        folder: folder of a command's results; None if the command writes nothing or chooses the path.
    """
    if question.out is not None:
        is_exact = getattr(question, "exact", True)  # questions without this field write the path that they name
        yield Place(Path(question.out), exact=is_exact)
    elif called_by_command.get():
        yield Place(None if folder is None else Path(folder) / name)
    else:
        scratch = Path(tempfile.mkdtemp(prefix="syncline-"))
        try:
            yield Place(scratch / name, scratch=scratch)
        except BaseException:
            with suppress(OSError):  # a folder that is not empty stays
                scratch.rmdir()
            raise
