"""Trainings under watch from a thread of their own process: they end with their parent, and soon after a stop."""

from __future__ import annotations

import _thread
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from syncline.experiments.shared_progress import SharedProgress

T = TypeVar("T")

POLL_S = 0.1

PATIENCE_S = 1.0
"""How long a training that was asked to stop may take to its next report; in a longer step it is interrupted."""


def overseen(call: Callable[[], T], progress: SharedProgress) -> T | None:
    """What a training returns; None if the stop came before it had anything.

    In another process than the owner's, this one ends as soon as that one has: nobody could take what it returns.
    """
    if os.getpid() != progress.owner:
        _end_with_parent(progress)
    if progress.stopped:
        return None
    if threading.current_thread() is not threading.main_thread():  # only that one can be interrupted
        return call()
    over = threading.Event()
    threading.Thread(target=_interrupt, args=(progress, over), daemon=True).start()
    result = None
    try:
        result = call()
    except KeyboardInterrupt:  # while it was being built; a training that has begun returns what it has
        if not progress.stopped:
            raise
    finally:
        over.set()
    return result


def _interrupt(progress: SharedProgress, over: threading.Event) -> None:
    while not over.wait(POLL_S):
        if progress.stopped:
            over.wait(PATIENCE_S)
            with progress.hearing:
                if not (progress.heard or over.is_set()):
                    _thread.interrupt_main()
            return


_watching = threading.Event()


def _end_with_parent(progress: SharedProgress) -> None:
    """Watch the parent from now on, if that is not done yet: a process that waits for its next task is to end, too."""
    if not _watching.is_set():
        _watching.set()
        threading.Thread(target=_follow, args=(os.getppid(), progress), daemon=True).start()


def _follow(starter: int, progress: SharedProgress) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:  # who asked for this process, which a server may have started
        parent.join()
    else:
        while os.getppid() == starter:
            time.sleep(POLL_S)
    shutil.rmtree(progress.path.parent, ignore_errors=True)  # which the parent would have removed
    os._exit(1)
