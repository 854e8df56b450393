"""Compiled functions, which are imported when the work is worth the import time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import ModuleType
from typing import Any

SECONDS = 10
"""Processor seconds that compiling the event engine, or a module of functions, takes, about."""


def announce_compiling(name: str) -> None:
    """Print a line on standard error before something is compiled that this machine will keep."""
    print(f"compiling {name}, once on this machine: about {SECONDS} s", file=sys.stderr, flush=True)


class Kernels:
    """A module of compiled functions that replace slower ones with bitwise equal results.

    Loading the module takes half a second, and several seconds the first time on a machine. It is therefore loaded once
    the slower functions have spent, or would now spend, about this time, so that the total time is at most twice the
    best one.

    Args:
        name: name of the module.
        break_even_units: units of work that take the slower functions half a second.
    """

    def __init__(self, name: str, break_even_units: int) -> None:
        self._name, self.worth = name, break_even_units
        self._work = 0
        self._loaded: ModuleType | None = None

    def for_work(self, units: int) -> ModuleType | None:
        """Return the module for ``units`` more units of work; None if the slower functions should do them."""
        self._work += units
        return self.load() if self._loaded is not None or self._work >= self.worth else None

    def load(self) -> ModuleType:
        """Load the module unless it is loaded, and return it."""
        if self._loaded is None:
            self._loaded = import_module(self._name)
            if not _is_kept(self._loaded):
                announce_compiling(self._name)
        return self._loaded


def _is_kept(module: ModuleType) -> bool:
    """Return whether Numba's cache has every function of a module, as its source is now."""
    source = Path(str(module.__file__))
    changed = source.stat().st_mtime
    for function in vars(module).values():
        if hasattr(function, "stats") and hasattr(function, "py_func"):
            folder, name = function.stats.cache_path, f"{source.stem}.{function.py_func.__qualname__}-*.nbi"
            if not any(index.stat().st_mtime >= changed for index in Path(folder or "").glob(name)):
                return False
    return True


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled by numba.

    It is compiled once per machine, or once per process if numba cannot write its cache. It runs without Python's
    global lock, so that another thread can receive signals.
    """
    from numba import njit

    function = unwrap(function)  # numba cannot compile a wrapper that checks calls
    try:
        compiled_function: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        compiled_function = njit(nogil=True)(function)
    return compiled_function
