"""Function calls in other processes, which are forked from a server that has imported torch.

A process that imports torch by itself needs seconds for it. A server imports torch once, while the calling process does
its own imports, and each training's process is a copy of the server. The server has no threads when it is copied; the
calling process may have some. Objects that several calls have in common are written to a file once, and read once by
each process.

Source: multiprocessing's start method forkserver; on systems other than Linux each process starts by itself (spawn).
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache, partial
from io import BytesIO
from multiprocessing import active_children, forkserver, get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from syncline.interrupts import children_without_signals, end_with_parent, fork_server

T = TypeVar("T")

PRELOADED = ("cloudpickle", "syncline.runs.training.train_and_time", "syncline.comm.devices", "syncline.training")
"""Modules that the server imports."""

IS_FORKED = sys.platform == "linux"

LARGE_BYTES = 100_000
"""Size in bytes from which a shared object is written to a file instead of being sent with each call."""


def start_server() -> None:
    """Start the process from which other processes are forked, if it is not running; call this early.

    It imports torch while the calling process does its own imports.
    """
    if IS_FORKED:
        fork_server(PRELOADED)
        with children_without_signals():
            forkserver.ensure_running()


def call_results(
    calls: Sequence[Callable[[], T]], jobs: int, folder: Path | None = None, shared: Iterable[Any] = ()
) -> Iterator[T]:
    """Call functions in other processes, and yield the results as they finish; the first functions begin first.

    Args:
        calls: functions without arguments; cloudpickle must be able to send them and their results.
        jobs: number of processes at once.
        folder: a temporary folder for large shared objects, which the processes remove if this process is killed.
        shared: objects that several of the functions hold, such as a problem with its data.

    Raises:
        BrokenProcessPool: a process was killed from outside; the others end with it.
        Exception: the exception of a call.
    """
    start_server()
    context = get_context("forkserver" if IS_FORKED else "spawn")
    sent_calls, all_are_sent = pickle_calls(calls, shared, folder), context.Event()
    settings = dict(os.environ), os.getcwd(), max(1, (os.cpu_count() or 1) // jobs), all_are_sent, folder
    other_children = set(active_children())
    pool = ProcessPoolExecutor(max(1, min(jobs, len(sent_calls))), context, _settle, settings)
    try:
        with children_without_signals(), _without_main():
            futures = [pool.submit(_answer, call) for call in sent_calls]
            # The pool only notices new processes when a call is submitted: without this one it would not notice the end
            # of the last process.
            pool.submit(int)
    finally:
        all_are_sent.set()
    return _finished(pool, futures, set(active_children()) - other_children)


_abandoned: list[ProcessPoolExecutor] = []
"""Pools after an error; references keep them alive, because their processes may still work or start."""


def _finished(pool: ProcessPoolExecutor, futures: list[Any], workers: set[BaseProcess]) -> Iterator[Any]:
    """Yield the results of a pool's calls as they finish; after an error do not wait for the processes.

    Args:
        futures: one future per call.
        workers: the processes of the pool.
    """
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
        _abandoned.append(pool)
        raise
    pool.shutdown()  # a process that is still starting needs the pool's locks until here


@contextmanager
def _without_main() -> Iterator[None]:
    """Prevent processes that start in the block from running the main script again; its objects are sent by value."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _settle(
    environment: dict[str, str], folder: str, threads: int, all_are_sent: Event, temporary: Path | None
) -> None:
    """Set up a new process as the calling one: environment, current folder, number of threads.

    The process then waits until all calls are sent, because a pool loses calls if a process ends while they are sent.

    Args:
        environment: environment variables.
        folder: current folder.
        threads: number of torch's threads, unless the environment sets it.
        all_are_sent: event that is set when all calls are sent.
        temporary: folder to remove if the calling process is killed.
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
    """Return the pickle of (result, None, "") of a call, or of (None, exception, traceback).

    The result is pickled here, because the pool's own pickle cannot send classes of the main script.
    """
    import cloudpickle

    try:
        return cloudpickle.dumps((unpickle_call(call)(), None, ""))
    except Exception as error:
        where = traceback.format_exc()
        return cloudpickle.dumps((None, error.with_traceback(None), where))


def pickle_calls(calls: Sequence[Callable[[], Any]], shared: Iterable[Any], folder: Path | None) -> list[bytes]:
    """Return the pickle of each call; large shared objects are written into ``folder``, and pickled as their paths."""
    import cloudpickle

    file_of: dict[int, str] = {}
    for index, shared_object in enumerate({id(shared_object): shared_object for shared_object in shared}.values()):
        content = cloudpickle.dumps(shared_object)
        if len(content) >= LARGE_BYTES:
            file = Path(tempfile.mkdtemp(dir=folder)) / str(index)
            file.write_bytes(content)
            file_of[id(shared_object)] = str(file)

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, obj: Any) -> str | None:
            return file_of.get(id(obj))

    pickled_calls = [BytesIO() for _ in calls]
    for call, target in zip(calls, pickled_calls, strict=True):
        Pickler(target).dump(call)
    return [target.getvalue() for target in pickled_calls]


def unpickle_call(call: bytes) -> Callable[[], Any]:
    """Return the function of a pickle of `pickle_calls`."""
    return _Unpickler(BytesIO(call)).load()


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: str) -> Any:
        return _read(pid)


@lru_cache(maxsize=1)
def _read(file: str) -> Any:
    """Return the shared object in a file; the last one stays in memory for the next call."""
    return pickle.loads(Path(file).read_bytes())
