"""Processes that a script starts to be its ranks: they end the trace with one sentence, in place of waiting for ever.

A trace runs the script once for each rank. A process that such a rank starts is not recorded, and would wait for ranks
that do not exist. Processes that join no group (workers of a ``DataLoader``, say) run as they are.
"""

from __future__ import annotations

import json
import multiprocessing.process
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ADVICE = (
    "a trace runs the script once for each rank, with RANK and WORLD_SIZE in the environment as under torchrun. Call"
    " the training directly and give the number of ranks as --workers, or start it by torch.multiprocessing.spawn"
)


class TracedRank(NamedTuple):
    """The rank that a process is, or whose child it is.

    Attributes:
        folder: where ranks say why they failed.
        rank: its number.
        pid: its process.
    """

    folder: Path
    rank: int
    pid: int


class Identity:
    """Of this process: the rank that it is, or whose child it is; None outside a trace."""

    rank: TracedRank | None = None


def leave_words(folder: Path, rank: int, words: str = "", reason: str = "", line: str = "") -> None:
    """Leave a rank's last words, with their time.

    Args:
        folder: where ranks say why they failed.
        rank: its number.
        words: what is shown as it is, such as a traceback.
        reason: the whole error, in one sentence; empty if the words say it.
        line: the user's line that failed.
    """
    told = {"at": time.monotonic(), "words": words, "reason": reason, "line": line}
    (folder / f"failed-{rank}").write_text(json.dumps(told))


def end_if_child() -> None:
    """End the rank whose child this process is, and this process: the child wants to join a group."""
    rank = Identity.rank
    if rank is None or rank.pid == os.getpid():
        return
    from syncline.measure.recording.recorder import user_line

    reason = f"{user_line()}: a process that the script started joins a group; {ADVICE}"
    with suppress(OSError):  # another child was first, and the trace has ended
        leave_words(rank.folder, rank.rank, reason=reason)
        os.kill(rank.pid, signal.SIGKILL)
    os._exit(1)


class ChildTarget:
    """What a process runs that a rank starts by ``multiprocessing``.

    Args:
        target: the function that the script asked for.
        rank: whose child the process is.
    """

    def __init__(self, target: Callable[..., Any], rank: TracedRank) -> None:
        self.target, self.rank = target, rank

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, and end the trace if it joins a group."""
        Identity.rank = self.rank
        if "torch" in sys.modules:
            from torch.distributed import distributed_c10d as groups

            for name in ("rendezvous", "_new_process_group_helper"):
                setattr(groups, name, ending_first(getattr(groups, name)))
        return self.target(*args, **kwargs)


def ending_first(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes groups, and ends a child of a rank before."""

    def called(*args: Any, **kwargs: Any) -> Any:
        end_if_child()
        return call(*args, **kwargs)

    return called


def install_child_ranks() -> None:
    """Hand each process that this rank starts its rank: a new interpreter has no hooks."""
    start = multiprocessing.process.BaseProcess.start

    def started(process: Any) -> None:
        if Identity.rank is not None and process._target is not None:
            process._target = ChildTarget(process._target, Identity.rank)
        start(process)

    multiprocessing.process.BaseProcess.start = started  # type: ignore[method-assign,assignment]
