"""The tables of ``syncline project`` for the terminal: one per network, or a paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from rich.console import Group

from syncline.costmodel.collectives.closed_prices import CLOSED_FORM
from syncline.costmodel.layouts.memory import USABLE
from syncline.costmodel.network.places import ring_text
from syncline.costmodel.network.topology import Network
from syncline.planner.assumptions import Assumption, projection_assumptions
from syncline.planner.assumptions_block import assumptions_block
from syncline.planner.projection.training_tables import training_columns, training_note
from syncline.planner.tables.columns import Column, count_of, table, text_of
from syncline.planner.tables.display import MORE, few_columns, few_note, network_title, speedup_column
from syncline.specs import Experiment, ProjectSpec, study_of
from syncline.specs.study import Record
from syncline.units import format_bandwidth, format_bytes

TOO_LARGE = " *"
"""Mark behind the memory of a method that exceeds the hardware's."""

WORTH_NOTE = "\n5% faster: than {}, on links of less (<) or more (>) bandwidth, all else as it is."
WAYS = {"below": "<", "above": ">", "always": "any", "never": "none"}


def project_tables(
    rows: list[Record], *specs: Experiment, assumptions: Sequence[Assumption] | None = None
) -> list[Group]:
    """Return the assumptions and a table per model, hardware and network; or the table of a paper.

    Args:
        rows: rows of the projections.
        specs: the projections, with all numbers of workers; or the spec of a study.
        assumptions: assumptions of the rows; None: they are made of the specs and the rows.
    """
    projections = [spec for spec in specs if isinstance(spec, ProjectSpec)]
    if not projections:
        return study_of(specs[0]).tables(rows, specs[0])
    counts = {spec.workers for spec in projections}
    columns = project_columns(rows, several=len(counts) > 1)
    tables = []
    for (model, machine, layout), alike in groupby(projections, key=_subject):
        group = list(alike)
        several = len({_subject(spec) for spec in projections}) > 1
        for network in group[0].networks:
            subject_rows = [
                row for row in rows if (row["model"], row["hardware"], row["layout"]) == (model, machine, layout)
            ]
            title = network_title(network, group[0].workers, group[0].steps)
            if len(counts) > 1:
                title = title.replace(f", {group[0].workers:,} workers", "")
            if several:
                title = f"{model}{f' on {machine}' if machine else ''}; {title}"
            if layout:
                title += f"; {layout}"
            shown = [row for row in subject_rows if row["network"] == network.name]
            tables.append((title, shown))
    note = "Every: steps from one exchange to the next. " + few_note(rows, projections[0].methods[0].name)
    if any(heading.startswith("5%") for heading, _ in columns):
        note += WORTH_NOTE.format(projections[0].methods[0].name)
    note += training_note(rows, projections) + simulation_note(rows) + places_note(rows, projections[0].networks)
    note += memory_note(rows, projections) + MORE
    keys = ("method", "workers") if len(counts) > 1 else ("method",)
    return [
        assumptions_block(projection_assumptions(projections, rows) if assumptions is None else assumptions),
        *(
            table(title, columns, shown, note if number == len(tables) - 1 else "", section="workers", keys=keys)
            for number, (title, shown) in enumerate(tables)
        ),
    ]


def project_columns(rows: Sequence[Record], several: bool) -> list[Column]:
    """Return the few most important columns, which fit into 80 characters.

    For whole trainings, time and loss replace the bandwidths, and money replaces the step time. The memory has a column
    if something does not fit.
    """
    training = training_columns(rows)
    headings = [heading for heading, _ in training]
    step, waiting = few_columns(list(rows))
    columns: list[Column] = [text_of("method"), ("every", lambda row: f"{row['period']:,}")]
    columns += [count_of("workers")] if several else []
    columns += [] if "cost" in headings else [step]
    columns += [] if {"cost", "tokens"} & {*headings} else [waiting]
    columns.append(speedup_column(list(rows)))
    if not training and any(row.get("faster") for row in rows):
        columns.append(("5% faster\non links", _worth("faster_by_5_percent")))
    if any(row["fits"] is False for row in rows):
        columns.append(("memory", _memory))
    return columns + training


def _subject(spec: ProjectSpec) -> tuple[str, str | None, str | None]:
    layout = spec.layout.build()
    machine = spec.compute.hardware.name if spec.compute.hardware else None
    return spec.model.name, machine, layout.describe() if layout.workers > 1 else None


def _worth(name: str) -> Callable[[Record], str]:
    def show(row: Record) -> str:
        when, rate = row[name], row[f"{name}_bandwidth_bytes_per_s"]
        if when is None:
            return "-"
        return WAYS[when] if rate is None else f"{WAYS[when]} {format_bandwidth(rate)}"

    return show


def _memory(row: Record) -> str:
    return format_bytes(row["memory_bytes"]) + (TOO_LARGE if row["fits"] is False else "")


def simulation_note(rows: Sequence[Record]) -> str:
    """Return lines with the methods that have no closed form on a network, and their evaluator or the reason."""
    played: dict[str, dict[str, None]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["timed_by"] is None:
            reasons.setdefault(row["not_timed"], {})[row["method"]] = None
        elif row["timed_by"] != CLOSED_FORM:
            played.setdefault(row["timed_by"], {})[f"{row['method']} on {row['network']}"] = None
    lines = [f"\nNo closed form, played in {evaluator}: {_listed(names)}." for evaluator, names in played.items()]
    lines += [f"\n-: {_listed(names)}: {reason}." for reason, names in [*reasons.items()][:MOST_NAMED]]
    more = len(reasons) - MOST_NAMED
    return "".join([*lines, f"\n-: {more} more, which --json has in 'not_timed'."] if more > 0 else lines)


def places_note(rows: Sequence[Record], networks: Sequence[Network]) -> str:
    """Return lines with the algorithms on lines between places, and the order of the places in a ring."""
    lines = []
    for network in networks:
        methods: dict[str, dict[str, None]] = {}
        counts = set()
        for row in rows:
            if row["network"] == network.name and row["timed_by"] is not None and row["algorithm"]:
                methods.setdefault(row["algorithm"], {})[row["method"]] = None
                counts.add(row["workers"])
        order = ring_text(network, max(counts)) if counts else ""
        if order:
            names = "; ".join(f"{algorithm}: {_listed(users)}" for algorithm, users in methods.items())
            lines.append(f"\nAlgorithms on {network.name}: {names}. Order of the places in a ring: {order}.")
    return "".join(lines)


MOST_NAMED = 8
"""Limit on the methods and reasons that a note names."""


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    return ", ".join(all_names[:MOST_NAMED]) + (
        f" and {len(all_names) - MOST_NAMED} more" if len(all_names) > MOST_NAMED else ""
    )


def memory_note(rows: list[Record], specs: Sequence[ProjectSpec]) -> str:
    """Return a note on the mark of memory that does not fit; empty if all fits."""
    if all(row["fits"] is not False for row in rows):
        return ""
    sizes = {}
    for spec in specs:
        machine = spec.memory_machine
        if machine is not None and machine.memory_bytes is not None:
            sizes[machine.name] = f"{format_bytes(machine.memory_bytes)} ({machine.memory_bytes / 2**30:g} GiB)"
    limits = " or ".join(f"{USABLE:.0%} of the {size} of {name}" for name, size in sizes.items())
    return f"\n{TOO_LARGE.strip()}: does not fit into {limits}."
