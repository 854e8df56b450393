"""The help of commands as text: options and commands under the headings of their panels.

Typer's own help is drawn by rich, which takes longer to import than everything else that ``syncline --help`` needs.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

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
