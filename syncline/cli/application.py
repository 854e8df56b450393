"""The command-line application, which parses, calls and prints; ``syncline.experiments`` does the work."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from typer import Abort

from syncline import interrupts
from syncline.cli.commands import COMMANDS, register
from syncline.cli.shell import app as application
from syncline.cli.shell import check_width, say
from syncline.cli.usage import UsageError, refusal
from syncline.errors import SpecError, SynclineError
from syncline.files import open_standard_streams

OF_TORCH = "can't allocate memory"
"""Part of the message of torch's RuntimeError when memory is exhausted; NumPy raises a MemoryError instead."""

UNWRITABLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE,
)  # fmt: skip
"""Error numbers of a disk, quota or file that is full, read-only or gone."""


MISNAMED = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""Error numbers of a path that cannot be the path of a file."""


def _prepare_process() -> None:
    """Open the standard streams that the caller has closed, and refuse a working directory that is gone."""
    open_standard_streams()
    check_width()
    try:
        os.getcwd()
    except OSError as error:
        say(f"error: working directory: got one that is gone; expected one that exists ({error.strerror})")
        sys.exit(2)


def _error_line(error: Exception) -> str:
    """Return an error and its notes in one line."""
    return "; ".join([f"error: {error}", *getattr(error, "__notes__", [])])


@contextmanager
def _only_command(name: str | None) -> Iterator[None]:
    """Let the application have only the command of this name in the block; without such a command, all commands.

    A question is loaded, and typer reads the options, of registered commands alone.
    """
    _register([name] if name in COMMANDS else COMMANDS)
    commands = application.registered_commands
    application.registered_commands = [command for command in commands if command.name == name] or commands
    try:
        yield
    finally:
        application.registered_commands = commands


def _register(names: Iterable[str]) -> None:
    """Register the commands that are not registered yet, in the order of the help."""
    registered = {command.name for command in application.registered_commands}
    for name in names:
        if name not in registered:
            register(name)
    order = list(COMMANDS)
    application.registered_commands.sort(key=lambda command: order.index(str(command.name)))


def __getattr__(name: str) -> Any:
    """Return the application with all commands, for ``app``."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _register(COMMANDS)
    return application


def main() -> None:
    """Run the command line; a mistake in the input is one line on standard error and exit code 2."""
    _prepare_process()
    with interrupts.listen_for_signals():
        _main()


def _main() -> None:
    try:
        with _only_command(next(iter(sys.argv[1:]), None)):
            sys.exit(
                application(prog_name="syncline", standalone_mode=False)
            )  # the application returns the code of typer.Exit
    except SynclineError as error:
        say(_error_line(error))
        sys.exit(2)
    except UsageError as error:
        say(_error_line(refusal(error)))
        sys.exit(2)
    except Abort:
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or OF_TORCH in str(error)):
            raise
        say(_error_line(MemoryError("this needs more memory than there is")))
        sys.exit(1)
    except UnicodeEncodeError as error:
        say(_error_line(SpecError("arguments", error.object[error.start : error.end], "text in Unicode")))
        sys.exit(2)
    except OSError as error:
        if error.errno in MISNAMED:
            named = SpecError("path", str(error.filename), f"one that a file can have ({error.strerror})")
            say(_error_line(named if error.filename else error))
            sys.exit(2)
        if error.errno not in UNWRITABLE:
            raise
        say(_error_line(error))
        with suppress(OSError, ValueError):  # at exit, the buffer of standard output could not be written either
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
