"""Memory that a step, or a simulation, gives back is kept for the next one, which asks for as much again."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Names of glibc's options, from its malloc.h."""

LARGEST_BYTES = 2**25
"""Of a block from the heap: 32 MiB, the most that glibc takes. Larger ones are the system's again once free."""

KEPT_BYTES = 2**29
"""How much free memory may stay at the end of the heap."""

OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_freed_memory() -> bool:
    """Ask the C library, once, to keep up to half a GiB of freed memory; whether it does.

    By itself glibc gives blocks of more than some hundred KB back to the system when they are freed, and every page of
    the next one is made anew: on a virtual machine 0.8 ms for the gradients of four workers with 134k parameters, as
    long as it takes to compute one of them, and in a fresh process an eighth of what the events of 2,000 messages take.
    Who has set glibc's own variables is left alone, and other C libraries are.
    """
    if any(os.environ.get(name) for name in OWN_SETTINGS):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # no glibc, or no C library to ask
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(TRIM_THRESHOLD, KEPT_BYTES))


@contextmanager
def no_collection() -> Iterator[None]:
    """No search for circles of garbage, which takes half the time where there are many small objects and no circles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
