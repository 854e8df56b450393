"""The command that says what is to be had here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.cli.shell import JsonOption, app, emit, examples, new_console

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.runs.doctor import Finding


NAME_WIDTH = 20


@app.command("doctor", rich_help_panel="What there is", epilog=examples("syncline doctor", "syncline doctor --json"))
def doctor_command(as_json: JsonOption = False) -> None:
    """Say what is here (versions, devices, cores, extras), what will be skipped for want of it, and why."""
    from syncline.runs.doctor import findings, records

    found = findings()
    if as_json:
        emit({"rows": records(found)})
        return
    console = new_console()
    for group in dict.fromkeys(one.group for one in found):
        console.print(_table(group, [one for one in found if one.group == group]))
    lacking = sum(not one.ok for one in found)
    said = f"not here: {lacking}, as told above; all else works" if lacking else "all that can be used is here"
    console.print(said)


def _table(group: str, found: list[Finding]) -> Group:
    """Names, what was found, and what is missed without."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 2))
    rows.add_column(min_width=NAME_WIDTH, no_wrap=True)
    rows.add_column(overflow="fold")
    for one in found:
        told = one.found + (f"; {one.without}" if one.without else "")
        rows.add_row(f"  {one.name}", Text(told))
    return Group(Text(group, style="bold"), rows, Text())
