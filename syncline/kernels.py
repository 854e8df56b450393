"""Compiled functions, imported when that has become worth it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import unwrap
from types import ModuleType
from typing import Any


class Kernels:
    """A module of compiled functions beside slower ones that return the same to the last bit.

    To load it takes half a second, and seconds the first time on a machine. So it is loaded when the slower ones have
    had, or would now have, as much to do: nothing ever takes more than twice of what it had to.

    Args:
        name: of the module.
        worth: units of work that the slower functions take half a second for.
    """

    def __init__(self, name: str, worth: int) -> None:
        self._name, self.worth = name, worth
        self._work = 0
        self._loaded: ModuleType | None = None

    def for_work(self, units: int) -> ModuleType | None:
        """The module for so much more work; None if the slower functions are to do it."""
        self._work += units
        return self.load() if self._loaded is not None or self._work >= self.worth else None

    def load(self) -> ModuleType:
        """The module, from now on ready."""
        if self._loaded is None:
            self._loaded = import_module(self._name)
        return self._loaded


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled by numba: once per machine, or where nothing can be written once per process.

    It runs without Python's lock, so that other threads hear signals meanwhile.
    """
    from numba import njit

    function = unwrap(function)  # of what checks its calls nothing can be compiled
    try:
        made: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        made = njit(nogil=True)(function)
    return made
