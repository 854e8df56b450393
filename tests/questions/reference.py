"""``docs/reference.md``, written anew from the questions: ``python -m tests.questions.reference``."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from syncline.api.functions import ANSWERS
from syncline.cli.commands import COMMANDS
from syncline.planner.explore.settings import FIELDS
from syncline.questions import question_of
from syncline.questions.declare import PYTHON, REST, SHELL, Question, appearance_of, flag_of
from syncline.questions.explore import Explore, PageSettings

FILE = Path(__file__).parents[2] / "docs" / "reference.md"

HEAD = """# Reference of commands and functions

This page lists every command and its function of `import syncline as sl`, with all options and arguments.
[commands.md](commands.md) says what the commands do, [records.md](records.md) what they return. Every command also
takes `--no-code` and `--help`.
"""


def page() -> str:
    """Return the whole page."""
    panels: dict[str, list[str]] = {}
    for command in COMMANDS:
        panels.setdefault(question_of(command).panel, []).append(_section(question_of(command)))
    return "\n".join([HEAD, *("\n".join([f"## {panel}\n", *sections]) for panel, sections in panels.items())])


def _section(question: type[Question]) -> str:
    """Return the section of a question: its summary, the command line, the function, and a row per field."""
    fields = {field.name: field for place in (SHELL, PYTHON) for field in question.declared(place)}
    is_function = question.command in ANSWERS
    words = [_metavar(field) for field in question.declared(SHELL) if appearance_of(field).positional]
    lines = [f"### {question.command}\n", f"{question.summary()}\n", "```", *question.examples, "```", ""]
    usage = f"Usage: `syncline {' '.join([question.command, '[OPTIONS]', *words])}`"
    lines.append(usage + (f"; in Python `sl.{question.command}(...)`.\n" if is_function else ".\n"))
    lines += [
        "| option | argument | default | meaning |" if is_function else "| option | default | meaning |",
        "|---|---|---|---|" if is_function else "|---|---|---|",
    ]
    for field in fields.values():
        appearance = appearance_of(field)
        argument = "" if appearance.place == SHELL else f"`{'**' * (field.name == REST)}{field.name}`"
        cells = [_option(field), argument, _default(field), appearance.help]
        del cells[1 : 1 if is_function else 2]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if question is Explore:
        lines += ["", "The settings of a link:", "", "| setting | label | default | meaning |", "|---|---|---|---|"]
        for field in FIELDS:
            value, control = field.write(getattr(PageSettings(), field.name)), field.control
            lines.append(f"| `{field.name}` | {control.label} | {f'`{value}`' if value else ''} | {control.help} |")
    return "\n".join([*lines, ""])


def _default_of(field: Field[Any]) -> Any:
    """Return the default of the command, else that of the function."""
    appearance = appearance_of(field)
    return field.default if appearance.shell_default is ... else appearance.shell_default


def _metavar(field: Field[Any]) -> str:
    metavar = appearance_of(field).metavar or field.name.upper()
    return metavar if _default_of(field) is MISSING or metavar.startswith(("[", "--")) else f"[{metavar}]"


def _option(field: Field[Any]) -> str:
    """Return the option as one types it; nothing for a field of Python alone."""
    appearance = appearance_of(field)
    if appearance.place == PYTHON:
        return ""
    return f"`{appearance.metavar if appearance.positional else f'{flag_of(field)} {appearance.metavar}'.strip()}`"


def _default(field: Field[Any]) -> str:
    """Return the default; nothing if the help says what happens without a value."""
    default = _default_of(field)
    if default is MISSING:
        return "required"
    return "" if default in (None, "", False) else f"`{re.sub(r'[()]', '', str(default))}`"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
