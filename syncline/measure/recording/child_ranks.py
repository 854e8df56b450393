"""Processes that a script starts as ranks of its own: they end the trace with an error instead of waiting for ever.

A trace runs the script once for each rank. A process that such a rank starts is not recorded, and would wait for ranks
that do not exist. Processes that join no group, such as the workers of a ``DataLoader``, run unchanged.
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
    """The rank of a process, or of its ancestor for a process that a rank has started.

    Attributes:
        folder: the folder in which ranks write why they failed.
        rank: the number of the rank.
        pid: the process id of the rank.
    """

    folder: Path
    rank: int
    pid: int


class Identity:
    """The rank of this process, or of the rank that started it; None outside a trace."""

    rank: TracedRank | None = None


def write_failure(folder: Path, rank: int, words: str = "", reason: str = "", line: str = "") -> None:
    """Write the error of a failed rank to a file, with the time.

    Args:
        folder: the folder in which ranks write why they failed.
        words: text that is shown unchanged, such as a traceback.
        reason: the error in one sentence; empty if ``words`` contain it.
        line: the line of the user's script that failed.
    """
    note = {"at": time.monotonic(), "words": words, "reason": reason, "line": line}
    (folder / f"failed-{rank}").write_text(json.dumps(note))


def end_if_child() -> None:
    """End this process and its rank if this process is a child of a rank and wants to join a group."""
    rank = Identity.rank
    if rank is None or rank.pid == os.getpid():
        return
    from syncline.measure.recording.recorder import user_line

    reason = f"{user_line()}: a process that the script started joins a group; {ADVICE}"
    with suppress(OSError):  # another child has ended the trace already
        write_failure(rank.folder, rank.rank, reason=reason)
        os.kill(rank.pid, signal.SIGKILL)
    os._exit(1)


class ChildTarget:
    """The function of a process that a rank starts by ``multiprocessing``.

    Args:
        target: the function that the script passed as the target.
    """

    def __init__(self, target: Callable[..., Any], rank: TracedRank) -> None:
        self.target, self.rank = target, rank

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function, and end the trace if the function joins a group."""
        Identity.rank = self.rank
        if "torch" in sys.modules:
            from torch.distributed import distributed_c10d as groups

            for name in ("rendezvous", "_new_process_group_helper"):
                setattr(groups, name, ending_child_first(getattr(groups, name)))
        return self.target(*args, **kwargs)


def ending_child_first(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that first ends a child of a rank and otherwise calls the given function."""

    def called(*args: Any, **kwargs: Any) -> Any:
        end_if_child()
        return call(*args, **kwargs)

    return called


def install_child_ranks() -> None:
    """Pass each process that this rank starts the rank's identity, because a new interpreter has no hooks."""
    start = multiprocessing.process.BaseProcess.start

    def started(process: Any) -> None:
        if Identity.rank is not None and process._target is not None:
            process._target = ChildTarget(process._target, Identity.rank)
        start(process)

    multiprocessing.process.BaseProcess.start = started  # type: ignore[method-assign,assignment]
