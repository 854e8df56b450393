"""Processes that begin as copies of this one, and live as if they had begun by themselves."""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import signal
import sys

from syncline.interrupts import end_with_parent

HARD = 2
"""What OpenMP 5 calls ``omp_pause_hard``: its threads end, and are made anew when they are needed."""


def forked() -> int:
    """``os.fork``, without OpenMP's threads: a copy would know of them and wait for them, and does not have them.

    The copy ends with this process.

    Returns:
        The process, and 0 in it.
    """
    end = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
    if end is not None:
        end(HARD)
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        end_with_parent(parent)
    return pid


def begin_as_a_process() -> None:
    """In a copy: leave Ctrl-C to the parent, end by SIGTERM, and write line by line to standard error."""
    atexit._clear()  # the parent's; a script's own are run by who runs it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(1, "w", 1, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)


def begin_alike(threads: int, seed: int) -> None:
    """In a copy: its own threads, and generators in a state that does not depend on what the parent has drawn.

    Args:
        threads: of torch.
        seed: of Python's generator and of NumPy's, which a process of its own draws by chance; torch's is as in every
            process that has drawn nothing.
    """
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the script's own state
    draw_anew()


def draw_anew() -> None:
    """Give torch's generator the state that it has in a process that has drawn nothing and seeded nothing."""
    import torch

    torch.default_generator.set_state(torch.Generator().get_state())
