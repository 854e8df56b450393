"""SIGINT and SIGTERM: the first signal asks the work to end at a safe point, the second one ends the process at once.

The command line listens for signals in a thread (`listen_for_signals`), because a handler in Python has to wait until
the main thread returns from code in C. A `Deferral` protects work that must not end at an arbitrary instruction: a
folder that is being written, a temporary file, a training. Without a deferral a signal ends the process at once. With a
deferral, loops end by `raise_if_interrupted`, and trainings end by the ``stop`` of their deferral. Work that does not
end within `LIMIT_S` is abandoned: each deferral removes its temporary files, and the process ends.

In a process that does not listen, such as a notebook, Ctrl-C is Python's own KeyboardInterrupt.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from syncline.errors import SpecError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

SIGNALS = (signal.SIGINT, signal.SIGTERM)

LIMIT_S = 3.0
"""Seconds from the first signal within which the work must reach a safe point."""

REPEAT_S = 0.1
"""Seconds within which a second signal counts as the first one: GNU ``timeout`` signals its child, then its group."""

PARENT_CHECK_S = 0.1
"""Seconds between two checks whether the parent process has ended."""

PR_SET_PDEATHSIG = 1
"""An option of Linux's ``prctl``, see its manual page."""


class Deferral:
    """A part of the work that a signal must not cut off, from the creation of this object to `end`.

    Args:
        abandon: function that is called before the process ends without `end`; it removes temporary files, and returns
            a phrase that says which results remain and where, or None.
        stop: function that is called at the first signal, from another thread; it asks the work to end.
    """

    def __init__(
        self, abandon: Callable[[], str | None] | None = None, stop: Callable[[], object] | None = None
    ) -> None:
        """Tell the signal listeners that from now on this work must not be cut off."""
        self.abandon, self.stop = abandon, stop
        for listener in _listeners:
            listener.defer(self)

    def end(self) -> None:
        """End the deferral; a second call does nothing."""
        for listener in _listeners:
            listener.forget(self)

    def __enter__(self) -> Deferral:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


class _Listener:
    """The thread that receives the signals of this process.

    Attributes:
        first_signal: number of the first signal; None before it.
        may_end_slowly: whether the work is known to be ending, which may then take more than `LIMIT_S`.
        temporary_folders: folders to remove if the process ends at once.
    """

    def __init__(self) -> None:
        """Make the thread and the pipe from which it reads signals; `begin` starts the thread."""
        self.first_signal: int | None = None
        self.may_end_slowly = False
        self._first_signal_s = 0.0  # time of the first signal
        self.temporary_folders: list[Path] = []
        self._deferrals: list[Deferral] = []
        self._lock = threading.Lock()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)

    def begin(self) -> None:
        """Start the thread, and let the system write the numbers of signals to its pipe."""
        self._thread.start()
        signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _ignore_signal)

    def end(self) -> None:
        """End the thread; from now on a signal ends the process at once."""
        for number in SIGNALS:
            signal.signal(number, lambda number, frame: os._exit(128 + number))  # shells' code of a signal
        signal.set_wakeup_fd(-1)
        os.write(self._write_end, b"\0")  # no signal has the number 0: it ends the thread
        self._thread.join()
        os.close(self._read_end)
        os.close(self._write_end)

    def defer(self, deferral: Deferral) -> None:
        """Add a deferral; if a signal has come before, ask its work to stop."""
        with self._lock:
            self._deferrals.append(deferral)
        if self.first_signal is not None and deferral.stop is not None:
            deferral.stop()

    def forget(self, deferral: Deferral) -> None:
        """Remove a deferral, if it is still there."""
        with self._lock, suppress(ValueError):
            self._deferrals.remove(deferral)

    def _listen(self) -> None:
        """Receive signals until `end`, and end the process if its work does not end in time."""
        while True:
            timeout_s = None  # no limit
            if self.first_signal is not None and not self.may_end_slowly:
                timeout_s = max(0.0, self._first_signal_s + LIMIT_S - time.monotonic())
            readable, _, _ = select.select([self._read_end], [], [], timeout_s)
            if not readable:  # the time is over
                if not self.may_end_slowly:  # it may have been set while this thread waited
                    self._end_process()
                continue
            for number in os.read(self._read_end, 64):
                if number == 0:
                    return
                if number in SIGNALS:
                    self._receive(number)

    def _receive(self, number: int) -> None:
        """Ask deferred work to stop at the first signal; end the process at a second one, or if no work is deferred."""
        now_s = time.monotonic()
        if self.first_signal is not None:
            if now_s > self._first_signal_s + REPEAT_S:  # an earlier one is the first signal, sent again
                self._end_process()
            return
        self.first_signal, self._first_signal_s = number, now_s
        with self._lock:
            deferrals = list(self._deferrals)
        if not deferrals:
            self._end_process()
        for deferral in deferrals:
            if deferral.stop is not None:
                deferral.stop()

    def _end_process(self) -> None:
        """Abandon all deferred work, remove temporary folders, report what remains, and end the process."""
        self._lock.acquire()  # never released, so that the main thread begins nothing new
        phrases = ["interrupted"]
        for deferral in reversed(self._deferrals):
            with suppress(Exception):
                phrase = None if deferral.abandon is None else deferral.abandon()
                if phrase:
                    phrases.append(phrase)
        for folder in self.temporary_folders:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            os.write(2, f"{'; '.join(phrases)}\n".encode())  # print could wait for a lock of the main thread
        os._exit(exit_code())


_listeners: list[_Listener] = []
"""The listener of this process; empty if the process does not listen."""


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing: a handler in Python must exist so that a signal's number is written to the listener's pipe."""


@contextmanager
def listen_for_signals() -> Iterator[None]:
    """Receive signals in a thread while the block runs; after it, a signal ends the process at once.

    In the block the first signal asks deferred work to stop (see `Deferral`); a second signal, or the first one without
    deferred work, ends the process. Only the main thread can call this.
    """
    if _listeners:  # an outer block listens
        yield
        return
    listener = _Listener()
    _listeners.append(listener)
    listener.begin()
    try:
        yield
    finally:
        listener.end()
        _listeners.clear()


def _do_not_listen() -> None:
    """Restore the default signal handlers in a forked process."""
    if _listeners:
        _listeners.clear()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_do_not_listen)


def exit_code() -> int:
    """Return the exit code of an interrupted command, by the shell's convention: 128 + the signal's number."""
    return 128 + (_first_signal() or signal.SIGINT)


def _first_signal() -> int | None:
    """Return the number of the first signal that this process has received; None without one."""
    return _listeners[0].first_signal if _listeners else None


def is_interrupted() -> bool:
    """Return whether a signal has asked this process to end; it then skips output that results can restore."""
    return _first_signal() is not None


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if a signal has asked this process to end; call it at a safe point of a loop."""
    if is_interrupted():
        allow_slow_end()
        raise KeyboardInterrupt


def allow_slow_end() -> None:
    """Confirm after a signal that the work is ending, which may then take longer than `LIMIT_S`; else do nothing."""
    if is_interrupted():
        _listeners[0].may_end_slowly = True


@contextmanager
def stopped_by_signal(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` at the first signal in the block.

    In a process that does not listen, the first Ctrl-C calls it, and the second one raises KeyboardInterrupt.
    """
    if _listeners or threading.current_thread() is not threading.main_thread():
        with Deferral(stop=stop):
            yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        """Ask the work to stop, and let Python raise KeyboardInterrupt at the next Ctrl-C."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    previous_handler = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def raise_in_main_thread() -> None:
    """Raise KeyboardInterrupt at the main thread's next instruction in Python."""
    ident = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(KeyboardInterrupt))


@contextmanager
def children_without_signals() -> Iterator[None]:
    """Block SIGINT and SIGTERM in the child processes that the block starts; this process alone reacts to a signal.

    A terminal or a scheduler signals all processes. A child inherits blocked signals from its first instruction on; a
    handler would be installed too late. A process that does not listen blocks only SIGINT, because its own code may end
    its processes by SIGTERM. A signal to this thread waits for the end of the block.
    """
    from multiprocessing import resource_tracker

    # The tracker removes what this process leaves when a signal ends it, and need not warn of it. Its start unblocks
    # the signals, so that it starts here, and not with the first child.
    sys.warnoptions.append("ignore:resource_tracker")
    resource_tracker.ensure_running()
    sys.warnoptions.remove("ignore:resource_tracker")
    blocked = set(SIGNALS) if _listeners else {signal.SIGINT}
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


LONGEST_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
"""Bytes of the longest path of a socket, of which multiprocessing makes one in the temporary folder."""


def fork_server(modules: Sequence[str]) -> ForkServerContext:
    """Return multiprocessing's context whose server imports these modules first and then forks the processes.

    Raises:
        SpecError: the path of the temporary folder is too long for a socket.
    """
    from multiprocessing import get_context, util

    pool_folder = Path(util.get_temp_dir())
    # multiprocessing adds these names, with random letters, to the path of the temporary folder.
    longest = LONGEST_SOCKET_PATH - len("/pymp-12345678/listener-12345678")
    if len(os.fsencode(pool_folder.parent)) > longest:
        raise SpecError("TMPDIR", str(pool_folder.parent), f"a folder whose path has at most {longest} bytes")
    for listener in _listeners:
        listener.temporary_folders.append(pool_folder)
    context, preloaded = get_context("forkserver"), list(modules)
    if _listeners:  # not in a notebook: this import lets the server end with the thread that starts it
        preloaded.insert(0, "syncline.server_end")
    context.set_forkserver_preload(preloaded)
    return context


def end_with_parent(parent: int | None = None, before_exit: Callable[[], object] | None = None) -> None:
    """End this process when its parent ends for any reason.

    Args:
        parent: process id of the parent. None: multiprocessing started this process, perhaps through its fork server.
        before_exit: function that is called before the end; only for a process of multiprocessing.
    """
    if parent is not None and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the system was asked to send the signal
            os._exit(1)
        return
    threading.Thread(target=_exit_after_parent, args=(parent, before_exit), daemon=True).start()


def _exit_after_parent(parent: int | None, before_exit: Callable[[], object] | None) -> None:
    """Wait until the parent process has ended, then end this process; arguments as in `end_with_parent`."""
    from multiprocessing import parent_process

    if parent is not None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_S)
    elif (parent_handle := parent_process()) is not None:
        parent_handle.join()
    else:
        return  # multiprocessing did not start this process
    if before_exit is not None:
        before_exit()
    os._exit(1)
