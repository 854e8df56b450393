"""Calls to other processes without what they share: that is written once, and read once by each process."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")


LARGE_BYTES = 100_000
"""What is smaller goes with each call."""


@dataclass(frozen=True)
class Shipped(Generic[T]):
    """A call as bytes, in which files stand for what is shared."""

    content: bytes

    def __call__(self) -> T:
        """Call it."""
        call: Callable[[], T] = _Unpickler(BytesIO(self.content)).load()
        return call()


def shipped(calls: Sequence[Callable[[], T]], shared: Iterable[Any], folder: Path) -> list[Shipped[T]]:
    """The calls for other processes.

    Args:
        calls: each pickled by itself.
        shared: objects that several of the calls hold, such as a problem with its data; each process has one of each.
        folder: where those that are large are written; it has to be there until all calls are made.
    """
    import cloudpickle

    file_of: dict[int, str] = {}
    for number, one in enumerate({id(one): one for one in shared}.values()):
        content = cloudpickle.dumps(one)
        if len(content) >= LARGE_BYTES:
            file = Path(tempfile.mkdtemp(dir=folder)) / str(number)
            file.write_bytes(content)
            file_of[id(one)] = str(file)

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, obj: Any) -> str | None:
            return file_of.get(id(obj))

    made = []
    for call in calls:
        written = BytesIO()
        Pickler(written).dump(call)
        made.append(Shipped[T](written.getvalue()))
    return made


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: str) -> Any:
        return _read(pid)


@lru_cache(maxsize=1)
def _read(file: str) -> Any:
    """What is shared by the call that came last, kept for the next one."""
    return pickle.loads(Path(file).read_bytes())
