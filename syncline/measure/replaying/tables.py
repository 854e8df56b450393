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

MAX_LINES_PER_NETWORK = 5
"""Largest number of lines of a script that a table has for each network."""

MIN_PART_OF_STEP = 1e-3
"""Part of a step: a line with less time on the network is in no table; ``--json`` has all lines."""

MIN_ELASTICITY, MIN_SHARE, MAX_LINES_IN_TEXT = 0.01, 0.1, 3
"""Limits of the text: smallest elasticity, smallest share of the waiting, largest number of lines of the script."""

ReplayRows = Sequence[Mapping[str, Any]]


def trace_tables(result: Mapping[str, Any], question: ReplayedOn) -> list[Group]:
    """Return tables of the rows, the lines that workers wait for, the links, and the causes of the step time."""
    rows = list(result["rows"])
    has_several_scripts = len({row["method"] for row in rows}) > 1
    tables = _script_comparison(rows, question) if has_several_scripts else [_script_table(rows, question)]
    step_s = {(row["method"], row["network"]): row["step_time_s"] for row in rows}
    script_column = "script" if has_several_scripts else ""
    lines: list[Any] = []
    for group in _group_by(result["sites"], "network", "method"):
        min_s = MIN_PART_OF_STEP * step_s[group[0]["method"], group[0]["network"]]
        lines += [row for row in group if row["communication_s"] > min_s][:MAX_LINES_PER_NETWORK]
    name_line = line_names([row["site"] for row in lines])
    computed = {"script": lambda row: row["method"], "line": lambda row: name_line(row["site"])}
    if lines:
        columns = f"line {script_column} network calls bytes communication_s exposed_communication_s"
        tables.append(
            table("lines that communicate", columns, lines, note=LINES_NOTE, section="network", values=computed)
        )
    links = list(result.get("links", ()))
    if links:
        columns = f"link {script_column} network channels bytes most_bytes busy"
        tables.append(table("links", columns, links, note=LINKS_NOTE, section="network", values=computed))
    if result.get("sensitivities"):
        tables.append(_causes(result["sensitivities"], step_s, has_several_scripts))
    return tables


LINES_NOTE = (
    "Means per worker and step. Exposed: waiting with nothing to compute, wherever the script waits for what the line "
    "began."
)
LINKS_NOTE = (
    "Per step. Ways: directions of links that carry anything; bytes: of each, and of the busiest. Busy: of a step, at "
    "the busiest link's full rate."
)


def _script_table(rows: list[dict[str, Any]], question: ReplayedOn) -> Group:
    """Return the table of one script: a row per network."""
    first = rows[0]
    title = f"{first['method']}: {first['workers']:,} workers, {first['steps']:,} steps, {_describe(question)}"
    columns = f"network {_unchanged_column(question)} {CLOCK} {_loss_column(rows)}"
    return clock_table(title, columns, rows, note=_note(rows))


def _script_comparison(rows: list[dict[str, Any]], question: ReplayedOn) -> list[Group]:
    """Return the tables of several scripts: one table per network."""
    columns = f"script {_unchanged_column(question)} {_loss_column(rows)} {CLOCK} speedup"
    if rows[0]["target_loss"] is not None:
        columns += " time_to_target_s time_to_target_speedup"
    note = f"{_note(rows)}{target_note(rows)}\nSpeedups: over {rows[0]['method']}."
    have_same_size = len({(row["workers"], row["steps"]) for row in rows}) == 1  # then the title tells it
    tables = []
    for network in question.networks:
        title = f"{network.name}: {network.describe()}"
        if have_same_size:
            title = network_title(network, rows[0]["workers"], rows[0]["steps"])
        network_rows = [row for row in rows if row["network"] == network.name]
        last_note = note if network is question.networks[-1] else ""
        tables.append(clock_table(f"{title}, {_describe(question)}", columns, network_rows, note=last_note))
    return tables


def _describe(question: ReplayedOn) -> str:
    """Return the hardware and the changes of a replay in words, for a table's title."""
    changes = question.changes.describe()
    return f"computing on {question.hardware.name}" + (f"; {changes}" if changes else "")


def _unchanged_column(question: ReplayedOn) -> str:
    """Return the column of the step time without changes; empty if nothing is changed."""
    return "unchanged_step_time_s" if question.changes.describe() else ""


def _loss_column(rows: ReplayRows) -> str:
    """Return the column of the last loss; empty if the scripts have no losses."""
    return "loss" if any(row["last_loss"] is not None for row in rows) else ""


def _note(rows: list[dict[str, Any]]) -> str:
    """Return the note below a table of replays: what its columns mean, and its bounds."""
    steps = "" if rows[0]["steps"] < 2 else " Means are of the steps after the first."
    loss = " Loss: of the last tenth of the steps." if rows[0]["last_loss"] is not None else ""
    return f"{clock_note(rows)}{steps}{loss}{bounds_note(rows)}"


def _group_by(rows: ReplayRows, *names: str) -> list[list[Mapping[str, Any]]]:
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
    file_names = [os.path.basename(file) for file in files]  # twice, if two files have the same name

    def name_line(site: str) -> str:
        file, _, line = site.rpartition(":")
        if not file:
            return site or "-"
        file_name = os.path.basename(file)
        if file_names.count(file_name) > 1:
            file_name = os.path.join(os.path.basename(os.path.dirname(file)), file_name)
        return f"{file_name}:{line}"

    return name_line


def _causes(rows: ReplayRows, step_s: Mapping[tuple[str, str], float], has_several_scripts: bool) -> Group:
    """Return sentences about what the step time depends on, for each record and network, from their sensitivities."""
    lines: list[Any] = [Text("what decides a step", style="bold")]
    for group in _group_by(rows, "method", "network"):
        method, network = group[0]["method"], group[0]["network"]
        subject = f"{method} on {network}" if has_several_scripts else network
        sentences = describe_sensitivities(group, step_s[method, network])
        lines.append(Constrain(Text(f"{subject}: {' '.join(sentences)}"), NOTE_WIDTH))
    return Group(*lines, Text(""))


def describe_sensitivities(rows: ReplayRows, step_time_s: float) -> list[str]:
    """Return sentences about ``rows``, the `sensitivities` of a record on a network, the strongest first."""

    def select(kind: str) -> list[Mapping[str, Any]]:
        return [row for row in rows if row["by"] == kind]

    varied = select("compute")
    for kind in ("bandwidth", "latency"):
        all_links, *groups = select(kind)  # no groups if all links are of one group
        varied += groups or [all_links]
    varied.sort(key=lambda row: -abs(row["elasticity"]))
    phrases = []
    for row in varied:
        if abs(row["elasticity"]) >= MIN_ELASTICITY:
            direction = "shorter" if row["elasticity"] < 0 else "longer"
            quantity = "speed of computing" if row["by"] == "compute" else row["by"]
            if row["name"] not in ("all links", "hardware"):
                quantity += f" of {row['name']}"
            # An elasticity is the percentage by which the step time changes with 1 % more of the quantity.
            phrases.append(f"{abs(row['elasticity']):.2f}% {direction} with 1% more {quantity}")
    sentences = [f"{format_seconds(step_time_s)}; {', '.join(phrases)}."] if phrases else []

    lines = sorted(select("site"), key=lambda row: row["step_time_s"])
    name_line = line_names([row["name"] for row in lines])
    for row in lines[:MAX_LINES_IN_TEXT]:
        change = -row["share"]  # without the line the step time changes by this share
        sentences.append(f"Without {name_line(row['name'])} {format_seconds(row['step_time_s'])} ({change:+.0%}).")

    # Others wait for every rank sometimes. A rank is named only if they wait twice as long for it as for any other.
    most_awaited, *other_ranks = sorted(select("rank"), key=lambda row: -row["share"])
    second_share = other_ranks[0]["share"] if other_ranks else 0.0
    if most_awaited["share"] >= max(MIN_SHARE, 2 * second_share):
        sentences.append(f"{most_awaited['share']:.0%} of all waiting is for rank {most_awaited['name']}.")
    return sentences or [f"nothing that was varied changes the {format_seconds(step_time_s)} of a step."]
