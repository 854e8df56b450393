"""Trainings under watch from a thread of their own process: they end soon after a stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from syncline.interrupts import confirm, raise_in_main_thread

if TYPE_CHECKING:
    from syncline.experiments.shared_progress import SharedProgress

T = TypeVar("T")

POLL_S = 0.1

PATIENCE_S = 1.0
"""How long a training that was asked to stop may take to its next report; in a longer step it is interrupted."""


def overseen(call: Callable[[], T], progress: SharedProgress) -> T | None:
    """Return what a training returns; None if the stop came before it had anything."""
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
    confirm()
    return result


def _interrupt(progress: SharedProgress, over: threading.Event) -> None:
    """Interrupt a training that does not report; again, because an exception is lost in a callback from C."""
    while not progress.stopped:
        if over.wait(POLL_S):
            return
    patience_s = PATIENCE_S
    while not over.wait(patience_s):
        with progress.hearing:
            if not (progress.heard or over.is_set()):
                raise_in_main_thread()
        patience_s = 2 * PATIENCE_S  # a training that was interrupted puts together what it has
