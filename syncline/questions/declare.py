"""The base class of questions: frozen dataclasses whose fields become a function's arguments and a command's options.

A field has a type, a default and one sentence of help. `syncline.api.functions` makes a function of the fields,
`syncline.cli.commands` a command.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, dataclass_transform

REQUIRED = MISSING
"""Default of a field that needs a value."""

SAME: Any = ...
"""Value of `Option.shell_default` if a command's option has the same default as the function's argument."""

SHELL, PYTHON = "shell", "python"
"""Values of `Option.place`, for fields that exist only as an option or only as an argument."""

REST = "fields"
"""Name of the field that sets other fields of a spec: ``**fields`` of the function, ``--set`` of the command."""

RAISES = """Raises:
    SynclineError: an argument is wrong; one line says which one, and which values are accepted."""
"""The section on errors in the docstring of a function whose question has no such section."""


@dataclass(frozen=True)
class Option:
    """The appearance of a question's field as an option of a command and as an argument of a function.

    Attributes:
        help: a sentence for the option's help and the argument's description.
        description: description of the argument, if Python accepts more than the command.
        flag: name of the option, optionally with a short name behind it; by default ``--`` and the field's name.
        metavar: placeholder of the value in the help.
        completion: the names to complete, or the name of a completion of `syncline.cli.commands`.
        panel: heading of the option in the help.
        reader: name of a reader of `syncline.cli.commands` that makes the field's value of the option's text.
        place: `SHELL` or `PYTHON` for a field that only one of them has.
        shell_default: default of the command, or `REQUIRED`; by default the function's.
        in_order: whether the function takes the value by its position, too.
        positional: whether the command takes the value without the option's name.
        repeatable: whether the option can be repeated, so that its value is a list.
        minimum: least value of a number.
        several: whether the option takes all values up to the next option, as ``--from logs/*.json`` does.
    """

    help: str
    description: str = ""
    flag: str = ""
    metavar: str = ""
    completion: str | tuple[str, ...] = ()
    panel: str = ""
    reader: str = ""
    place: str = ""
    shell_default: Any = SAME
    in_order: bool = False
    positional: bool = False
    repeatable: bool = False
    minimum: int | None = None
    several: bool = False


def option(help: str, default: Any = None, **appearance: Any) -> Any:
    """Return a field of a question.

    Args:
        help: the option's help, see `Option`.
        default: default of the field, or `REQUIRED`.
        **appearance: other attributes of `Option`.
    """
    return field(default=default, kw_only=True, metadata={"option": Option(help, **appearance)})


def appearance_of(declared: Field[Any]) -> Option:
    """Return how a question's field appears in the shell: its flag, its help, and its reader."""
    appearance: Option = declared.metadata["option"]
    return appearance


def flag_of(declared: Field[Any]) -> str:
    """Return the name of a field on the command line: ``--batch-tokens``, or ``spec`` of a positional argument."""
    appearance = appearance_of(declared)
    if appearance.positional:
        return declared.name
    if not appearance.flag:
        return f"--{declared.name.replace('_', '-')}"
    positive_form, _, _ = appearance.flag.partition("/")  # of ``--fits/--no-fits``
    long_name, _, _ = positive_form.partition(" ")  # of ``--out -o``
    return long_name


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Question:
    """The base class of questions; each subclass becomes a frozen dataclass.

    The first paragraphs of a subclass's docstring are the help of its command. The docstring of its function has all
    paragraphs, with the arguments before ``Returns:``, and `RAISES` unless it has a section on errors.

    Attributes:
        command: name of the command and of the function: the class's name in lower case.
        returns: name of the answer's class.
        panel: heading of the command in the list of commands.
        examples: command lines at the end of the command's help.
    """

    command: ClassVar[str] = ""
    returns: ClassVar[str] = "Result"
    panel: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, panel: str = "", examples: tuple[str, ...] = ()) -> None:
        cls.command, cls.panel, cls.examples = cls.__name__.lower(), panel, examples
        dataclass(frozen=True, repr=False, eq=False)(cls)

    @classmethod
    def declared(cls, place: str) -> list[Field[Any]]:
        """Return the fields of a place, `SHELL` or `PYTHON`, in the order of the help.

        Fields of the class come before those of its base classes, and options on the output come last.
        """
        depth_by_name: dict[str, int] = {}
        for depth, base in enumerate(cls.__mro__):
            for name in inspect.get_annotations(base):
                depth_by_name.setdefault(name, depth)

        def position(candidate: Field[Any]) -> tuple[bool, int]:
            appearance = appearance_of(candidate)
            is_output = appearance.place == SHELL and not appearance.panel
            return is_output, depth_by_name[candidate.name]

        all_fields = fields(cls)  # type: ignore[arg-type]
        return sorted((member for member in all_fields if appearance_of(member).place in ("", place)), key=position)

    @classmethod
    def summary(cls) -> str:
        """Return the class's docstring without its sections on returned values and errors and its examples."""
        paragraphs, *_ = re.split(r"\n(?=(?:Returns|Raises):|>>> )", inspect.cleandoc(cls.__doc__ or ""))
        return paragraphs.strip()

    @classmethod
    def docstring(cls) -> str:
        """Return the docstring of the question's function, with a description of every argument."""
        appearances = {declared.name: appearance_of(declared) for declared in cls.declared(PYTHON)}
        descriptions = []
        for name, parameter in cls.signature().parameters.items():
            stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
            text = f"{stars}{name}: {appearances[name].description or appearances[name].help}"
            descriptions.append(textwrap.fill(text, width=112, subsequent_indent="    "))
        arguments = "Args:\n" + textwrap.indent("\n".join(descriptions), "    ")
        after_summary = inspect.cleandoc(cls.__doc__ or "")[len(cls.summary()) :].strip()
        sections, prompt, example = after_summary.partition(">>> ")
        errors = "" if "Raises:" in sections else RAISES
        parts = [cls.summary(), arguments, sections.strip(), errors, prompt + example]
        return "\n\n".join(part for part in parts if part)

    @classmethod
    def signature(cls) -> inspect.Signature:
        """Return the signature of the question's function."""
        parameters = []
        for declared in cls.declared(PYTHON):
            in_order = appearance_of(declared).in_order
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if in_order else inspect.Parameter.KEYWORD_ONLY
            default = inspect.Parameter.empty if declared.default is MISSING else declared.default
            if declared.name == REST:
                parameters.append(inspect.Parameter(REST, inspect.Parameter.VAR_KEYWORD, annotation="Any"))
            else:
                parameters.append(inspect.Parameter(declared.name, kind, default=default, annotation=declared.type))
        parameters.sort(key=lambda parameter: parameter.kind)  # positional ones first, ``**fields`` last
        return inspect.Signature(parameters, return_annotation=cls.returns)

    def __post_init__(self) -> None:
        """Replace the value of each repeatable field by a list, unless the field has a mapping."""
        for declared in fields(self):  # type: ignore[arg-type]
            value = getattr(self, declared.name)
            is_mapping = "Mapping" in str(declared.type)
            if appearance_of(declared).repeatable and value is not None and not is_mapping:
                object.__setattr__(self, declared.name, listed(value))  # the dataclass is frozen


def listed(value: Any) -> list[Any]:
    """Return the items of a list, tuple or range as a list; a list of any other value; an empty list for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple | range) else [value]
