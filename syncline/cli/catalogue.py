"""Printing of the names that specs and options accept, and of what this machine has; the page of explore; Chakra."""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from syncline.cli.shell import emit, new_console, print_each, say, warn
from syncline.errors import SpecError, SynclineError, one_of
from syncline.questions.chakra import ACTIONS, Chakra
from syncline.questions.doctor import Doctor
from syncline.questions.explore import Explore
from syncline.questions.list import List
from syncline.units import format_bytes

FRAMEWORK = "nicegui"


def print_list(question: List) -> None:
    """Print the names of a catalogue."""
    from syncline.planner.tables.display import catalogue_table
    from syncline.runs.catalogue import CATALOGUES
    from syncline.specs import model as model_of

    catalogue = question.catalogue
    if catalogue not in CATALOGUES:
        raise SpecError("list", catalogue, one_of(CATALOGUES, catalogue))
    options = {"model": question.model, "workers": question.workers}
    arguments: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name, value in arguments.items() if catalogue != "methods" else ():
        raise SpecError(f"--{name}", value, f"no {name}, as a list of {catalogue} depends on none")
    if "model" in arguments:
        arguments["shape"] = model_of(arguments.pop("model"), "--model")
    rows = CATALOGUES[catalogue](**arguments, report=lambda line: warn([line]))
    if question.json:
        emit({"rows": rows})
    else:
        new_console().print(catalogue_table(catalogue, rows))


def print_doctor(question: Doctor) -> None:
    """Print the versions, devices and extras of this machine, and the consequences of a missing part."""
    from syncline.runs.doctor import finding_tables, findings, records

    results = findings()
    if question.json:
        emit({"rows": records(results)})
    else:
        print_each(new_console(), finding_tables(results))


def print_explore(question: Explore) -> None:
    """Serve the page of explore."""
    if find_spec(FRAMEWORK) is None:
        raise SynclineError("explore: needs packages that are not installed; pip install 'syncline[explore]' adds them")
    if not 0 <= question.port < 2**16:
        raise SpecError("--port", question.port, "0 for a free one, or a number up to 65,535")
    from syncline.planner.explore import server, settings

    query = urlsplit(question.link).query if "?" in question.link else question.link
    fields = dict(parse_qsl(query, keep_blank_values=True))
    if question.network is not None:
        fields = {"network": settings.offer_network(question.network)} | fields
    page_settings, problems = settings.from_query(fields)
    if problems:
        raise SynclineError(problems[0])

    def ready(address: str) -> None:
        say(f"{address}  (Ctrl-C ends it)")
        if question.open:
            webbrowser.open(address)

    server.serve_page(settings.to_query(page_settings) if fields else "", question.port, ready)


def print_chakra(question: Chakra) -> None:
    """Convert a record to execution traces, or back, and print where they are."""
    from syncline.measure.replaying.chakra.folders import export_record, import_chakra

    if question.action not in ACTIONS:
        raise SpecError("action", question.action, one_of(ACTIONS, question.action))
    source, exact = question.source, question.out is not None
    kind = "chakra" if question.action == "export" else "record"
    target = Path(question.out or f"runs/{source.resolve().name}-{kind}")
    if question.action == "export":
        rows, folder = export_record(source, question.hardware, question.host, target, exact=exact)
        summary = f"{len(rows)} ranks, {format_bytes(sum(row['bytes'] for row in rows))} in {folder}/"
    else:
        rows, folder = import_chakra(source, target, exact=exact)
        summary = f"record in {folder}/; on networks: syncline whatif {folder} --hardware measured --network NET"
    if question.json:
        emit({"rows": rows, "folder": str(folder)})
    else:
        say(summary)
