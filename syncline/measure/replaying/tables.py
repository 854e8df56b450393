"""Tables of ``syncline trace`` and ``whatif`` for people."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.constrain import Constrain
from rich.text import Text

from syncline.measure.replaying.scenario import ReplayedOn
from syncline.planner.tables.display import CLOCK, bounds_note, clock_note, clock_table, network_title, target_note
from syncline.planner.tables.table import NOTE_WIDTH, table
from syncline.units import format_seconds

MOST_SITES = 5
"""Largest number of lines of a script that a table has for each network."""

LEAST_OF_STEP = 1e-3
"""Part of a step: a line with less time on the network is in no table; ``--json`` has all lines."""

LEAST_ELASTICITY, LEAST_SHARE, MOST_LINES_TOLD = 0.01, 0.1, 3
"""Limits of the text: smallest elasticity, smallest share of the waiting, largest number of lines of the script."""

ReplayRows = Sequence[Mapping[str, Any]]


def trace_tables(result: Mapping[str, Any], question: ReplayedOn) -> list[Group]:
    """Return tables of the rows, the lines that workers wait for, the links, and the causes of the step time."""
    rows = list(result["rows"])
    has_several = len({row["method"] for row in rows}) > 1
    tables = _compared(rows, question) if has_several else [_table_of_script(rows, question)]
    times = {(row["method"], row["network"]): row["step_time_s"] for row in rows}
    sites: list[Mapping[str, Any]] = []
    for group in _grouped_by(result["sites"], "network", "method"):
        least_s = LEAST_OF_STEP * times[group[0]["method"], group[0]["network"]]
        sites += [row for row in group if row["communication_s"] > least_s][:MOST_SITES]
    if sites:
        name = line_names([row["site"] for row in sites])
        columns = "calls bytes communication_s exposed_communication_s"
        tables.append(
            _by_network(
                "lines that communicate", "line", columns, rows=sites, note=SITES_NOTE, several=has_several, name=name
            )
        )
    if links := result.get("links"):
        tables.append(
            _by_network(
                "links",
                "link",
                columns="channels bytes most_bytes busy",
                rows=links,
                note=LINKS_NOTE,
                several=has_several,
                name=str,
            )
        )
    if result.get("sensitivities"):
        tables.append(_causes(result["sensitivities"], rows, has_several))
    return tables


SITES_NOTE = (
    "Means per worker and step. Exposed: waiting with nothing to compute, wherever the script waits for what the line "
    "began."
)
LINKS_NOTE = (
    "Per step. Ways: directions of links that carry anything; bytes: of each, and of the busiest. Busy: of a step, at "
    "the busiest link's full rate."
)


def _by_network(
    title: str, first: str, columns: str, rows: ReplayRows, note: str, several: bool, name: Callable[[str], str]
) -> Group:
    """Return a table with a section for each network, and with the names of the scripts if there are several."""
    names = f"{first} {'script ' if several else ''}network {columns}"
    computed = {"script": lambda row: row["method"], "line": lambda row: name(row["site"])}
    return table(title, names, list(rows), note=note, section="network", values=computed)  # type: ignore[arg-type]


def _table_of_script(rows: list[dict[str, Any]], question: ReplayedOn) -> Group:
    """Return the table of one script: a row per network."""
    first = rows[0]
    title = f"{first['method']}: {first['workers']:,} workers, {first['steps']:,} steps, {_machine(question)}"
    return clock_table(title, f"network{_changed(question)} {CLOCK}{_losses(rows)}", rows, note=_note(rows))


def _compared(rows: list[dict[str, Any]], question: ReplayedOn) -> list[Group]:
    """Return the tables of several scripts: one table per network."""
    reached = "" if rows[0]["target_loss"] is None else " time_to_target_s time_to_target_speedup"
    columns = f"script{_changed(question)}{_losses(rows)} {CLOCK} speedup{reached}"
    note = f"{_note(rows)}{target_note(rows)}\nSpeedups: over {rows[0]['method']}."
    sizes = {(row["workers"], row["steps"]) for row in rows}
    tables = []
    for on in question.networks:
        title = network_title(on, *sizes.copy().pop()) if len(sizes) == 1 else f"{on.name}: {on.describe()}"
        network_rows = [row for row in rows if row["network"] == on.name]
        last_note = note if on is question.networks[-1] else ""
        tables.append(clock_table(f"{title}, {_machine(question)}", columns, network_rows, note=last_note))
    return tables


def _machine(question: ReplayedOn) -> str:
    """Return the hardware and the changes of a replay in words, for a table's title."""
    changes = question.changes.describe()
    return f"computing on {question.hardware.name}" + (f"; {changes}" if changes else "")


def _changed(question: ReplayedOn) -> str:
    """Return the column of the step time without changes, if something is changed."""
    return " unchanged_step_time_s" if question.changes.describe() else ""


def _losses(rows: ReplayRows) -> str:
    """Return the column of the last loss, if the scripts have losses."""
    return " loss" if any(row["last_loss"] is not None for row in rows) else ""


def _note(rows: list[dict[str, Any]]) -> str:
    """Return the note below a table of replays: what its columns mean, and its bounds."""
    steps = "" if rows[0]["steps"] < 2 else " Means are of the steps after the first."
    loss = " Loss: of the last tenth of the steps." if rows[0]["last_loss"] is not None else ""
    return f"{clock_note(rows)}{steps}{loss}{bounds_note(rows)}"


def _grouped_by(rows: ReplayRows, *names: str) -> list[list[Mapping[str, Any]]]:
    """Return the rows grouped by the values of the named columns."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.values())


def line_names(sites: Sequence[str]) -> Callable[[str], str]:
    """Return a function that names a line of a script without its folder, unless another file has the same name.

    >>> line_names(["/a/b/train.py:7"])("/a/b/train.py:7"), line_names(["/a/x.py:1", "/b/x.py:1"])("/b/x.py:1")
    ('train.py:7', 'b/x.py:1')
    """
    files = {site.rpartition(":")[0] for site in sites}
    bases = [os.path.basename(file) for file in files]

    def name(site: str) -> str:
        """Return a line's file and number, with the folder if two files have one name."""
        file, colon, line = site.rpartition(":")
        base = os.path.basename(file)
        if bases.count(base) > 1:
            base = os.path.join(os.path.basename(os.path.dirname(file)), base)
        return f"{base}{colon}{line}" if file else site or "-"

    return name


def _causes(rows: ReplayRows, replays: ReplayRows, several: bool) -> Group:
    """Return text about what decides a step, some lines per record and network."""
    times = {(row["method"], row["network"]): row["step_time_s"] for row in replays}
    lines: list[Any] = [Text("what decides a step", style="bold")]
    for group in _grouped_by(rows, "method", "network"):
        method, network = group[0]["method"], group[0]["network"]
        begin = f"{method} on {network}" if several else network
        lines.append(Constrain(Text(f"{begin}: {' '.join(decisive(group, times[method, network]))}"), NOTE_WIDTH))
    return Group(*lines, Text(""))


def decisive(rows: ReplayRows, step_time_s: float) -> list[str]:
    """Return sentences about the sensitivities of a record on a network, the strongest first."""
    by_kind = {
        kind: [row for row in rows if row["by"] == kind] for kind in ("compute", "bandwidth", "latency", "site", "rank")
    }
    rates = by_kind["compute"]
    for kind in ("bandwidth", "latency"):
        links = by_kind[kind]  # the first row is for all links together
        rates = rates + (links[1:] if len(links) > 1 else links)
    phrases = [
        f"{abs(row['elasticity']):.2f}% {'shorter' if row['elasticity'] < 0 else 'longer'} with 1% more {_cause(row)}"
        for row in sorted(rates, key=lambda row: -abs(row["elasticity"]))
        if abs(row["elasticity"]) >= LEAST_ELASTICITY
    ]
    sentences = [f"{format_seconds(step_time_s)}; {', '.join(phrases)}."] if phrases else []
    name = line_names([row["name"] for row in by_kind["site"]])
    for row in sorted(by_kind["site"], key=lambda row: row["step_time_s"])[:MOST_LINES_TOLD]:
        sentences.append(f"Without {name(row['name'])} {format_seconds(row['step_time_s'])} ({-row['share']:+.0%}).")

    # Each rank is the last one sometimes: only a rank that stands out is named.
    most_awaited, *other_ranks = sorted(by_kind["rank"], key=lambda row: -row["share"])
    least_share = max([LEAST_SHARE, *(2 * row["share"] for row in other_ranks)])
    if most_awaited["share"] >= least_share:
        sentences.append(f"{most_awaited['share']:.0%} of all waiting is for rank {most_awaited['name']}.")
    return sentences or [f"nothing that was varied changes the {format_seconds(step_time_s)} of a step."]


def _cause(row: Mapping[str, Any]) -> str:
    """Return in words what a row of `sensitivities` varies, as in ``bandwidth of uplinks``."""
    quantity = {"compute": "speed of computing"}.get(row["by"], row["by"])
    return quantity if row["name"] in ("all links", "hardware") else f"{quantity} of {row['name']}"
