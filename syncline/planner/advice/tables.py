"""The tables of ``syncline advise`` for the terminal: the question, three lists of plans, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.console import Group
from rich.text import Text

from syncline.columns import share_text
from syncline.planner.advice import sentences
from syncline.planner.advice.advice import Advice
from syncline.planner.advice.plan_costs import PlanRow
from syncline.planner.advice.question import AdviceQuestion
from syncline.planner.advice.ranking_changes import fastest_by_loss
from syncline.planner.assumptions import SHARDING_TEXTS
from syncline.planner.prediction_tables import assumptions_block
from syncline.planner.tables.table import cell_text, range_text, table
from syncline.units import format_seconds

MOST_SHOWN = 8
"""Limit on the plans of a list that are shown; data parallelism always is."""

PLAN_WIDTH = 30
"""Width of a line that describes a plan, in characters."""

TIED = " ="
"""Mark behind the number of a plan that cannot be distinguished from the first."""


def advice_tables(advice: Advice, every_plan: bool = False) -> list[Group]:
    """Return the assumptions, the verdict and a short table, or with ``every_plan`` all lists and sentences instead."""
    lines = [*question_lines(advice.question), ""]
    groups = [Group(*map(Text, lines)), assumptions_block(advice.assumptions)]
    groups.append(Group(Text("Verdict", style="bold"), *(Text(line) for line in advice.verdict), Text("")))
    if not every_plan:
        return [*groups, _short_table(advice)]
    if advice.ranked:
        ranked = fastest_by_loss(advice.ranked)
        groups.append(
            _long_table("Ranked by time to the same loss", advice.ranked, _ranked_note(advice), ranked, advice.question)
        )
    else:
        reason = "No plan is possible."
        if advice.loss_unknown:
            hint = "" if advice.question.extrapolate else " (--extrapolate answers beyond what fits have seen)"
            reason = f"The loss of every possible plan is unknown{hint}."
        groups.append(Group(Text(f"\n{reason} The reasons are below.")))
    if advice.loss_unknown:
        title = (
            f"Loss unknown: by time for the tokens, the fastest of each kind, {sentences.period_words(advice.question)}"
        )
        shown = sentences.fastest_of_each_kind(advice.question, advice.loss_unknown)
        groups.append(_long_table(title, advice.loss_unknown, LONGEST_NOTE, shown, advice.question))
    if advice.infeasible:
        num_hidden = len(advice.infeasible) - MOST_SHOWN
        more = f"\n{num_hidden} more: --json, --csv." if num_hidden > 0 else ""
        impossible = advice.infeasible[:MOST_SHOWN]
        groups.append(table("Cannot be", "plan infeasible", impossible, note=more, values={"plan": _plan_cell}))
    for heading, lines in (
        ("What decides", advice.decides),
        ("What would change it", advice.changes),
        ("What is unknown", advice.unknown),
    ):
        if lines:
            groups.append(Group(Text(heading, style="bold"), *(Text(f"- {line}") for line in lines), Text("")))
    return groups


GOODPUT_NOTE = (
    "\nGoodput: part of the time that is in steps that count, where machines fail; it saves as often as costs least. "
    "Replicas that exchange now and then go on without one that fails, all others go back to the last checkpoint."
)

LONGEST_NOTE = (
    "On as many tokens the longest period is always the fastest: this order says nothing of the loss. They are ordered "
    "by time because nothing else is known."
)


SHORT = 10
"""Number of plans in the short table."""


def _short_table(advice: Advice) -> Group:
    """Return the table of at most ``SHORT`` plans: plans of known loss, fastest first, then plans of unknown loss.

    Of plans of unknown loss, one period is shown. The fastest plan that sends gradients in every step is always shown.
    """
    ranked = fastest_by_loss(advice.ranked)
    others = sentences.fastest_of_each_kind(advice.question, advice.loss_unknown)
    # Plans of known loss take half of the table, or more if there are few others.
    shown = ranked[: max(SHORT // 2, SHORT - len(others))]
    data_parallel = sentences.data_parallel_row(ranked)
    if data_parallel is not None and data_parallel not in shown:
        shown[-1] = data_parallel  # replaces the slowest
    shown += others[: SHORT - len(shown)]
    hidden = len(advice.ranked) + len(advice.loss_unknown) - len(shown)
    note = (
        "Nine of ten: the times between which nine of ten measurements are expected. Loss unknown: no fit covers the "
        f"method at this size; its time is for as many tokens. {hidden} more plans, and reasons: --all."
    )
    if any(row["tied"] for row in shown):
        note += f" {TIED.strip()}: not distinguishable from the fastest of its list."
    note += "".join(_limit_lines(advice))
    plan_by_reason: dict[str, str] = {}
    for row in shown:
        if row["below_computing"]:
            plan_by_reason.setdefault(row["below_computing"], sentences.plan_words(row))
    note += "".join(f"\n{plan}: {reason}." for reason, plan in plan_by_reason.items())
    title = f"Plans by time to the same loss, then plans of unknown loss, {sentences.period_words(advice.question)}"
    return table(
        title, "plan loss_known time_s between", shown, note=note,
        values={
            "plan": lambda row: f"{sentences.plan_words(row)}{TIED if row['tied'] else ''}",
            "between": _bounds_text,
            "loss_known": lambda row: "same" if row["loss_unknown"] is None else "unknown",
        },
    )  # fmt: skip


def question_lines(question: AdviceQuestion) -> list[str]:
    """Return the question, and the costs of failures that it leaves at 0, as lines."""
    limits = []
    if question.deadline_s:
        limits.append(f"within {format_seconds(question.deadline_s)}")
    if question.budget and question.prices:
        limits.append(f"for {question.budget:,.0f} {question.prices.currency}")
    lines = [
        f"{question.model.name}, {question.model.parameters / 1e9:.3g} B parameters, on {question.workers:,} "
        f"{question.hardware.name} of {question.network.name}: {question.network.describe()}."
    ]
    if limits:
        lines.append(f"It has to end {' and '.join(limits)}.")
    return [*lines, *(f"Not given: {line}." for line in question.unset_costs)]


def _long_table(
    title: str, rows: Sequence[PlanRow], note: str, shown: Sequence[PlanRow], question: AdviceQuestion
) -> Group:
    """Return the table of a list of plans, with all columns."""
    rank_by_id = {id(row): rank for rank, row in enumerate(rows, start=1)}

    def rank_and_plan(row: PlanRow) -> str:
        return f"{rank_by_id[id(row)]}{TIED if row['tied'] else ''} {_plan_cell(row)}"

    # A cell has two lines, one for each of two columns.
    columns = ["plan", "time_and_bounds", "waiting_and_use", "memory_and_sent", "cost_and_energy"]
    if question.failures is not None:
        columns.insert(columns.index("waiting_and_use"), "goodput_and_saves")
    num_hidden = len(rows) - len(shown)
    if num_hidden:
        note += f"\n{num_hidden} more like these: --json, --csv."
    return table(
        "\n" + title, columns, list(shown), note=note + _sharding_note(shown), values={
            "plan": rank_and_plan,
            "time_and_bounds": lambda row: f"{format_seconds(row['time_s'])}\n{_bounds_text(row)}",
            "waiting_and_use": lambda row: f"{share_text(not_computing(row))}\n{cell_text(row, 'utilisation')}",
            "memory_and_sent": lambda row: f"{cell_text(row, 'memory_bytes')}\n{cell_text(row, 'wan_bytes')}",
            "cost_and_energy": lambda row: f"{cell_text(row, 'cost')}\n{cell_text(row, 'energy_j')}",
            "goodput_and_saves": lambda row: f"{cell_text(row, 'goodput')}\n{cell_text(row, 'checkpoint_interval_s')}",
        },
    )  # fmt: skip


def not_computing(row: PlanRow) -> float:
    """Return the share of a step in which nothing is computed."""
    return float(1 - row["compute_s"] / row["step_time_s"])


def _plan_cell(row: PlanRow) -> str:
    """Return the method and the layout of a plan, in lines of up to `PLAN_WIDTH` characters."""
    # Split "diloco every 100, bf16" into "diloco" and "every 100, bf16".
    name_and_options = sentences.method_words(row).replace(" every ", ", every ").split(", ", maxsplit=1)
    lines = []
    for text in [*name_and_options, sentences.layout_words(row)]:
        lines += wrap(text, PLAN_WIDTH)
    return "\n".join(lines)


def _bounds_text(row: PlanRow) -> str:
    """Return the bounds of a plan's time; the lower one has no unit if the upper one has the same."""
    return "unknown" if row["low_s"] is None else range_text(row, "_s")


def _sharding_note(rows: Sequence[PlanRow]) -> str:
    """Return a note on the plans that fit only with sharded states."""
    shardings = [row["sharding"] for row in rows if row["sharding"] != "none"]
    if not shardings:
        return ""
    texts = [SHARDING_TEXTS[sharding] for sharding in dict.fromkeys(shardings)]
    return f"\n{len(shardings)} of {len(rows)} fit with {', or with '.join(texts)}."


def _limit_lines(advice: Advice) -> list[str]:
    """Return lines that count the plans that meet a deadline or a budget as predicted, but not at their upper bound."""
    question = advice.question
    lines = []
    for name, limit, column in (("deadline", question.deadline_s, "high_s"), ("budget", question.budget, "cost_high")):
        if limit is None:
            continue
        at_risk = sum(row[column] is None or row[column] > limit for row in advice.ranked)
        if at_risk:
            lines.append(f"\n{at_risk} of {len(advice.ranked)} may miss the {name}: their upper bounds are beyond it.")
    return lines


def _ranked_note(advice: Advice) -> str:
    """Return the note below the list of plans of known loss: its columns, ties, events, failures, extrapolations."""
    lines = [
        "Every: steps from one exchange to the next, in fp32 unless it says bf16 or bits; late: by so many steps. "
        "Time: of the training, and between which nine of ten are expected. Waits: part of a step in which nothing is "
        "computed. Use: of the hardware's peak. Memory: of a worker. "
        f"Sent: {sentences.level_words(advice.question.network)}, in all. Money and energy: of all."
    ]
    if advice.ties:
        lines.append(
            f"\n{TIED.strip()}: {len(advice.ties)} of them cannot be told from the first, as the errors of both "
            "predictions are as large as their difference."
        )
    replayed_rows = [row for row in advice.ranked if row.get("events_difference") is not None]
    if replayed_rows:
        largest = max(abs(row["events_difference"]) for row in replayed_rows)
        difference = "the same to 0.01%" if largest < 1e-4 else f"off by {largest:.2%} at most"
        lines.append(f"\nThe first {len(replayed_rows)} played by events, message by message: steps are {difference}.")
    is_beyond_fit = any("beyond the fit" in row["loss_unknown"] for row in advice.loss_unknown)
    if is_beyond_fit and not advice.question.extrapolate:
        lines.append("\nPlans of longer periods are below: no fit has seen such a training (--extrapolate).")
    if advice.question.failures is not None:
        lines.append(GOODPUT_NOTE)
    lines += _limit_lines(advice)
    num_extrapolated = sum(bool(row["extrapolation"]) for row in advice.ranked)
    if num_extrapolated:
        lines.append(f"\n{num_extrapolated} of {len(advice.ranked)} losses are extrapolated.")
    return "".join(lines)
