"""Locks on the names of results: one process at a time may write a name, from the start of its work to the end."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from syncline.errors import SpecError
from syncline.interrupts import Deferral


class PathLock:
    """A lock on the name of a result, so that only this process writes it.

    It is a lock on the file ``.NAME.lock`` next to the name. The system frees it when the process ends, even if the
    process is killed. Files ``.NAME.partial-PID`` of other processes are therefore left by dead ones.

    Attributes:
        on_abandon: function that runs before a signal ends the process, see ``abandon`` of
            `syncline.interrupts.Deferral`.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        """Store the path and the locked file's descriptor, which is None on a file system without locks."""
        self.path, self._descriptor = path, descriptor
        self.on_abandon: Callable[[], str | None] | None = None
        self._deferral = Deferral(self._abandon)

    @classmethod
    def acquire(cls, path: Path) -> PathLock | None:
        """Lock the name of a result, and return the lock; None if another process has it."""
        with Deferral():  # no signal may end the process before the new `PathLock` defers signals
            while True:
                descriptor = os.open(_lock_file(path), os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    return None
                except OSError:  # a file system without locks
                    os.close(descriptor)
                    return cls(path, descriptor=None)
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), os.stat(_lock_file(path))):
                        return cls(path, descriptor)
                os.close(descriptor)  # the last owner removed the file between ``open`` and ``flock``: try again

    @property
    def excludes_others(self) -> bool:
        """Return whether the file system has locks; on one without locks another process may write the same name."""
        return self._descriptor is not None

    def _abandon(self) -> str | None:
        """Call ``on_abandon``, return its note about remaining results, and remove the lock's file."""
        try:
            return self.on_abandon() if self.on_abandon is not None else None
        finally:
            _lock_file(self.path).unlink(missing_ok=True)

    def release(self) -> None:
        """Release the name, and let signals end the process; a second call has no effect."""
        # Removed while it is locked: after the release it may be the next owner's file.
        _lock_file(self.path).unlink(missing_ok=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._deferral.end()

    def partial_path(self) -> Path:
        """Return the path under which this process writes results until they are complete."""
        return self.path.with_name(f".{self.path.name}.partial-{os.getpid()}")

    def leftovers(self) -> list[Path]:
        """Return the paths of unfinished results of this name that dead processes left, ``.NAME.partial-PID``."""
        prefix = f".{self.path.name}.partial-"
        paths = [path for path in self.path.parent.iterdir() if path.name.startswith(prefix)]
        return sorted(path for path in paths if path.name.removeprefix(prefix).isdecimal())


def is_locked(path: Path, pid: int | None = None) -> bool:
    """Return whether another process holds the lock of a path.

    If the lock has no file, or the file system no locks, the result is whether the process with the id ``pid`` exists.
    """
    try:
        with _lock_file(path).open("r+b") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock, or a file system without locks
        return pid is not None and is_alive(pid)
    return False


def is_alive(pid: int) -> bool:
    """Return whether a process with this id exists on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # the process belongs to another user
        return True
    return True


def lock_path(path: Path, *, exact: bool, kind: str, suffix: str = "") -> PathLock:
    """Return the lock on a path that does not exist yet: the requested path, or the path with a number in its name.

    Args:
        exact: refuse the path if it exists or another process writes it, instead of adding a number.
        kind: ``file`` or ``folder``, for the error message.
        suffix: end of the name, which stays behind the number.

    Raises:
        SpecError: the path is refused, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for candidate in numbered_paths(path, suffix):
            lock = None if os.path.lexists(candidate) else PathLock.acquire(candidate)
            if lock is not None:
                if not os.path.lexists(candidate):  # another process may have made it just before
                    return lock
                lock.release()
            if exact:
                busy = "" if os.path.lexists(candidate) else ", and that no process writes"
                raise SpecError("--out", str(path), f"a {kind} that does not exist yet{busy}")
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    raise AssertionError("numbers do not end")


def numbered_paths(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield ``path``, ``path-2``, ``path-3``, ...; the number is before the suffix."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name.removesuffix(suffix)}-{number}{suffix}")


def free_path(path: Path) -> Path:
    """Return the first of ``path``, ``path-2``, ... that does not exist, not even as a dangling link."""
    return next(candidate for candidate in numbered_paths(path) if not os.path.lexists(candidate))


def _lock_file(path: Path) -> Path:
    """Return the path of the file whose lock protects a path."""
    return path.with_name(f".{path.name}.lock")
