"""Tables of replications for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group

from replication.replications.networks import TO_ALL, TO_FIRST, WON, firsts
from replication.replications.replicated import Replicated
from syncline.columns import four_digits
from syncline.planner.tables.table import table
from syncline.units import format_seconds


def replication_tables(result: Replicated, claims: Mapping[str, str]) -> list[Group]:
    """Return tables of the stages and of the results that exist so far."""
    fields = result.json()
    title = f"{result.spec.name}: {sum(result.planned.values())} trainings"
    tables: list[Group] = [table(title, "stage finished trainings", fields["stages"])]
    if result.chosen:
        tables.append(_chosen_table(result))
    if result.networks:
        tables.append(_network_table(result))
    if result.verdicts:
        tables.append(_verdict_table(result, claims))
    return tables


def _network_table(result: Replicated) -> Group:
    """Return the table of the method that reaches a loss first on each network."""
    aims = {result.networks[0]["to_all_loss"]: TO_ALL, result.networks[0]["to_first_loss"]: TO_FIRST}
    rows = [
        {"loss": loss, "network": name, "method": row["method"], "seconds": row[column], "won": row[WON[column]]}
        for loss, column in aims.items()
        for name, row in firsts(result.networks, column).items()
    ]
    seeds = len(result.spec.finals.seeds)
    return table(
        "first over networks: finals, by arithmetic", "network at_loss first after seeds_on_which_it_is", rows,
        values={
            "at_loss": lambda row: four_digits(row["loss"]),
            "first": lambda row: row["method"],
            "after": lambda row: format_seconds(row["seconds"]),
            "seeds_on_which_it_is": lambda row: f"{row['won']} of {seeds}",
        },
    )  # fmt: skip


def _chosen_table(result: Replicated) -> Group:
    rows = [
        {
            "method": label,
            "trials": result.effort[label],
            "knobs": ", ".join(f"{k} {v:g}" for k, v in choice["knobs"].items()),
        }
        for label, choice in result.chosen.items()
    ]
    return table("tuning effort: equal", "method trials knobs", rows)


def _verdict_table(result: Replicated, claims: Mapping[str, str]) -> Group:
    return table(
        "verdicts", "claim state comparison difference seeds_as_claimed probability resolution", result.verdicts,
        note="Difference: median (lowest to highest). Probability: over trials and seeds. Resolution: the smallest "
        "that the seeds can show.",
        values={
            "claim": lambda row: claims.get(row["claim"], row["claim"]),
            "difference": _difference,
            "seeds_as_claimed": lambda row: f"{row['as_claimed']} of {row['seeds']}",
            "probability": lambda row: f"{row['probability']:.2f}",
            "resolution": lambda row: f"{row['resolution']:.3f}",
        },
    )  # fmt: skip


def _difference(row: Mapping[str, Any]) -> str:
    return f"{row['difference']:+.3f} ({row['difference_min']:+.3f} to {row['difference_max']:+.3f})"
