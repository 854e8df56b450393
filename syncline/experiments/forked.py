"""Processes for trainings: forked, with everything imported, from one that does nothing else.

To import torch takes seconds of a core, which every process would pay that starts on its own. A server imports it once,
beside the imports of the process that asks, and each training's process is a copy of the server. When it is copied it
has no threads, which nobody knows of the asking process with its libraries, watchers and notebooks.

Source: multiprocessing's start method forkserver; elsewhere than on Linux processes start on their own (spawn).
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, forkserver, get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from syncline.interrupts import children_without_signals, end_with_parent, fork_server

T = TypeVar("T")

PRELOADED = ("cloudpickle", "syncline.experiments.trained", "syncline.backend.devices", "syncline.training")


def start_server() -> None:
    """Let the server begin to import, if it has not: call it as soon as it is known that there will be processes."""
    if not _is_forked():
        return
    fork_server(PRELOADED)
    with children_without_signals():
        forkserver.ensure_running()


def _is_forked() -> bool:
    return sys.platform == "linux"


def answers(calls: Sequence[Callable[[], T]], jobs: int, folder: Path | None = None) -> Iterator[T]:
    """What the calls return in so many processes, as they finish; the first calls begin first.

    Args:
        calls: that cloudpickle can send, as what they return.
        jobs: how many at once.
        folder: a temporary one, which the processes remove if this one is killed.

    Raises:
        BrokenProcessPool: a process was ended from outside; the others end with it.
        Exception: that a call has raised.
    """
    import cloudpickle

    start_server()
    context = get_context("forkserver" if _is_forked() else "spawn")
    sent, all_are_sent = [cloudpickle.dumps(call) for call in calls], context.Event()
    found = dict(os.environ), os.getcwd(), max(1, (os.cpu_count() or 1) // jobs), all_are_sent, folder
    others = set(active_children())
    pool = ProcessPoolExecutor(max(1, min(jobs, len(sent))), context, _settle, found)
    try:
        with children_without_signals(), _without_main():
            begun = [pool.submit(_answer, call) for call in sent]
            # A pool is woken by each call, and only then starts a process for it: the end of the last one would go
            # unnoticed until the next call.
            pool.submit(int)
    finally:
        all_are_sent.set()
    return _finished(pool, begun, set(active_children()) - others)


_left: list[ProcessPoolExecutor] = []
"""Pools that nobody waits for any more, whose processes may still be at work or start."""


def _finished(pool: ProcessPoolExecutor, begun: list[Any], workers: set[BaseProcess]) -> Iterator[Any]:
    import cloudpickle

    try:
        for future in as_completed(begun):
            answer, error, where = cloudpickle.loads(future.result())
            if error is not None:
                raise error from RuntimeError(where)
            yield answer
    except BaseException as error:
        if isinstance(error, BrokenProcessPool):
            for worker in workers:  # the pool sends SIGTERM, which they do not receive, and waits for them
                worker.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        _left.append(pool)
        raise
    pool.shutdown()  # with this a process that has only begun to start still finds its locks


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that start in the block do not run the main script again: what is of it is sent by value."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _settle(
    environment: dict[str, str], folder: str, threads: int, all_are_sent: Event, temporary: Path | None
) -> None:
    """What a process that starts by itself would find now: environment, folder, its part of the cores.

    A pool in which a process ends while calls are still sent forgets these.
    """
    end_with_parent(leave=partial(shutil.rmtree, temporary, ignore_errors=True) if temporary is not None else None)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if "OMP_NUM_THREADS" not in environment:
        import torch

        torch.set_num_threads(threads)
    all_are_sent.wait()


def _answer(call: bytes) -> bytes:
    """What a call returns or raises, as bytes: also of a class of the main script, which this process does not have."""
    import cloudpickle

    try:
        return cloudpickle.dumps((pickle.loads(call)(), None, ""))
    except Exception as error:
        where = traceback.format_exc()
        return cloudpickle.dumps((None, error.with_traceback(None), where))
