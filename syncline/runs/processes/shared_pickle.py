"""Calls to other processes without their shared objects: these are written once, and read once by each process."""

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
"""Size in bytes below which a shared object is sent with each call."""


@dataclass(frozen=True)
class PickledCall(Generic[T]):
    """A call as bytes, in which files stand for the shared objects."""

    content: bytes

    def __call__(self) -> T:
        """Unpack the call, and return its result."""
        call: Callable[[], T] = _Unpickler(BytesIO(self.content)).load()
        return call()


def pickle_calls(calls: Sequence[Callable[[], T]], shared: Iterable[Any], folder: Path) -> list[PickledCall[T]]:
    """Return the calls in a form for other processes.

    Args:
        calls: functions; each is pickled by itself.
        shared: objects that several of the calls hold, such as a problem with its data; each process has one of each.
        folder: folder for the large objects; it must exist until all calls have run.
    """
    import cloudpickle

    file_of: dict[int, str] = {}
    for number, shared_object in enumerate({id(shared_object): shared_object for shared_object in shared}.values()):
        content = cloudpickle.dumps(shared_object)
        if len(content) >= LARGE_BYTES:
            file = Path(tempfile.mkdtemp(dir=folder)) / str(number)
            file.write_bytes(content)
            file_of[id(shared_object)] = str(file)

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, obj: Any) -> str | None:
            return file_of.get(id(obj))

    packed = []
    for call in calls:
        written = BytesIO()
        Pickler(written).dump(call)
        packed.append(PickledCall[T](written.getvalue()))
    return packed


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: str) -> Any:
        return _read(pid)


@lru_cache(maxsize=1)
def _read(file: str) -> Any:
    """Return a shared object; the last one stays in memory for the next call."""
    return pickle.loads(Path(file).read_bytes())
