"""The command that reports the versions, devices and extras of this machine."""

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

    results = findings()
    if as_json:
        emit({"rows": records(results)})
        return
    console = new_console()
    for group in dict.fromkeys(finding.group for finding in results):
        console.print(_table(group, [finding for finding in results if finding.group == group]))
    lacking = sum(not finding.ok for finding in results)
    summary = f"not here: {lacking}, as told above; all else works" if lacking else "all that can be used is here"
    console.print(summary)


def _table(group: str, findings: list[Finding]) -> Group:
    """Return a table of names, results, and the consequences of a missing part."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = Table.grid(padding=(0, 2))
    rows.add_column(min_width=NAME_WIDTH, no_wrap=True)
    rows.add_column(overflow="fold")
    for finding in findings:
        description = finding.found + (f"; {finding.without}" if finding.without else "")
        rows.add_row(f"  {finding.name}", Text(description))
    return Group(Text(group, style="bold"), rows, Text())
