"""Tables and notes of a whole training: time, loss, money, energy, and the basis of these."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.costmodel.scaling.published import fit_named
from syncline.errors import SpecError
from syncline.planner.projection.training_totals import at_scale, method_covered
from syncline.planner.tables.columns import Column, percent_of, seconds_of
from syncline.specs import ProjectSpec
from syncline.specs.study import Record
from syncline.units import format_seconds

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
