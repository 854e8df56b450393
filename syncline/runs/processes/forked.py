"""Function calls in other processes, which are forked from a server that has imported torch.

To import torch takes a process seconds. A server imports it once, while the calling process does its own imports, and
each training's process is a copy of the server. The server, unlike the calling process, has no threads when it is
copied. Objects that several calls share are written to a file once, and read once by each process.

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
"""Smallest size in bytes of a shared object that goes into a file instead of into each call."""


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
        folder: a temporary folder for large shared objects, which the processes remove if this process is killed.
        shared: objects that several functions use, such as a problem with its data.

    Raises:
        BrokenProcessPool: a process was killed from outside; the others end with it.
        Exception: the exception of a call.
    """
    start_server()
    context = get_context("forkserver" if IS_FORKED else "spawn")
    pickled_calls = pickle_calls(calls, shared, folder)
    all_are_sent = context.Event()  # `_set_up_process` waits for it
    threads = max(1, (os.cpu_count() or 1) // jobs)
    children_before = set(active_children())
    pool = ProcessPoolExecutor(
        max(1, min(jobs, len(pickled_calls))), context,
        initializer=_set_up_process, initargs=(dict(os.environ), os.getcwd(), threads, all_are_sent, folder),
    )  # fmt: skip
    try:
        with children_without_signals(), _without_main():
            futures = [pool.submit(_pickled_result, call) for call in pickled_calls]
            # A pool watches a new process from the next submission on; this idle call makes it watch the last process.
            pool.submit(int)
    finally:
        all_are_sent.set()
    return _results(pool, futures, processes=set(active_children()) - children_before)


_abandoned_pools: list[ProcessPoolExecutor] = []
"""Pools after an error; references keep them alive, because their processes may still work or start."""


def _results(pool: ProcessPoolExecutor, futures: list[Any], processes: set[BaseProcess]) -> Iterator[Any]:
    """Yield the results of a pool's calls as they finish; after an error do not wait for the processes."""
    import cloudpickle

    try:
        for future in as_completed(futures):
            result, error, traceback_text = cloudpickle.loads(future.result())
            if error is not None:
                raise error from RuntimeError(traceback_text)
            yield result
    except BaseException as error:
        if isinstance(error, BrokenProcessPool):
            for process in processes:  # they ignore the SIGTERM of the pool, which waits for them
                process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
        _abandoned_pools.append(pool)
        raise
    pool.shutdown()  # only now, because processes that start need the pool's locks


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep processes that start in the block from running the main script; its objects are pickled by value."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _set_up_process(
    environment: dict[str, str], current_folder: str, threads: int, all_are_sent: Event, temporary_folder: Path | None
) -> None:
    """Give a new process the environment, the current folder and the number of threads of the calling process.

    The process then waits until all calls are sent, because a pool loses calls if a process ends while they are sent.

    Args:
        current_folder: the current folder of the calling process.
        threads: number of torch's threads, unless the environment sets it.
        temporary_folder: folder to remove if the calling process is killed.
    """
    if temporary_folder is None:
        end_with_parent()
    else:
        end_with_parent(before_exit=partial(shutil.rmtree, temporary_folder, ignore_errors=True))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(current_folder)
    if "OMP_NUM_THREADS" not in environment:  # torch reads this variable by itself
        import torch

        torch.set_num_threads(threads)
    all_are_sent.wait()


def _pickled_result(pickled_call: bytes) -> bytes:
    """Return the pickle of (result, None, "") of a call; after an exception, of (None, exception, traceback).

    The result is pickled here, because the pool's own pickle cannot send classes of the main script.
    """
    import cloudpickle

    try:
        return cloudpickle.dumps((unpickle_call(pickled_call)(), None, ""))
    except Exception as error:
        traceback_text = traceback.format_exc()
        return cloudpickle.dumps((None, error.with_traceback(None), traceback_text))


def pickle_calls(calls: Sequence[Callable[[], Any]], shared: Iterable[Any], folder: Path | None) -> list[bytes]:
    """Return the pickle of each call; the path of a file replaces each shared object of at least `LARGE_BYTES`.

    The files are in new folders inside ``folder``, or inside the system's temporary folder if that is None.
    """
    import cloudpickle

    paths: dict[int, str] = {}  # by id of the object
    for shared_object in shared:
        if id(shared_object) in paths:
            continue
        content = cloudpickle.dumps(shared_object)
        if len(content) >= LARGE_BYTES:
            path = Path(tempfile.mkdtemp(dir=folder)) / "shared"
            path.write_bytes(content)
            paths[id(shared_object)] = str(path)

    class Pickler(cloudpickle.Pickler):
        def persistent_id(self, obj: Any) -> str | None:
            """Return the path that is pickled in place of an object; None if the object itself is pickled."""
            return paths.get(id(obj))

    pickled_calls = []
    for call in calls:
        buffer = BytesIO()
        Pickler(buffer).dump(call)
        pickled_calls.append(buffer.getvalue())
    return pickled_calls


def unpickle_call(pickled_call: bytes) -> Callable[[], Any]:
    """Return the function of a pickle that `pickle_calls` made."""
    return _Unpickler(BytesIO(pickled_call)).load()


class _Unpickler(pickle.Unpickler):
    """An unpickler of calls by `pickle_calls`, which stores large shared objects in files."""

    def persistent_load(self, persistent_id: str) -> Any:
        """Return the shared object whose path is pickled in its place."""
        return _load_shared_object(path=persistent_id)


@lru_cache(maxsize=1)  # the last object stays in memory for the next call
def _load_shared_object(path: str) -> Any:
    """Return the shared object in a file."""
    return pickle.loads(Path(path).read_bytes())
