"""The commands of the shell, which typer makes of the fields of questions.

The module has four parts: help texts, functions that read the text of an option, names that the shell completes, and
the commands. Typer's own help is drawn by rich, which takes longer to import than all else that ``syncline --help``
needs; the help here is plain text.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import Field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from syncline.errors import SpecError, require_one_of
from syncline.questions import question_of
from syncline.questions.declare import REQUIRED, SAME, SHELL, Option, Question, appearance_of, flag_of, listed
from syncline.registry import import_reference, lazy_function, no_code

# NO_COLOR means no escape sequences, not only no colours (https://no-color.org); rich would still print in bold.
WITHOUT_COLORS = bool(os.environ.get("NO_COLOR"))

SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {
        "help_option_names": ["-h", "--help"],
        "color": False if WITHOUT_COLORS or os.environ.get("TERM") == "dumb" else None,
        "max_content_width": 120,
    },
}
"""Settings of each typer application."""


def write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help of a command's arguments and options under their headings.

    Args:
        command: a command of click.
        ctx: click's context of the command.
        formatter: click's formatter, which collects the text.
    """
    rows_by_heading: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        heading = getattr(parameter, "rich_help_panel", None) or f"{parameter.param_type_name}s".capitalize()
        rows_by_heading.setdefault(heading, []).append(parameter.get_help_record(ctx))
    for heading, rows in rows_by_heading.items():
        write_rows(formatter, heading, rows)


def write_rows(formatter: Any, heading: str, rows: Sequence[tuple[str, str]]) -> None:
    """Write a heading and below it each name with its description; write nothing without rows."""
    if rows:
        with formatter.section(typer.style(heading, bold=True)):
            formatter.write_dl([(typer.style(name, fg="cyan"), text) for name, text in rows])


class Command(TyperCommand):
    """A command whose help lists its options under headings."""

    format_options = write_parameters


def read_yaml(flag: str, text: str) -> Any:
    """Return the value that an option's text means in YAML; ``flag`` names the option in an error."""
    from syncline.files import parse_yaml

    try:
        return parse_yaml(text)
    except ValueError:
        raise SpecError(flag, text, "a value in YAML") from None


def read_values(flag: str, text: str) -> Any:
    """Return the list of YAML values that commas separate in an option's text."""
    values = None
    with suppress(SpecError):
        values = read_yaml(flag, f"[{text}]")
    if not values:  # an empty text may be a variable of the shell that is not set
        raise SpecError(flag, text, "values separated by commas")
    return values


def read_on_or_off(flag: str, text: str) -> bool:
    """Return True for the text ``on`` and False for ``off``; refuse other texts."""
    require_one_of(flag, text, ("on", "off"))
    return text == "on"


def read_networks(flag: str, texts: list[str]) -> list[str]:
    """Return the networks that the texts of a repeated option name.

    A text whose parts between commas are all names of networks counts as several networks. Any other text is one
    network, such as ``50us,10Gbit/s``.
    """
    if not any("," in text for text in texts):
        return texts
    from syncline.specs.cluster.network_names import BY_NAME

    networks = []
    for text in texts:
        names = [name.strip() for name in text.split(",")]
        if all(name.lower() in BY_NAME for name in names):
            networks += names
        else:
            networks.append(text.strip())
    return networks


READERS: dict[str, Callable[[str, Any], Any]] = {
    "text": lambda flag, written: written,  # the function that answers the question reads the text
    "yaml": read_yaml,
    "values": read_values,
    "many_values": lambda flag, written: read_values(flag, ",".join(written)) if written else None,
    "words": lambda flag, written: [part.strip() for part in written.split(",")],
    "on_or_off": read_on_or_off,
    "networks": read_networks,
    "number_or_text": lambda flag, written: lazy_function("syncline.units:number_or_text")(written),
    "process_counts": lambda flag, written: lazy_function("syncline.measure.calibration.plan:process_counts")(written),
    "grids": lambda flag, written: list(map(lazy_function("syncline.specs.grid:Grid.parse"), written)),
    "ranges": lambda flag, written: list(map(lazy_function("syncline.runs.sweep.search:Tuned.parse"), written)),
}
"""Functions from an option's name and its text, or its list of texts if it is repeatable, to the field's value.

The keys are the values that `syncline.questions.declare.Option.reader` can have.
"""

CATALOGUES = {
    "networks": "syncline.specs.cluster.network_names:BY_NAME",
    "clusters": "syncline.specs.cluster.clusters:bundled_clusters",
    "hardware": "syncline.specs.cluster.hardware:BY_NAME",
    "models": "syncline.specs.models:BY_NAME",
    "methods": "syncline.methods:METHODS",
    "collectives": "syncline.costmodel:COLLECTIVES",
    "schedules": "syncline.sim.pipelines.schedules:SCHEDULES",
    "failures": "syncline.costmodel.failures:FAILURE_RATES",
}
"""The ``module:name`` of each catalogue of names: a registry, a mapping, or a function that returns one of them."""


def completer(completion: str | tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return the function that completes a word in the shell; after a comma it completes the last part of the word.

    Args:
        completion: the names; or the name of a catalogue, ``algorithms``, ``replications``, ``runs``, or
            ``specs_of:COMMAND,...`` for the bundled specs that one of these commands takes.
    """

    def offer(incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        return [before + comma + name for name in _completion_names(completion) if name.startswith(prefix)]

    return offer


def _completion_names(completion: str | tuple[str, ...]) -> Iterable[str]:
    """Return all names that the shell can complete for an option."""
    if not isinstance(completion, str):
        return completion
    source, _, commands = completion.partition(":")
    if source == "specs_of":
        from syncline.specs.load import bundled, command_of_kind

        spec_names = []
        for name, path in bundled().items():
            kind = re.search(r"^kind: *([\w-]+)", path.read_text("utf-8"), re.M)
            if kind and command_of_kind(kind[1]) in commands.split(","):
                spec_names.append(name)
        return spec_names
    if source == "algorithms":
        from syncline.costmodel import ALGORITHMS, OF_DIRECT, OF_NCCL, OF_PLACES

        tables = (ALGORITHMS, OF_PLACES, OF_DIRECT, OF_NCCL)  # each has the names of a collective's algorithms
        names = chain.from_iterable(chain.from_iterable(table.values() for table in tables))
        return dict.fromkeys(["auto", "gloo", "nccl", *names])  # each name once
    if source == "replications":
        from syncline.checkout import has_replication, import_replication

        return import_replication("replications").bundled_replications() if has_replication() else ()
    if source == "runs":
        return sorted(map(str, Path("runs").glob("*/")))
    catalogue = import_reference(CATALOGUES[source], installed=True)
    if callable(catalogue):
        catalogue = catalogue()
    return catalogue.names() if hasattr(catalogue, "names") else catalogue


COMMANDS = {
    "compare": "trainings", "run": "trainings", "sweep": "trainings", "best": "trainings", "replicate": "trainings",
    "launch": "trainings", "calibrate": "trainings", "validate": "trainings", "project": "answers",
    "collectives": "answers", "pipeline": "trainings", "advise": "answers", "solve": "answers", "loss": "answers",
    "goodput": "answers", "explore": "catalogues", "runs": "results", "show": "results", "verify": "results",
    "rm": "results", "same": "results", "report": "results", "trace": "replays", "whatif": "replays",
    "chakra": "replays", "list": "catalogues", "reproduce": "replays", "doctor": "catalogues",
}  # fmt: skip
"""The module of ``syncline.cli`` that prints a command's answer, by command in the order of the help."""

FLAG = " "
"""Placeholder in the help for the value of an option that takes no value."""


def _refuse_code_if_given(context: typer.Context, is_given: bool) -> None:
    """Refuse names of code until the command ends, if the user gives ``--no-code``."""
    if is_given:
        context.with_resource(no_code())


NoCodeOption = Annotated[
    bool,
    typer.Option(
        "--no-code", metavar=FLAG, expose_value=False, is_eager=True, callback=_refuse_code_if_given,
        help="Refuse all names of code: module:name, file.py:name, {kind: python}.",
    ),
]  # fmt: skip


def command_of(name: str) -> Any:
    """Return the click command of this name, which typer makes of the command's question."""
    question_class = question_of(name)

    def print_answer_to(question: Any) -> None:
        module: Any = import_module(f"syncline.cli.{COMMANDS[name]}")  # imported only when the command runs
        printer = getattr(module, f"print_{name}", None) or module.print_answer
        printer(question)

    application = typer.Typer(add_completion=False, **SETTINGS)
    command = application.command(name, cls=Command, epilog="\n\n".join(["Examples:", *question_class.examples]))
    command(callback_of(question_class, print_answer_to))
    return typer.main.get_command(application)


def callback_of(question: type[Question], printer: Callable[[Any], None]) -> Callable[..., None]:
    """Return the function that typer calls with a command's options; it answers the question and prints the answer.

    Args:
        question: class of the question.
        printer: function that prints the answer to a question.
    """
    fields, annotations = question.declared(SHELL), get_type_hints(question)
    parameters = [_typer_parameter(field, annotations[field.name]) for field in fields]
    no_code_flag = inspect.Parameter("no_code", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=NoCodeOption)

    def callback(**options: Any) -> None:
        set_options = {parameter.name for parameter in parameters if options[parameter.name] != parameter.default}
        try:
            values = {field.name: _read_option(field, options[field.name], annotations[field.name]) for field in fields}
            printer(question(**values))
        except SpecError as error:
            raise _error_with_option(error, question, set_options) from None

    # Typer reads the command's help, its options and their types from these attributes.
    callback.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in question.summary().split("\n\n"))
    signature = inspect.Signature([*parameters, no_code_flag])
    callback.__signature__ = signature  # type: ignore[attr-defined]
    callback.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    return callback


def _typer_parameter(field: Field[Any], annotation: Any) -> inspect.Parameter:
    """Convert a question's field into a parameter of the function that typer calls for a command.

    Args:
        field: a field of a question.
        annotation: type of the field in Python.
    """
    appearance = appearance_of(field)
    shell_type = _shell_type(appearance, annotation)
    default = field.default if appearance.shell_default is SAME else appearance.shell_default
    if shell_type is str and default not in (REQUIRED, None):
        default = str(default)
    settings: dict[str, Any] = {
        "help": appearance.help,
        "metavar": appearance.metavar or (FLAG if shell_type is bool else None),
        "autocompletion": completer(appearance.completion) if appearance.completion else None,
        "min": appearance.minimum,
        "rich_help_panel": appearance.panel or None,
    }
    if appearance.positional:
        information = typer.Argument(**settings)
    else:
        information = typer.Option(*(appearance.flag or flag_of(field)).split(), **settings)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is REQUIRED else default,
        annotation=Annotated[shell_type | None if default is None else shell_type, information],
    )  # fmt: skip


def _shell_type(appearance: Option, annotation: Any) -> Any:
    """Return the type to which typer converts the text of an option, for a field of the type ``annotation``."""
    if appearance.repeatable:
        return list[str]
    if appearance.reader:
        return str
    types = {member for member in get_args(annotation) or (annotation,) if member is not type(None)}
    if types in ({bool}, {int}, {float}):
        return types.pop()
    return Path if Path in types else str


def _read_option(field: Field[Any], value: Any, annotation: Any) -> Any:
    """Return the value of a question's field from the option's value in the shell.

    Args:
        field: the field.
        value: the option's value: a text, a list of texts, a number or None.
        annotation: type of the field in Python.
    """
    for item in listed(value):
        if isinstance(item, str) and re.search("[\ud800-\udfff]", item):  # Python's stand-ins for bytes not in UTF-8
            raise SpecError(field.name, item, "text in Unicode")
    reader = appearance_of(field).reader
    if value is None or not reader:
        return value
    value = READERS[reader](flag_of(field), value)
    if reader not in ("yaml", "values"):  # YAML has values of every type; other readers return the right one
        return value
    from syncline.fields import checked_argument

    return checked_argument(field.name, value, annotation)


def _error_with_option(error: SpecError, question: type[Question], set_options: Set[str]) -> SpecError:
    """Return an error with the name of the option in place of the question's field.

    An error is about an option if the user has set the option, or if a value is missing. Any other error is returned
    unchanged: it is about a field of a spec, which may have the same name as an option.
    """
    first_name, dot, inner_path = error.path.partition(".")
    for field in question.declared(SHELL):
        flag = flag_of(field)
        is_named = first_name in (field.name, flag.removeprefix("--").replace("-", "_"))
        if is_named and (field.name in set_options or error.value is None):
            return SpecError(flag + dot + inner_path, error.value, error.expected)
    return error
