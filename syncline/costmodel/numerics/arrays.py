"""Types of numbers and arrays in the cost model, checks of their range, and a bounded cache of function results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from syncline.errors import SpecError

FloatOrArray: TypeAlias = float | NDArray[np.floating[Any]]
"""A number, or an array of numbers, which broadcasts by NumPy's rules."""

IntOrArray: TypeAlias = int | NDArray[np.integer[Any]]
"""A whole number, or an array of whole numbers."""

Indices: TypeAlias = NDArray[np.int64]
"""An array of indices or of whole numbers."""


def require(holds: bool | NDArray[np.bool_], path: str, value: FloatOrArray | IntOrArray, expected: str) -> None:
    """Raise ``SpecError`` for a value, or the first element of an array, for which a condition is false."""
    all_hold = holds if isinstance(holds, bool | np.bool_) else np.all(holds)  # np.all is slow for a single number
    if not all_hold:
        first_refused, *_ = np.extract(np.logical_not(holds), value).tolist()
        raise SpecError(path, first_refused, expected)


def require_call(workers: IntOrArray, nbytes: FloatOrArray) -> None:
    """Raise ``SpecError`` for a collective of fewer than one worker or of a negative number of bytes."""
    require(np.greater_equal(workers, 1), "workers", workers, "at least 1")
    require(np.greater_equal(nbytes, 0), "nbytes", nbytes, "at least 0 bytes")


def require_finite(path: str, value: FloatOrArray, expected: str, *, positive: bool = False) -> None:
    """Raise ``SpecError`` for a number that is infinite, NaN, negative or, if ``positive``, 0."""
    in_range = np.greater(value, 0) if positive else np.greater_equal(value, 0)
    require(np.isfinite(value) & in_range, path, value, expected)


P = ParamSpec("P")
T = TypeVar("T")


class BoundedCache(Generic[P, T]):
    """A function with a cache of its results by argument values; the least recently used result is evicted first.

    Args:
        function: function of hashable arguments; callers must not change its results.
        max_bytes: limit for all results together, in bytes; a larger result is not cached.
        bytes_of: function from a result to its bytes.
    """

    def __init__(self, function: Callable[P, T], max_bytes: float, bytes_of: Callable[[T], float]) -> None:
        """Wrap a function whose results are kept, up to ``max_bytes``; the cache is empty."""
        self._function, self._max_bytes, self._nbytes_of = function, max_bytes, bytes_of
        self._results: OrderedDict[Hashable, tuple[T, float]] = OrderedDict()
        self._lock = Lock()
        self.nbytes = 0.0
        self.__doc__, self.__wrapped__ = function.__doc__, function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the function's result for these arguments, from the cache if it is there."""
        key = (args, *sorted(kwargs.items()))
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key][0]
        result = self._function(*args, **kwargs)
        nbytes = self._nbytes_of(result)
        with self._lock:
            if nbytes <= self._max_bytes and key not in self._results:
                self._results[key] = result, nbytes
                self.nbytes += nbytes
                while self.nbytes > self._max_bytes:
                    _, (_, evicted_bytes) = self._results.popitem(last=False)
                    self.nbytes -= evicted_bytes
        return result

    def cache_clear(self) -> None:
        """Remove all results from the cache."""
        with self._lock:
            self._results.clear()
            self.nbytes = 0.0


def bounded_cache(max_bytes: float, bytes_of: Callable[[Any], float]) -> Callable[[Callable[P, T]], BoundedCache[P, T]]:
    """Return a decorator that makes a function a `BoundedCache` with this limit in bytes."""
    return lambda function: BoundedCache(function, max_bytes, bytes_of)


def is_hashed_by_value(value: object) -> bool:
    """Return whether an object is hashed by its value instead of its identity."""
    try:
        hash(value)
    except TypeError:  # for instance a tuple that contains a list
        return False
    return type(value).__hash__ is not object.__hash__


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a read-only array with the same values: the array itself if it is read-only, else a copy."""
    if array.flags.writeable:
        array = array.copy()
        array.setflags(write=False)
    return array
