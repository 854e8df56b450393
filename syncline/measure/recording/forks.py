"""Forked processes that behave as if they had been started from scratch."""

from __future__ import annotations

import atexit
import ctypes
import gc
import multiprocessing.process
import os
import random
import signal
import sys

from syncline.interrupts import end_with_parent

HARD = 2
"""The constant ``omp_pause_hard`` of OpenMP 5: its threads end, and are created again when they are needed."""


def fork_process() -> int:
    """Fork this process after ending OpenMP's threads, which a child would wait for but does not have.

    The child ends with this process. Objects and processes of this process stay this process's: the child's garbage
    collector skips the objects, because a finalizer may wait for a thread that the child does not have (a client of
    dask, an executor); and when the child ends, it neither ends nor joins the processes, such as those of a pool.

    Returns:
        The process id of the child; 0 in the child.
    """
    end = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
    if end is not None:
        end(HARD)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        gc.freeze()
        multiprocessing.process._children.clear()  # type: ignore[attr-defined]
        end_with_parent(parent)
    return pid


def set_up_child() -> None:
    """Set up signals and output in a forked child.

    The child ignores Ctrl-C, ends on SIGTERM, and writes line by line to standard error.
    """
    atexit._clear()  # drops the parent's functions; the caller runs those of the script
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(1, "w", 1, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)


def reset_child_state(threads: int, seed: int) -> None:
    """Set the threads of a forked child, and reset its random generators, so that they do not depend on the parent.

    Args:
        threads: number of threads of torch.
        seed: the seed of Python's and NumPy's generators, which a new process would seed randomly; torch's generator
            gets the state that it has in every new process.
    """
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the script's global state
    reset_torch_generator()


def reset_torch_generator() -> None:
    """Reset torch's generator to the state that it has in a new process."""
    import torch

    torch.default_generator.set_state(torch.Generator().get_state())
