"""Commands made from the declarations of their questions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from dataclasses import MISSING, Field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from syncline.cli.completion import offer_of
from syncline.cli.help import SETTINGS, Command
from syncline.cli.readers import READERS
from syncline.errors import SpecError
from syncline.questions import question_of
from syncline.questions.declare import SHELL, Option, Question, appearance_of, flag_of
from syncline.registry import no_code

COMMANDS = {
    "compare": "trainings", "run": "trainings", "sweep": "trainings", "best": "trainings", "replicate": "trainings",
    "launch": "trainings", "calibrate": "trainings", "validate": "trainings", "project": "answers",
    "collectives": "answers", "pipeline": "trainings", "advise": "answers", "solve": "answers", "loss": "answers",
    "goodput": "answers", "explore": "catalogue", "runs": "results", "show": "results", "verify": "results",
    "rm": "results", "same": "results", "report": "results", "trace": "answers", "whatif": "answers",
    "chakra": "catalogue", "list": "catalogue", "reproduce": "answers", "doctor": "catalogue",
}  # fmt: skip
"""The commands in the order of the help, each with the module of this room that prints its answer."""

FLAG = " "
"""Placeholder for the value of an option that takes none."""


def _switch_code_off(context: typer.Context, is_given: bool) -> None:
    if is_given:
        context.with_resource(no_code())


# The callback acts until the command ends; no function takes the value.
NoCodeOption = Annotated[
    bool,
    typer.Option(
        "--no-code", metavar=FLAG, expose_value=False, is_eager=True, callback=_switch_code_off,
        help="Refuse whatever names code: module:name, file.py:name, {kind: python}.",
    ),
]  # fmt: skip


def command_of(name: str) -> Any:
    """Return a command, which typer makes of its question."""
    question = question_of(name)
    application = typer.Typer(add_completion=False, **SETTINGS)
    command = application.command(name, cls=Command, epilog="\n\n".join(["Examples:", *question.examples]))
    command(callback_of(question, _printer_of(name), no_code=NoCodeOption))
    return typer.main.get_command(application)


def _printer_of(command: str) -> Callable[[Any], None]:
    """Return the function that prints the answer to a command's question: ``print_NAME``, or else `print_answer`.

    The module is imported when the function is called.
    """

    def print_it(question: Any) -> None:
        module: Any = import_module(f"syncline.cli.{COMMANDS[command]}")
        printer = getattr(module, f"print_{command}", None) or module.print_answer
        printer(question)

    return print_it


def callback_of(question: type[Question], printer: Callable[[Any], None], **hidden_flags: Any) -> Callable[..., None]:
    """Return the function of a command: it makes the question of the options and prints the answer.

    Args:
        question: the question's class.
        printer: function that prints the answer to a question.
        **hidden_flags: annotations of flags whose values the function does not get.
    """
    declared, hints = question.declared(SHELL), get_type_hints(question)
    parameters = [_parameter(member, hints[member.name]) for member in declared]
    defaults = {parameter.name: parameter.default for parameter in parameters}

    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in hidden_flags.items()
    ]

    def callback(**options: Any) -> None:
        set_options = {name for name in defaults if options[name] != defaults[name]}
        try:
            printer(
                question(
                    **{member.name: _read(member, options[member.name], hints[member.name]) for member in declared}
                )
            )
        except SpecError as error:
            raise _by_option(error, question, set_options) from None

    paragraphs = question.summary().split("\n\n")
    callback.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    callback.__signature__ = inspect.Signature([*parameters, *flags])  # type: ignore[attr-defined]
    callback.__annotations__ = {parameter.name: parameter.annotation for parameter in [*parameters, *flags]}
    return callback


def _parameter(declared: Field[Any], annotation: Any) -> inspect.Parameter:
    """Return the parameter of a command's function, annotated as typer reads it."""
    appearance = appearance_of(declared)
    kind = _shell_type(appearance, annotation)
    default = declared.default if appearance.shell_default is ... else appearance.shell_default
    details: dict[str, Any] = {"help": appearance.help, "metavar": appearance.metavar or None}
    if appearance.completion:
        details["autocompletion"] = offer_of(appearance.completion)
    if appearance.minimum is not None:
        details["min"] = appearance.minimum
    if appearance.panel:
        details["rich_help_panel"] = appearance.panel
    if appearance.positional:
        information = typer.Argument(**details)
    else:
        if kind is bool and not appearance.metavar:
            details["metavar"] = FLAG
        information = typer.Option(*(appearance.flag or flag_of(declared)).split(), **details)
    if kind is str and default is not MISSING and default is not None:
        default = str(default)
    shell_type: Any = kind if default is not None else kind | None
    annotated: Any = Annotated[shell_type, information]
    return inspect.Parameter(
        declared.name, inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default, annotation=annotated,
    )  # fmt: skip


def _shell_type(appearance: Option, annotation: Any) -> Any:
    """Return the type of an option's value before its reader has read it."""
    kinds = {kind for kind in get_args(annotation) or (annotation,) if kind is not type(None)}
    if appearance.reader:
        return list[str] if appearance.repeatable else str
    kind = next((kind for kind in (bool, int, float) if kinds == {kind}), Path if Path in kinds else str)
    return list[str] if appearance.repeatable else kind


def _read(declared: Field[Any], value: Any, annotation: Any) -> Any:
    """Return the value of a field that an option's text means.

    Raises:
        SpecError: a text is not in Unicode, its reader cannot read it, or YAML has another type than the field.
    """
    reader = appearance_of(declared).reader
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str) and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise SpecError(declared.name, text, "text in Unicode") from None
    if value is None or not reader:
        return value
    value = READERS[reader](flag_of(declared), value)
    if reader not in ("yaml", "values"):
        return value
    from syncline.fields import checked_argument

    return checked_argument(declared.name, value, annotation)


def _by_option(error: SpecError, question: type[Question], set_options: Set[str]) -> SpecError:
    """Return an error about a field as an error about its option.

    A spec, a folder or a file can have a field of the same name, so that the option has to be set, or its value lacks.
    """
    head, dot, rest = error.path.partition(".")
    for declared in question.declared(SHELL):
        flag = flag_of(declared)
        is_named = head in (declared.name, flag.removeprefix("--").replace("-", "_"))
        if is_named and (declared.name in set_options or error.value is None):
            return SpecError(flag + dot + rest, error.value, error.expected)
    return error
