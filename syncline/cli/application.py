"""The application ``syncline``: its group of commands, its exit codes, and its errors.

Errors of the command line have the same form as errors of a spec: the name, its value, and the accepted values.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Collection, Sequence
from itertools import groupby, pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from syncline import interrupts
from syncline.cli.commands import COMMANDS, FLAG, SETTINGS, NoCodeOption, command_of, write_parameters, write_rows
from syncline.cli.shell import check_width, say
from syncline.errors import SpecError, SynclineError, called_by_command, is_out_of_memory, one_of
from syncline.files import open_standard_streams
from syncline.interrupts import exit_code
from syncline.questions import question_of
from syncline.questions.declare import SHELL, appearance_of, flag_of
from syncline.version import version_line

UsageError: Any = typer.BadParameter.__mro__[1]
"""The error that click raises; newer versions of typer bundle a click that cannot be imported by that name."""

PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
"""Pydantic's environment variable that disables its plugins; the search for plugins takes as long as all our specs."""


class Commands(TyperGroup):
    """The group of all commands; it makes a command when the command line names it, and refuses unknown names."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands of ``syncline``, for the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, or None if no command has that name."""
        return command_of(cmd_name) if cmd_name in COMMANDS else None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of ``syncline``: its options, and the commands under their headings."""
        write_parameters(self, ctx, formatter)
        for panel, names in groupby(COMMANDS, key=lambda name: question_of(name).panel):
            write_rows(formatter, panel, [(name, question_of(name).summary().partition("\n\n")[0]) for name in names])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Read the command line and run its command, without pydantic's plugins; errors name options, not arguments."""
        plugins_before, token = os.environ.get(PLUGINS), called_by_command.set(True)
        os.environ.setdefault(PLUGINS, "__all__")  # disables all plugins, unless the user has set it
        try:
            return super().main(*args, **kwargs)
        finally:
            called_by_command.reset(token)
            if plugins_before is None:
                os.environ.pop(PLUGINS, None)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; after Ctrl-C, print one line that says where its unfinished results are."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            print("; ".join(["interrupted", *getattr(interrupt, "__notes__", [])]), file=sys.stderr)
            raise typer.Exit(exit_code()) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the command and the remaining arguments of a command line."""
        if not args[0].startswith("-") and not ctx.resilient_parsing and args[0] not in COMMANDS:
            raise SpecError("command", args[0], one_of(COMMANDS, args[0]) + "; see 'syncline --help'")
        name, command, arguments = super().resolve_command(ctx, args)
        fields = question_of(args[0]).declared(SHELL)
        flags = {flag_of(field) for field in fields if appearance_of(field).several}
        return name, command, spread_values(arguments, flags)


def spread_values(arguments: Sequence[str], flags: Collection[str]) -> list[str]:
    """Return the arguments of a command with the flag before each value of an option that takes several values.

    Args:
        arguments: arguments as the user types them.
        flags: names of the options that take several values.

    >>> spread_values(["--from", "a.json", "b.json", "--out", "c.yaml"], {"--from"})
    ['--from', 'a.json', '--from', 'b.json', '--out', 'c.yaml']
    """
    spread: list[str] = []
    flag = ""  # the option whose values these are
    for previous, argument in pairwise(["", *arguments]):
        if argument.startswith("-") and argument != "-":  # a lone "-" is a value: standard input
            flag = argument if argument in flags else ""
        elif flag and previous != flag:  # the user has typed the flag before the first value only
            spread.append(flag)
        spread.append(argument)
    return spread


def error_of_click(error: Any) -> SynclineError:
    """Convert an error of click's parser into an error of the form "NAME: got VALUE; expected ..."."""
    context: Any = getattr(error, "ctx", None)  # which attributes an error has depends on its class
    hint = f"; see '{context.command_path} --help'" if context is not None else ""
    if getattr(error, "param", None) is not None:
        return _value_error(error, error.param, hint)
    option, problem = getattr(error, "option_name", None), _sentence(error.message)
    if type(error).__name__ == "NoSuchOption" and context is not None:  # click's class cannot be imported
        names = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
        return SpecError("option", option, one_of([*names, "--help"], option) + hint)
    if option is not None:
        has_no_value = "requires" in problem  # "Option '--steps' requires an argument."
        return Missing(option, "a value") if has_no_value else SynclineError(f"{option}: {problem}")
    extra_arguments = re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message)
    if extra_arguments:
        return SpecError("arguments", extra_arguments[1], "no more arguments" + hint)
    return SynclineError(problem + hint)


def _value_error(error: Any, parameter: Any, hint: str) -> SynclineError:
    """Return the error for a missing or wrong value of an option or argument; ``hint`` names the help."""
    options = [name for name in parameter.opts if name.startswith("--")]
    path = options[0] if options else str(parameter.metavar or parameter.name).lower()
    if type(error).__name__ == "MissingParameter":
        expected = _sentence(parameter.help or "a value")
        return Missing(path, expected if "see '" in expected else expected + hint)
    if hasattr(error.__cause__, "errors"):  # pydantic's ValidationError
        from syncline.fields import explain

        cause = explain(error.__cause__, fields=lambda _: [])
        return SpecError(path, cause.value, cause.expected)
    return SynclineError(f"{path}: {_sentence(error.message)}")


class Missing(SynclineError):
    """The error for an argument or option whose value is missing."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(f"{path}: got nothing; expected {expected}")


def _sentence(text: str) -> str:
    """Return a sentence in the form of the end of an error line: in lower case, except for acronyms, no full stop."""
    text = " ".join(text.split()).removesuffix(".")
    second = text[1:2]  # an upper-case second letter means an acronym
    return text[:1].lower() + text[1:] if second.islower() or second == " " else text


UNWRITABLE_ERRNOS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE,
)  # fmt: skip
"""Error numbers of a disk, quota or file that is full, read-only or gone."""

BAD_NAME_ERRNOS = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""Error numbers of a path that cannot be the path of a file."""


app = typer.Typer(
    help="Compare methods of distributed training that communicate less often, in fewer bits or later: their loss and "
    "their time.",
    cls=Commands,
    epilog="Begin with: syncline compare, then syncline list specs. SPEC is a name of that list or a YAML file.",
    **SETTINGS,
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", metavar=FLAG, help="Print the version and the commit.")] = False,
    no_code: NoCodeOption = False,
) -> None:
    """Print the version if ``--version`` asks for it; print the help if the command line names no command."""
    if version:
        print(version_line(), flush=True)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), flush=True)
        raise typer.Exit(2)


def main() -> None:
    """Run ``syncline`` with the arguments of this process, and exit.

    A mistake in the input gives one line on standard error and the exit code 2.
    """
    open_standard_streams()
    check_width()
    try:
        os.getcwd()
    except OSError as error:
        problem = "got a folder that no longer exists; expected one that exists"
        say(f"error: working directory: {problem} ({error.strerror})")
        sys.exit(2)
    with interrupts.listen_for_signals():
        sys.exit(_exit_code())


def _exit_code() -> int:
    """Run the command that the command line names; print an error as a line, and return the exit code."""
    try:
        return int(app(prog_name="syncline", standalone_mode=False) or 0)
    except typer.Abort:
        return 1
    except (SynclineError, UsageError, MemoryError, RuntimeError, UnicodeEncodeError, OSError) as error:
        user_error, code = _error_for_users(error)
        say("; ".join([f"error: {user_error}", *getattr(user_error, "__notes__", [])]))
        if code == 1:
            try:
                sys.stdout.flush()
            except (OSError, ValueError):  # the disk is full: discard the rest, which Python would write at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code


def _error_for_users(error: Any) -> tuple[Exception, int]:
    """Return an error whose text is a line for users, and the exit code.

    The exit code is 2 for a mistake in the input, and 1 if the machine lacks memory or disk space. An error that is
    neither is raised again, because it is a bug.
    """
    if isinstance(error, SynclineError):
        return error, 2
    if isinstance(error, UsageError):
        return error_of_click(error), 2
    if is_out_of_memory(error):
        return MemoryError("not enough memory"), 1
    if isinstance(error, UnicodeEncodeError):
        return SpecError("arguments", error.object[error.start : error.end], "text in Unicode"), 2
    number, file = getattr(error, "errno", None), getattr(error, "filename", None)
    if number in BAD_NAME_ERRNOS:  # no file can have the user's path
        spec_error = SpecError("path", str(file), f"a valid file name ({error.strerror})")
        return (spec_error if file else error), 2
    if number in UNWRITABLE_ERRNOS:
        return error, 1
    raise error


if __name__ == "__main__":
    main()
