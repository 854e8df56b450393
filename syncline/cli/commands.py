"""Commands made from the declarations of their questions.

The help of commands as text: options and commands under the headings of their panels.

Typer's own help is drawn by rich, which takes longer to import than everything else that ``syncline --help`` needs.

Readers of options: each makes the value of a field of the option's text, or of its texts if it is repeatable.

Names that a shell offers when Tab is pressed, as far as they can be found in an instant.
"""

from __future__ import annotations

import inspect
import os
import re
from collections import defaultdict
from collections.abc import (
    Callable,
    Iterable,
    Sequence,
    Set,
)
from dataclasses import MISSING, Field
from importlib import import_module
from pathlib import Path
from typing import (
    Annotated,
    Any,
    get_args,
    get_type_hints,
)

import typer
from typer.core import TyperCommand

from syncline.errors import SpecError, one_of
from syncline.questions import question_of
from syncline.questions.declare import SHELL, Option, Question, appearance_of, flag_of
from syncline.registry import lazy_function, no_code

# NO_COLOR means no escape sequences, not only no colours (https://no-color.org); rich would still print in bold.
PLAIN = bool(os.environ.get("NO_COLOR"))

SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {
        "help_option_names": ["-h", "--help"],
        "color": False if PLAIN or os.environ.get("TERM") == "dumb" else None,
        "max_content_width": 120,
    },
}
"""Settings of every application of typer's."""


class Command(TyperCommand):
    """A command whose help has the options under their panels' headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options."""
        write_parameters(self, ctx, formatter)


def write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the arguments and options of a command, those without a panel first."""
    panels: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for heading in ("Arguments", "Options"):
        panels[heading] = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record:
            heading = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panels[getattr(parameter, "rich_help_panel", None) or heading].append(record)
    for heading, rows in panels.items():
        write_rows(formatter, heading, rows)


def write_rows(formatter: Any, heading: str, rows: Sequence[tuple[str, str]]) -> None:
    """Write names with their descriptions under a heading, unless there are none."""
    if rows:
        with formatter.section(typer.style(heading, bold=True)):
            formatter.write_dl([(typer.style(name, fg="cyan"), text) for name, text in rows])


def yaml(flag: str, written: str) -> Any:
    """Return a value as YAML reads it."""
    return _parsed(flag, written, written, "a value in YAML")


def values(flag: str, written: str) -> Any:
    """Return a list of values in YAML with commas between."""
    return _parsed(flag, written, f"[{written}]", "values with commas between")


def on_or_off(flag: str, written: str) -> bool:
    """Return whether the text is ``on``."""
    if written not in ("on", "off"):
        raise SpecError(flag, written, one_of(("on", "off"), written))
    return written == "on"


def networks(flag: str, written: list[str]) -> list[str]:
    """Return the networks in several texts; commas separate names in a text."""
    if not any("," in part for part in written):
        return written
    from syncline.specs.cluster.links import BY_NAME

    separate = []
    for part in written:
        names = [name.strip() for name in part.split(",")]
        separate += names if all(name.lower() in BY_NAME for name in names) else [part.strip()]
    return separate


def _parsed(flag: str, written: str, as_yaml: str, expected: str) -> Any:
    from syncline.files import parse_yaml

    try:
        return parse_yaml(as_yaml)
    except ValueError:
        raise SpecError(flag, written, expected) from None


READERS: dict[str, Callable[[str, Any], Any]] = {
    "text": lambda flag, written: written,  # the answer reads it
    "yaml": yaml,
    "values": values,
    "many_values": lambda flag, written: values(flag, ",".join(written)) if written else None,
    "words": lambda flag, written: [part.strip() for part in written.split(",")],
    "on_or_off": on_or_off,
    "networks": networks,
    "number_or_text": lambda flag, written: lazy_function("syncline.units:number_or_text")(written),
    "process_counts": lambda flag, written: lazy_function("syncline.measure.calibration.plan:numbers_of")(written),
    "grids": lambda flag, written: list(map(lazy_function("syncline.specs.grid:Grid.parse"), written)),
    "ranges": lambda flag, written: list(map(lazy_function("syncline.runs.sweep.search:Tuned.parse"), written)),
}
"""The readers by the names that fields of questions have: functions of the option's name and text."""


CATALOGUES = {
    "networks": "syncline.specs.cluster.links:BY_NAME",
    "clusters": "syncline.specs.cluster.clusters:bundled_clusters",
    "hardware": "syncline.specs.cluster.hardware:BY_NAME",
    "models": "syncline.specs.models:BY_NAME",
    "methods": "syncline.methods:METHODS",
    "collectives": "syncline.costmodel:COLLECTIVES",
    "schedules": "syncline.sim.pipelines.schedules:SCHEDULES",
    "failures": "syncline.costmodel.failures:FAILURE_RATES",
}
"""The place of each catalogue of names: a registry, a mapping, or a function that returns one of them."""


def offer_of(completion: str | tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return the function that offers names for the beginning of a word, or of its part after the last comma.

    Args:
        completion: the completion of a question's field: names, a catalogue, or ``specs_of:run,compare``.
    """

    def offer(incomplete: str) -> list[str]:
        before, comma, prefix = incomplete.rpartition(",")
        return [before + comma + name for name in _names(completion) if name.startswith(prefix)]

    return offer


def _names(completion: str | tuple[str, ...]) -> Iterable[str]:
    """Return all names of a completion; a shell itself offers files."""
    if not isinstance(completion, str):
        return completion
    source, _, commands = completion.partition(":")
    if source == "specs_of":
        return _specs_of(commands.split(","))
    if source == "algorithms":
        from syncline.costmodel import ALGORITHMS, OF_DIRECT, OF_NCCL, OF_PLACES

        catalogues = ALGORITHMS, OF_PLACES, OF_DIRECT, OF_NCCL
        names = (name for catalogue in catalogues for kind in catalogue.values() for name in kind)
        return ("auto", "gloo", "nccl", *dict.fromkeys(names))
    if source == "replications":
        from syncline.checkout import has_replication, import_replication

        return list(import_replication("replications").bundled_replications()) if has_replication() else ()
    if source == "runs":
        return sorted(str(path) for path in Path("runs").iterdir() if path.is_dir()) if Path("runs").is_dir() else ()
    module, _, name = CATALOGUES[source].partition(":")
    catalogue: Any = getattr(import_module(module), name)
    catalogue = catalogue() if callable(catalogue) else catalogue
    return catalogue.names() if hasattr(catalogue, "names") else list(catalogue)


def _specs_of(commands: Iterable[str]) -> list[str]:
    """Return the bundled specs that one of the commands accepts."""
    from syncline.specs.load import bundled, command_of_kind

    kinds = {name: re.search(r"^kind: *([\w-]+)", path.read_text("utf-8"), re.M) for name, path in bundled().items()}
    return [name for name, kind in kinds.items() if kind and command_of_kind(kind[1]) in commands]


COMMANDS = {
    "compare": "trainings", "run": "trainings", "sweep": "trainings", "best": "trainings", "replicate": "trainings",
    "launch": "trainings", "calibrate": "trainings", "validate": "trainings", "project": "answers",
    "collectives": "answers", "pipeline": "trainings", "advise": "answers", "solve": "answers", "loss": "answers",
    "goodput": "answers", "explore": "answers", "runs": "results", "show": "results", "verify": "results",
    "rm": "results", "same": "results", "report": "results", "trace": "answers", "whatif": "answers",
    "chakra": "answers", "list": "answers", "reproduce": "answers", "doctor": "answers",
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
