"""The command-line application, which parses, calls and prints; the rooms below do the work."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from syncline import interrupts
from syncline.cli.commands import FLAG, NoCodeOption
from syncline.cli.help import SETTINGS
from syncline.cli.shell import check_width, say
from syncline.cli.usage import Commands, UsageError, refusal
from syncline.errors import SpecError, SynclineError
from syncline.files import open_standard_streams
from syncline.version import version_line

OF_TORCH = "can't allocate memory"
"""Part of the message of torch's RuntimeError when memory is exhausted; NumPy raises a MemoryError instead."""

UNWRITABLE = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE,
)  # fmt: skip
"""Error numbers of a disk, quota or file that is full, read-only or gone."""

MISNAMED = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""Error numbers of a path that cannot be the path of a file."""


def new_application() -> typer.Typer:
    """Return the application, whose group makes each command when it is asked for."""
    application = typer.Typer(
        help="Compare methods of distributed training that communicate less often, in fewer bits or later: their loss "
        "and their time.",
        cls=Commands,
        epilog="Begin with: syncline compare, then syncline list specs. SPEC is a name of that list or a YAML file.",
        **SETTINGS,
    )
    application.callback(invoke_without_command=True)(_root)
    return application


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", metavar=FLAG, help="Print the version and the commit.")] = False,
    no_code: NoCodeOption = False,
) -> None:
    if version:
        print(version_line(), flush=True)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), flush=True)
        raise typer.Exit(2)


app = new_application()


def main() -> None:
    """Run the command line; a mistake in the input is one line on standard error and exit code 2."""
    open_standard_streams()
    check_width()
    try:
        os.getcwd()
    except OSError as error:
        say(f"error: working directory: got one that is gone; expected one that exists ({error.strerror})")
        sys.exit(2)
    with interrupts.listen_for_signals():
        sys.exit(_exit_code())


def _exit_code() -> int:
    """Run the command of the command line, and return its exit code; an error is one line."""
    try:
        return int(new_application()(prog_name="syncline", standalone_mode=False) or 0)
    except typer.Abort:
        return 1
    except (SynclineError, UsageError, MemoryError, RuntimeError, UnicodeEncodeError, OSError) as error:
        refused, code = _refusal(error)
        say("; ".join([f"error: {refused}", *getattr(refused, "__notes__", [])]))
        if code == 1:
            with suppress(OSError, ValueError):  # at exit, the buffer of a full output could not be written either
                sys.stdout.flush()
                return code
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code


def _refusal(error: Any) -> tuple[Exception, int]:
    """Return an error as the user reads it, and the exit code: 2 for a mistake, 1 if the machine lacks something.

    Raises:
        Exception: the error itself, if it is neither.
    """
    if isinstance(error, SynclineError):
        return error, 2
    if isinstance(error, UsageError):
        return refusal(error), 2
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OF_TORCH in str(error)):
        return MemoryError("this needs more memory than there is"), 1
    if isinstance(error, UnicodeEncodeError):
        return SpecError("arguments", error.object[error.start : error.end], "text in Unicode"), 2
    number, file = getattr(error, "errno", None), getattr(error, "filename", None)
    if number in MISNAMED:
        named = SpecError("path", str(file), f"one that a file can have ({error.strerror})")
        return (named if file else error), 2
    if number not in UNWRITABLE:
        raise error
    return error, 1


if __name__ == "__main__":
    main()
