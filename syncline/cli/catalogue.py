"""Printing of the names that specs and options accept, and of what this machine has; the page of explore."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from syncline.cli.shell import emit, new_console, say, warn
from syncline.errors import SpecError, SynclineError, one_of

if TYPE_CHECKING:
    from rich.console import Group

    from syncline.questions.doctor import Doctor
    from syncline.questions.explore import Explore
    from syncline.questions.list import List
    from syncline.runs.doctor import Finding

FRAMEWORK = "nicegui"
NAME_WIDTH = 20


def print_list(question: List) -> None:
    """Print the names of a catalogue."""
    from syncline.runs.catalogue import CATALOGUES
    from syncline.specs import model as model_of

    if question.catalogue not in CATALOGUES:
        raise SpecError("list", question.catalogue, one_of(CATALOGUES, question.catalogue))
    options: dict[str, Any] = {
        "shape": question.model and model_of(question.model, "--model"),
        "workers": question.workers,
    }
    arguments = {name: value for name, value in options.items() if value is not None}
    if question.catalogue != "methods":
        for name, value in (("model", question.model), ("workers", question.workers)):
            if value is not None:
                raise SpecError(f"--{name}", value, f"no {name}, as a list of {question.catalogue} depends on none")
    rows = CATALOGUES[question.catalogue](**arguments, report=lambda line: warn([line]))
    if question.json:
        emit({"rows": rows})
        return
    from syncline.planner.tables import display

    new_console().print(display.catalogue_table(question.catalogue, rows))


def print_doctor(question: Doctor) -> None:
    """Print the versions, devices and extras of this machine."""
    from syncline.runs.doctor import findings, records

    results = findings()
    if question.json:
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


def print_explore(question: Explore) -> None:
    """Serve the page of explore."""
    if find_spec(FRAMEWORK) is None:
        raise SynclineError("explore: needs packages that are not installed; pip install 'syncline[explore]' adds them")
    if not 0 <= question.port < 2**16:
        raise SpecError("--port", question.port, "0 for a free one, or a number up to 65,535")
    from syncline.planner.explore.server import serve_page
    from syncline.planner.explore.settings import from_query, to_query

    query = urlsplit(question.link).query if "?" in question.link else question.link
    settings, problems = from_query(query)
    if problems:
        raise SynclineError(problems[0])

    def ready(address: str) -> None:
        say(f"{address}  (Ctrl-C ends it)")
        if question.open:
            import webbrowser

            webbrowser.open(address)

    serve_page(to_query(settings) if query else "", question.port, ready)
