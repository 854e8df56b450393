"""Settings of memory: glibc keeps freed memory for the next step, and garbage collection can be paused."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Numbers of glibc's ``mallopt`` options, from its malloc.h."""

LARGEST_BYTES = 2**25
"""Largest block on the heap: 32 MiB, glibc's limit. Larger blocks return to the system when they are freed."""

KEPT_BYTES = 2**29
"""Largest amount of free memory at the end of the heap that stays with the process, in bytes."""

OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Make glibc keep up to half a GiB of freed memory, and return whether it does; later calls do nothing.

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
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES))


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
