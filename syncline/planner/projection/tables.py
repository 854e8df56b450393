"""The tables of ``syncline project`` for the terminal: one per network, or a paper's.

Tables and notes of a whole training: time, loss, money, energy, and the basis of these.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Sequence,
)
from itertools import groupby

from rich.console import Group

from syncline.costmodel.collectives.prices import CLOSED_FORM
from syncline.costmodel.layouts.memory import USABLE
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.places import ring_text
from syncline.costmodel.scaling.published import fit_named
from syncline.errors import SpecError
from syncline.planner.assumptions import Assumption, assumptions_block, projection_assumptions
from syncline.planner.projection.training_totals import at_scale, method_covered
from syncline.planner.tables.columns import (
    Column,
    count_of,
    percent_of,
    seconds_of,
    table,
    text_of,
)
from syncline.planner.tables.display import MORE, few_columns, few_note, network_title, speedup_column
from syncline.specs import (
    Experiment,
    ProjectSpec,
    study_of,
)
from syncline.specs.study import Record
from syncline.units import format_bandwidth, format_bytes, format_seconds

EXTRAPOLATED = " ~"
"""Mark behind a loss outside the range that a fit has seen."""


def training_columns(rows: Sequence[Record]) -> list[Column]:
    """Return the columns of a whole training that the rows have."""
    has = rows[0].keys() if rows else ()
    columns: list[Column] = []
    if "training_s" in has:
        columns += [("training", seconds_of("training_s"))]
        columns += [("tokens", _tokens)] if len({row.get("tokens") for row in rows}) > 1 else []
        columns += [("loss", _loss)] if "loss" in has else []
    if "goodput" in has:
        columns += [("goodput", percent_of("goodput")), ("saves every", seconds_of("checkpoint_interval_s"))]
    if "cost" in has:
        columns += [("cost", _money), ("energy", _energy)]
    return columns


def _tokens(row: Record) -> str:
    return "-" if row["tokens"] is None else f"{row['tokens'] / 1e9:,.3g} B"


def _loss(row: Record) -> str:
    return "unknown" if row["loss"] is None else f"{row['loss']:.3f}{EXTRAPOLATED if row['extrapolation'] else ''}"


def _money(row: Record) -> str:
    return "-" if row["cost"] is None else f"{row['cost']:,.0f} {row['currency']}"


def _energy(row: Record) -> str:
    if row["energy_j"] is None:
        return "-"
    kwh = row["energy_j"] / 3.6e6
    return f"{kwh:,.4g} kWh" if kwh < 1e3 else f"{kwh / 1e3:,.3g} MWh"


def training_note(rows: Sequence[Record], specs: Sequence[ProjectSpec]) -> str:
    """Return the notes on losses (fit, extrapolation, reasons for unknown ones), on failures, and on the cost."""
    spec_by_name = {spec.model.name: spec for spec in specs}
    lines: dict[str, None] = {}
    unknown: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.get("loss") is not None:
            bounds = "" if row["loss_low"] is None else f" ({row['loss_low']:.2f} to {row['loss_high']:.2f})"
            mark = f"{EXTRAPOLATED.strip()}: extrapolation, {row['beyond']}" if row["extrapolation"] else "seen"
            lines[f"\nLoss of {row['method']}: fit {row['loss_fit']}{bounds}, {mark}."] = None
        elif row.get("loss_unknown"):
            unknown.setdefault(_reason(row, spec_by_name[row["model"]]), {})[row["method"]] = None
    for reason, names in unknown.items():
        lines[f"\nLoss unknown of {', '.join(names)}: {reason}."] = None
    shown = [*lines][:MOST_LINES]
    if len(lines) > MOST_LINES:
        shown.append("\nMore of that: --json.")
    shown += dict.fromkeys(
        f"\n{row['method']}: {row['below_computing']}." for row in rows if row.get("below_computing")
    )
    stuck = {row["stuck"]: row["method"] for row in rows if row.get("stuck")}
    shown += [f"\n{method}: {why}." for why, method in stuck.items()]
    if rows and rows[0].get("goodput") is not None:
        shown.append("\nGoodput: percent of the time that is in steps that count; the time is with what failures cost.")
        fetched = {row["method"]: format_seconds(row["rejoin_s"]) for row in rows if row["rejoin_s"] is not None}
        texts = ", ".join(f"{method} {text}" for method, text in [*fetched.items()][:MOST_LINES])
        shown.append(f"\nA worker that returns fetches its state over its link: {texts}.")
    if rows and "cost" in rows[0]:
        shown.append("\nCost: accelerators by the hour, bytes that leave sites, electricity, as far as the prices say.")
    return "".join(shown)


def _reason(row: Record, spec: ProjectSpec) -> str:
    """Return in few words the reason for an unknown loss; rows have the long reason."""
    method = next(candidate for candidate in spec.methods if candidate.name == row["method"])
    try:
        fit = fit_named(None, method_covered(method))
    except SpecError:
        return "no published fit covers such a method"
    if row["tokens"] is None:  # the option is a target loss
        return str(row["loss_unknown"])
    fields = at_scale(method, spec, row["tokens"]).completed_by(fit).range_variables(fit)
    beyond = [name for name, span in fit.seen.items() if name in fields and span.factor_outside(fields[name]) != 1]
    if not beyond:
        return str(row["loss_unknown"])
    texts = (
        f"{_count(fields[name])} {name.replace('_', ' ')}, where fits have seen "
        f"{_count(fit.seen[name].low)} to {_count(fit.seen[name].high)}"
        for name in beyond[:1]
    )
    return f"{', '.join(texts)}; --extrapolate tells it all the same"


def _count(value: float) -> str:
    return f"{value:.3g}" if value < NAMED else f"{value / 1e9:.3g} B"


NAMED = 1e6
"""Number from which on numbers are shown in billions."""

MOST_LINES = 8
"""Limit on the lines about losses in a note."""


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
