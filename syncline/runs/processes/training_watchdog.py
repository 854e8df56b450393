"""Trainings that a thread of their own process watches: they end soon after a stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from syncline.interrupts import confirm, raise_in_main_thread

if TYPE_CHECKING:
    from syncline.runs.processes.shared_progress import SharedProgress

T = TypeVar("T")

POLL_S = 0.1

PATIENCE_S = 1.0
"""Seconds that a training may take to its next report after a stop; in a longer step it is interrupted."""


def overseen(call: Callable[[], T], progress: SharedProgress) -> T | None:
    """Return the result of a training; None if it was stopped before it had any."""
    if progress.stopped:
        return None
    if threading.current_thread() is not threading.main_thread():  # only the main thread can be interrupted
        return call()
    is_over = threading.Event()
    threading.Thread(target=_interrupt, args=(progress, is_over), daemon=True).start()
    result = None
    try:
        result = call()
    except KeyboardInterrupt:  # during the set-up; a training that has started returns its results
        if not progress.stopped:
            raise
    finally:
        is_over.set()
    confirm()
    return result


def _interrupt(progress: SharedProgress, is_over: threading.Event) -> None:
    """Interrupt a training that does not report; repeatedly, because a callback from C can lose an exception."""
    while not progress.stopped:
        if is_over.wait(POLL_S):
            return
    patience_s = PATIENCE_S
    while not is_over.wait(patience_s):
        with progress.hearing:
            if not (progress.heard or is_over.is_set()):
                raise_in_main_thread()
        patience_s = 2 * PATIENCE_S  # an interrupted training collects its results
