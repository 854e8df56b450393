"""Who writes what: a name belongs to one process at a time, from before the work to its end."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from syncline.errors import SpecError
from syncline.interrupts import Deferral


class Claim:
    """A name for results that this process alone writes.

    It is a lock on the file ``.NAME.lock`` beside the name. The system frees it when the process ends, however it ends,
    so what is found under a claimed name's working names is what the dead have left.

    Attributes:
        on_abandon: see ``abandon`` of `syncline.interrupts.Deferral`, which a claim is until its release.
    """

    def __init__(self, path: Path, lock: int | None) -> None:
        self.path, self._lock = path, lock
        self.on_abandon: Callable[[], str | None] | None = None
        self._deferral = Deferral(self._abandon)

    @classmethod
    def of(cls, path: Path) -> Claim | None:
        """The claim on a name; None if another one has it."""
        with Deferral():
            return cls._of(path)

    @classmethod
    def _of(cls, path: Path) -> Claim | None:
        while True:
            lock = os.open(_lock_of(path), os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return None
            except OSError:  # a file system without locks: all that is left is that working names differ
                os.close(lock)
                return cls(path, None)
            try:
                if os.path.samestat(os.fstat(lock), os.stat(_lock_of(path))):
                    return cls(path, lock)
            except FileNotFoundError:
                pass
            os.close(lock)  # whoever had it removed the file between the two calls: ours has no name any more

    @property
    def is_sure(self) -> bool:
        """Whether the system holds a lock; without one, another process may have the name too."""
        return self._lock is not None

    def _abandon(self) -> str | None:
        try:
            return self.on_abandon() if self.on_abandon is not None else None
        finally:
            _lock_of(self.path).unlink(missing_ok=True)

    def release(self) -> None:
        """Let others have the name; again, nothing."""
        _lock_of(self.path).unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None
        self._deferral.end()

    def working(self) -> Path:
        """The name under which results are written until they are whole."""
        return self.path.with_name(f".{self.path.name}.partial-{os.getpid()}")

    def remains(self) -> list[Path]:
        """What processes that died left under working names of this one."""
        prefix = f".{self.path.name}.partial-"
        left = (path for path in self.path.parent.iterdir() if path.name.removeprefix(prefix).isdecimal())
        return sorted(path for path in left if path.name.startswith(prefix))


def is_claimed(path: Path, pid: int | None = None) -> bool:
    """Whether a process has a name, without taking it.

    Args:
        path: the name.
        pid: of the process that is asked about; it is looked at where no lock can tell.
    """
    try:
        lock = os.open(_lock_of(path), os.O_RDWR)
    except OSError:
        return pid is not None and is_alive(pid)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return pid is not None and is_alive(pid)
    finally:
        os.close(lock)
    return False


def is_alive(pid: int) -> bool:
    """Whether there is a process of that number here."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        return True
    except OverflowError:
        return False
    return True


def claimed(path: Path, *, exact: bool, what: str, suffix: str = "") -> Claim:
    """The claim on a name that does not exist: the path itself, or with a number; results are never overwritten.

    Args:
        path: the name that was asked for.
        exact: refuse it if it exists or somebody is writing it, instead of adding a number.
        what: a file or a folder.
        suffix: of the name, which stays behind the number.

    Raises:
        SpecError: if the name is refused, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for name in numbered(path, suffix):
            claim = None if os.path.lexists(name) else Claim.of(name)
            if claim is not None and not os.path.lexists(name):  # not meanwhile, either
                return claim
            if claim is not None:
                claim.release()
            if exact:
                busy = "" if os.path.lexists(name) else ", and nobody writes"
                raise SpecError("--out", str(path), f"a {what} that does not exist yet{busy}")
    except OSError as error:
        raise SpecError("--out", str(path), f"a place that can be written to ({error.strerror})") from None
    raise AssertionError("numbers do not end")


def numbered(path: Path, suffix: str = "") -> Iterator[Path]:
    """``path``, ``path-2``, ``path-3``, ...; the number is before the suffix."""
    number, name = 1, path
    while True:
        yield name
        number += 1
        name = path.with_name(f"{path.name.removesuffix(suffix)}-{number}{suffix}")


def free_path(path: Path) -> Path:
    """The first of ``path``, ``path-2``, ... that does not exist, not even as a link to nowhere."""
    return next(name for name in numbered(path) if not os.path.lexists(name))


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
