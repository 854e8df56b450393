"""What a function returned, kept for when it is asked the same again, up to so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")


class Remembered(Generic[P, T]):
    """A function that remembers its results by the values of its arguments; the one unused for longest goes first.

    Args:
        function: of hashable arguments alone; what it returns must not be changed afterwards.
        most_bytes: of all results together. A larger one is not kept.
        nbytes_of: of one result.
    """

    def __init__(self, function: Callable[P, T], most_bytes: float, nbytes_of: Callable[[T], float]) -> None:
        self._function, self._most_bytes, self._nbytes_of = function, most_bytes, nbytes_of
        self._results: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()
        self._lock = Lock()
        self.nbytes = 0.0
        self.__doc__, self.__wrapped__ = function.__doc__, function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result for these arguments, made now or before."""
        key = (args, *sorted(kwargs.items()))
        with self._lock:
            found = self._results.get(key)
            if found is not None:
                self._results.move_to_end(key)
                return found[0]
        made = self._function(*args, **kwargs)
        nbytes = self._nbytes_of(made)
        with self._lock:
            if nbytes <= self._most_bytes and key not in self._results:
                self._results[key] = made, nbytes
                self.nbytes += nbytes
                while self.nbytes > self._most_bytes:
                    self.nbytes -= self._results.popitem(last=False)[1][1]
        return made

    def cache_clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._results.clear()
            self.nbytes = 0.0


def kept(most_bytes: float, nbytes_of: Callable[[Any], float]) -> Callable[[Callable[P, T]], Remembered[P, T]]:
    """A function as `Remembered`."""
    return lambda function: Remembered(function, most_bytes, nbytes_of)


def by_value(of: object) -> bool:
    """Whether it is hashed by what it is made of, and not by its identity."""
    try:
        return type(of).__hash__ is not object.__hash__ and hash(of) is not None
    except TypeError:
        return False


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values, of which nobody can change any: the array itself if that is so already, else a copy."""
    if array.flags.writeable:
        array = array.copy()
        array.setflags(write=False)
    return array
