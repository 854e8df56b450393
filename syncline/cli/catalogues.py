"""Commands about what there is: the catalogues, the state of this machine, and the page of ``syncline explore``."""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec

from syncline.cli.shell import print_json_or_tables, say
from syncline.errors import SynclineError
from syncline.questions.catalogue import Doctor, List
from syncline.questions.explore import Explore


def print_list(question: List) -> None:
    """Print the names in one of the catalogues of ``syncline list``, such as networks or methods."""
    from syncline.planner.tables.display import catalogue_table
    from syncline.runs.catalogue import rows_of_catalogue

    rows = rows_of_catalogue(question, report=lambda line: say(f"warning: {line}"))
    print_json_or_tables(question, {"rows": rows}, lambda: [catalogue_table(question.catalogue, rows)])


def print_doctor(question: Doctor) -> None:
    """Print the versions, devices and extras of this machine, and what does not work because a part is missing."""
    from syncline.runs.doctor import finding_tables, findings

    rows = findings()
    print_json_or_tables(question, {"rows": rows}, lambda: finding_tables(rows))


def print_explore(question: Explore) -> None:
    """Serve the local page of ``syncline explore`` until Ctrl-C."""
    if find_spec("nicegui") is None:
        raise SynclineError("explore: needs packages that are not installed; pip install 'syncline[explore]' adds them")
    from syncline.planner.explore import server

    def ready(address: str) -> None:
        say(f"{address}  (Ctrl-C ends it)")
        if question.open:
            webbrowser.open(address)

    server.serve_question(question, ready)
