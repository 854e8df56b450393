"""The rows of ``syncline goodput`` as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncline.planner.tables.columns import Column, count_of, percent_of, seconds_of, table, text_of
from syncline.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Group


def goodput_tables(rows: Sequence[dict[str, Any]], remarks: Sequence[str]) -> list[Group]:
    """Return a table of the shares of the workers' time in percent, with remarks and best intervals below."""
    columns: list[Column] = [
        count_of("workers"), text_of("recovery"), ("interval", seconds_of("interval_s")),
        ("goodput", percent_of("goodput")), ("formula", percent_of("expected_goodput")),
        ("lost", percent_of("lost_share")), ("saving", percent_of("checkpoint_share")),
        ("restart", percent_of("restart_share")), ("down", percent_of("down_share")),
    ]  # fmt: skip
    lines = [*remarks, *dict.fromkeys(filter(None, map(_best, rows)))]
    return [table("Where the workers' time goes, in percent", columns, list(rows), "\n".join(lines), text_columns=(1,))]


def _best(row: dict[str, Any]) -> str:
    """Return the remark on the best checkpoint interval; empty if none is best."""
    best_s = row["best_interval_s"]
    if row["recovery"] != "restart" or not best_s or row["best_interval_high_s"] == best_s:
        return ""
    low, best, high = (format_seconds(row[f"best_interval{end}_s"]) for end in ("_low", "", "_high"))
    mtbf = format_seconds(row["mtbf_s"])
    return (
        f"{row['workers']:,} workers, a failure in {mtbf}: the best interval is {best}; from {low} to {high} it costs "
        "1 % more at most."
    )
