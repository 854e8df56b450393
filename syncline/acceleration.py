"""Settings that save time and change no result: compiled functions, memory that is kept, paused garbage collection.

Compiled functions are imported when the work is worth the time of the import.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from inspect import unwrap
from types import ModuleType
from typing import Any

COMPILE_S = 10
"""Approximate processor seconds in which the event engine, or a module of functions, is compiled."""


def announce_compiling(name: str) -> None:
    """Print on standard error that code is compiled now, and that this machine keeps the result."""
    print(f"compiling {name}, once on this machine: about {COMPILE_S} s", file=sys.stderr, flush=True)


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
        self._name, self._break_even_units = name, break_even_units
        self._units_so_far = 0
        self._module: ModuleType | None = None

    def for_work(self, units: int) -> ModuleType | None:
        """Return the module for ``units`` more units of work; None if the slower functions should do them."""
        self._units_so_far += units
        if self._module is None and self._units_so_far < self._break_even_units:
            return None
        return self.load()

    def load(self) -> ModuleType:
        """Load the module unless it is loaded, and return it."""
        if self._module is None:
            announce_first_compilation(self._name)
            self._module = import_module(self._name)
        return self._module


def announce_first_compilation(module_name: str) -> None:
    """Print a line when Numba first compiles a function of a module in this process, and does not find it in its cache.

    The line does not come at the module's import, because a user of one method calls only some of its functions.
    """
    from numba.core import event

    class Announcer(event.Listener):
        """A listener to Numba's compilations."""

        has_announced = False

        def on_start(self, event: Any) -> None:
            """Announce the compilation, unless an earlier one was announced."""
            if not self.has_announced and event.data["dispatcher"].py_func.__module__ == module_name:
                self.has_announced = True
                announce_compiling(module_name)

        def on_end(self, event: Any) -> None:
            """Do nothing when a compilation has ended."""

    event.register("numba:compile", Announcer())


def compiled(function: Callable[..., Any], *, fused_multiply_add: bool = False) -> Callable[..., Any]:
    """Return a function compiled by numba.

    It is compiled once per machine, or once per process if numba cannot write its cache. It runs without Python's
    global lock, so that another thread can receive signals.

    Args:
        function: the function to compile.
        fused_multiply_add: whether ``a + b * c`` is rounded once, as in matrix products, instead of twice.
    """
    from numba import njit

    function = unwrap(function)  # numba cannot compile a wrapper that checks calls
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"} if fused_multiply_add else False}
    try:
        compiled_function: Callable[..., Any] = njit(cache=True, **options)(function)
    except RuntimeError:
        compiled_function = njit(**options)(function)
    return compiled_function


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Numbers of glibc's ``mallopt`` options, from its malloc.h."""

LARGEST_BYTES = (2**28, 2**25)
"""Largest block on the heap: 256 MiB, or 32 MiB, the limit of glibc before 2.35. Larger blocks return to the system
when they are freed."""

KEPT_BYTES = 2**29
"""Largest amount of free memory at the end of the heap that stays with the process, in bytes."""

OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables by which users set these options of glibc."""


@cache
def keep_freed_memory() -> bool:
    """Make glibc keep up to half a GiB of freed memory, and return whether it does. Only the first call has an effect.

    By default glibc returns blocks of more than some hundred KB to the system when they are freed, and the system has
    to provide every page of the next block again. On a virtual machine this takes 0.8 ms for the gradients of four
    workers with 134k parameters, as long as computing one of these gradients; in a new process it takes an eighth of
    the time of the events of 2,000 messages. If the user has set glibc's own variables, or the C library is not glibc,
    this function changes nothing.
    """
    if any(os.environ.get(name) for name in OWN_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # the C library is not glibc, or cannot be loaded
        return False
    for largest_block_bytes in LARGEST_BYTES:
        if mallopt(MMAP_THRESHOLD, largest_block_bytes):  # 0: this glibc takes no such value
            return bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES))
    return False


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector in the block.

    Its search for reference cycles takes half of the time if there are many small objects and no cycles.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
