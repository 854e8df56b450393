"""Processes for trainings: forked, with everything imported, from a server that does nothing else.

Importing torch takes seconds of a core for every process that starts by itself. A server imports it once, while the
calling process does its own imports, and each training's process is a copy of the server. The server has no threads
when it is copied; the calling process, with its libraries, watchers and notebooks, may have threads.

Source: multiprocessing's start method forkserver; on systems other than Linux each process starts by itself (spawn).
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

PRELOADED = ("cloudpickle", "syncline.runs.training.train_and_time", "syncline.comm.devices", "syncline.training")


def start_server() -> None:
    """Start the imports of the server, if it has not started: call this as soon as processes will be needed."""
    if not _is_forked():
        return
    fork_server(PRELOADED)
    with children_without_signals():
        forkserver.ensure_running()


def _is_forked() -> bool:
    return sys.platform == "linux"


def call_results(calls: Sequence[Callable[[], T]], jobs: int, folder: Path | None = None) -> Iterator[T]:
    """Return the results of the calls from this number of processes, as they finish; the first calls begin first.

    Args:
        calls: functions that cloudpickle can send, as well as their results.
        jobs: number of processes at once.
        folder: a temporary folder, which the processes remove if this process is killed.

    Raises:
        BrokenProcessPool: a process was killed from outside; the others end with it.
        Exception: the exception of a call.
    """
    import cloudpickle

    start_server()
    context = get_context("forkserver" if _is_forked() else "spawn")
    sent, all_are_sent = [cloudpickle.dumps(call) for call in calls], context.Event()
    settings = dict(os.environ), os.getcwd(), max(1, (os.cpu_count() or 1) // jobs), all_are_sent, folder
    others = set(active_children())
    pool = ProcessPoolExecutor(max(1, min(jobs, len(sent))), context, _settle, settings)
    try:
        with children_without_signals(), _without_main():
            futures = [pool.submit(_answer, call) for call in sent]
            # Each call wakes the pool, which only then starts a process for it: the end of the last process would stay
            # unnoticed until the next call.
            pool.submit(int)
    finally:
        all_are_sent.set()
    return _finished(pool, futures, set(active_children()) - others)


_left: list[ProcessPoolExecutor] = []
"""Pools that are no longer waited for, whose processes may still work or start."""


def _finished(pool: ProcessPoolExecutor, futures: list[Any], workers: set[BaseProcess]) -> Iterator[Any]:
    import cloudpickle

    try:
        for future in as_completed(futures):
            answer, error, where = cloudpickle.loads(future.result())
            if error is not None:
                raise error from RuntimeError(where)
            yield answer
    except BaseException as error:
        if isinstance(error, BrokenProcessPool):
            for worker in workers:  # the pool sends SIGTERM, which the workers ignore, and waits for them
                worker.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        _left.append(pool)
        raise
    pool.shutdown()  # a process that is still starting needs the pool's locks until here


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep processes that start in the block from running the main script again: its objects are sent by value."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _settle(
    environment: dict[str, str], folder: str, threads: int, all_are_sent: Event, temporary: Path | None
) -> None:
    """Set the environment, folder and number of threads of a new process to those of the calling process.

    The process then waits until all calls are sent, because a pool loses calls if a process ends while they are sent.
    """
    end_with_parent(
        before_exit=partial(shutil.rmtree, temporary, ignore_errors=True) if temporary is not None else None
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    if "OMP_NUM_THREADS" not in environment:
        import torch

        torch.set_num_threads(threads)
    all_are_sent.wait()


def _answer(call: bytes) -> bytes:
    """Return the result or exception of a call as bytes, because this process may lack classes of the main script."""
    import cloudpickle

    try:
        return cloudpickle.dumps((pickle.loads(call)(), None, ""))
    except Exception as error:
        where = traceback.format_exc()
        return cloudpickle.dumps((None, error.with_traceback(None), where))
