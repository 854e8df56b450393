"""The tables of ``syncline solve`` for the terminal: one per setting, with reasons for missing values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from syncline.planner.assumptions import Assumption
from syncline.planner.prediction_tables import assumptions_block
from syncline.planner.projection.tables import training_columns, training_note
from syncline.planner.solving.question import KNOWN, METHOD_VARIABLES, InverseProblem
from syncline.planner.tables.display import bases_note
from syncline.planner.tables.table import TOO_LARGE, table, waiting
from syncline.specs.study import Record
from syncline.units import counted, format_bandwidth, format_seconds

if TYPE_CHECKING:
    from rich.console import Group


TITLES = {
    "bandwidth": "Least bandwidth of {of}",
    "latency": "Longest latency of {of}, one way",
    "period": "Longest period",
    "delay": "Fewest steps late",
    "workers": "Fewest workers on {network}",
    "network": "Cheapest network in the place of {of}",
}

VALUE_TEXTS: dict[str, Callable[[Any], str]] = {
    "bandwidth": format_bandwidth,
    "latency": format_seconds,
    "period": lambda value: f"{value:,.0f} steps",
    "delay": lambda value: f"{value:,.0f} steps",
    "workers": lambda value: f"{value:,.0f}",
    "network": str,
}

WORDS_FOR_NO_VALUE = {"always": "any", "never": "none", "unknown": "unknown"}
"""Words in the place of a value."""

CLOCK_ONLY = (
    "\nPeriods of {} by the clock alone: longer ones cost loss, which is not predicted here; "
    "--target-loss or --loss-penalty asks for it where a published fit covers the method."
)

DELAY_ALONE = "\nSteps late by the clock alone: the loss of a later merge is not predicted."


def solve_tables(rows: Sequence[Record], question: InverseProblem, assumptions: Sequence[Assumption]) -> list[Group]:
    """Return the assumptions, and a table per model, hardware, layout and network.

    The last table has the note that explains the columns and the basis of the rows.
    """
    tables = [assumptions_block(assumptions)]
    groups = [list(group) for _, group in groupby(rows, key=_subject)]
    for group in groups:
        note = _table_note(group, question)
        if group is groups[-1]:
            note += _shared_note(list(rows), question)
        columns = _columns(group, _shows_losses(group, question) and not question.best)
        tables.append(
            table(
                _title(group[0], question), columns, group, note=note.lstrip("\n"), values={
                    "method": _method_text,
                    "value": _value_text,
                    "between": _interval_text,
                    "waiting": waiting,
                    "layout": lambda row: row["layout"] or "one worker",
                },
            )
        )  # fmt: skip
    return tables


def _subject(row: Record) -> tuple[Any, ...]:
    """Return the fields that the rows of one table have in common, as a key."""
    list_or_layout = row.get("list") or row["layout"]  # a list of plans has several layouts
    network_name = row["network"] if _has_levels(row) else None
    link_or_network = None if row["sought"] in METHOD_VARIABLES else row["of"]
    return row["model"], row["hardware"], list_or_layout, network_name, link_or_network


def _has_levels(row: Record) -> bool:
    """Return whether the network has a name that does not depend on the link in it."""
    return row["sought"] != "network" or bool(row["level"])


def _title(row: Record, question: InverseProblem) -> str:
    """Return the title of a table from its first row: the variable, the target, and the setting."""
    heading = TITLES[row["sought"]].format(of=row["of"], network=row["network"])
    title = f"{heading}: {row['target']}. {row['model']}"
    if row["hardware"]:
        title += f" on {row['hardware']}"
    if row["sought"] != "workers":
        if row["network"] not in heading and _has_levels(row):
            title += f", {row['network']}"
        title += f", {counted(row['workers'], 'workers')}"
    if "list" in row:  # the plans of `advise`, each with its own layout
        return f"{title}: plans of {row['list']}"
    return f"{title}, {row['layout']}" if row["layout"] else title


def _columns(rows: Sequence[Record], losses: bool) -> list[str]:
    """Return the columns of a table, with the loss only if ``losses`` is true."""
    columns = ["method"]
    if "list" in rows[0]:
        columns.append("layout")
    columns += ["value", "between", "now_holds"]
    if rows[0]["sought"] == "workers":
        columns.append("replicas")
    columns += ["step_time_s", "waiting"]
    differ_in_tokens = len({row.get("tokens") for row in rows}) > 1
    for name in training_columns(rows):
        if (name != "tokens" or differ_in_tokens) and (name != "loss" or losses):
            columns.append(name)
    if rows[0].get("money") is not None:
        columns.append("money")
    return [*columns, "memory_bytes"]


def _method_text(row: Record) -> str:
    """Return the method's name with its original period, if it has one."""
    return str(row["of"] if row["sought"] in METHOD_VARIABLES else row["method"])


def _value_text(row: Record) -> str:
    """Return all values that meet the target as text; of networks and of a single span of workers, only the best."""
    if row["value"] is None:
        return WORDS_FOR_NO_VALUE.get(row["holds"], "none")
    if row["sought"] == "network" or (row["sought"] == "workers" and len(row["spans"]) < 2):
        return VALUE_TEXTS[row["sought"]](row["value"])
    return ", ".join(_span_text(row["sought"], first, last) for first, last in row["spans"])


def round_to_meet(variable: str, value: float, up: bool) -> float:
    """Return a bandwidth or a latency rounded, ``up`` or down, to the three printed digits.

    >>> round_to_meet("bandwidth", 31.38e6, up=True) * 8, round_to_meet("latency", 187.1, up=False) / 60
    (252000000.0, 3.11)
    """
    unit = 1 / 8  # a bit per second
    if variable == "latency":
        unit = max(seconds for seconds in (1.0, 60.0, 3600.0, 86400.0) if seconds <= max(value, 1.0))
    in_units = value / unit
    if in_units == 0:
        return value
    last_digit = 10.0 ** (math.floor(math.log10(in_units)) - 2)  # the value of the third digit
    # A quotient that is whole up to rounding errors is not rounded further.
    num_digits = round(in_units / last_digit, 4)
    num_digits = math.ceil(num_digits) if up else math.floor(num_digits)
    return float(f"{num_digits * last_digit:.3g}") * unit


def _span_text(variable: str, first: float | None, last: float | None) -> str:
    """Return a span of values that meet the target as text; ends are rounded to the inside of the span."""
    if variable in ("bandwidth", "latency"):
        first = None if first is None else round_to_meet(variable, first, up=True)
        last = None if last is None else round_to_meet(variable, last, up=False)
    text_of = VALUE_TEXTS[variable]
    if first is None:
        return "any" if last is None else f"up to {text_of(last)}"
    if last is None:
        return f"from {text_of(first)}"
    return text_of(first) if first == last else f"{text_of(first)} to {text_of(last)}"


def _interval_text(row: Record) -> str:
    """Return the answer at both bounds of the step time as text."""
    text_of = VALUE_TEXTS[row["sought"]]
    bound_outcomes = row["optimistic_holds"], row["pessimistic_holds"]
    if row["low"] is None and row["high"] is None:
        return "any to none" if set(bound_outcomes) == {"always", "never"} else "-"
    met_above = row["sought"] in ("workers", "network", "bandwidth")  # with more of these a target is met
    # The first outcome with one end decides: as predicted, else at a bound.
    one_ended = [outcome for outcome in (row["holds"], *bound_outcomes) if outcome in ("from", "up to")]
    if one_ended and row["sought"] not in ("workers", "network"):
        met_above = one_ended[0] == "from"
    # Without an end, any value meets the target at the optimistic bound, and none at the pessimistic bound.
    pessimistic = "?" if row["pessimistic_holds"] == "unknown" else "none"
    low, high = ("any", pessimistic) if met_above else (pessimistic, "any")
    low = low if row["low"] is None else text_of(row["low"])
    high = high if row["high"] is None else text_of(row["high"])
    return low if low == high else f"{low} to {high}"


def _table_note(rows: Sequence[Record], question: InverseProblem) -> str:
    """Return the note of a table: reasons for missing values, ties, and periods whose loss is unknown."""
    lines = [f"\n{_method_text(row)}, {row['holds']}: {row['why']}." for row in rows if row["why"]]
    for row in rows:
        if row["holds"] == "in parts" and row["sought"] != "network":
            lines.append(f"\n{row['method']}: met in parts, as the time does not grow steadily with it.")
    for row in rows:
        if row["sought"] == "period" and row["holds"] == "between":  # an interval of periods meets the target
            lines.append(f"\n{_method_text(row)}: shorter than {row['shortest']:,.0f} steps is too slow.")
    tied = [_method_text(row) for row in rows if row["tie"]]
    if tied:
        lines.append(f"\nA tie with {_method_text(rows[0])}: {', '.join(tied)}.")
    if question.variable == "delay":
        lines.append(DELAY_ALONE)
    if question.variable == "period" and not _asks_loss(question):
        without_loss = [_method_text(row) for row in rows if row["value"] is not None and row.get("loss") is None]
        lines += [CLOCK_ONLY.format(", ".join(without_loss))] if without_loss else []
    return "".join(lines)


def _shows_losses(rows: Sequence[Record], question: InverseProblem) -> bool:
    """Return whether a loss is known, or was requested without being known."""
    return question.training.extrapolate or _asks_loss(question) or any(row.get("loss") is not None for row in rows)


def _asks_loss(question: InverseProblem) -> bool:
    return question.targets.loss_penalty is not None or question.training.target_loss is not None


def _shared_note(rows: list[Record], question: InverseProblem) -> str:
    """Return the note below the last table, which explains the columns and the basis of the rows."""
    variable, present_value = rows[0]["sought"], rows[0]["now"]
    present_text = ""
    if present_value is not None and variable not in METHOD_VARIABLES:  # else each method has its own
        present_text = f" ({VALUE_TEXTS[variable](present_value)})"
    note = f"\nNow: whether the target is met today{present_text}. Nine of ten: the values that suffice with the "
    note += "shortest and the longest times between which nine of ten measurements are expected. Other columns: at the "
    note += "value, or at the nearest one. Waiting: for the network, with nothing to compute."
    note += _batch_note(question)
    shown_rows = [row for row in rows if row.get("loss") is not None or not question.best]
    rows_with_loss = [row | {"method": _method_text(row)} for row in shown_rows if _shows_losses([row], question)]
    note += training_note(rows_with_loss, question.specs) + bases_note(rows)
    if any(row["fits"] is False for row in rows):
        note += f"\n{TOO_LARGE.strip()}: does not fit into a worker's memory; --layout divides a replica over workers."
    return note


def _batch_note(question: InverseProblem) -> str:
    """Return the note on the tokens of plans of `advise`, or on the batch if workers are sought; else no text."""
    if question.best:
        return f"\nPlans of {KNOWN} train on the tokens that take them to data parallelism's loss."
    if question.variable != "workers":
        return ""
    if question.keeps_batch(question.specs[0]):
        return "\nThe batch stays the same: numbers of workers that cannot share it in whole sequences are left out."
    return "\nEach worker keeps its tokens, so more workers mean a larger batch; --batch-tokens keeps the batch."
