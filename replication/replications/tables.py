"""Tables of replications for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group

from replication.replications.networks import TO_ALL, TO_FIRST, WON, firsts
from replication.replications.replicated import Replicated
from syncline.planner.tables.columns import Column, count_of, four_digits, seconds_of, table, text_of


def replication_tables(result: Replicated, claims: Mapping[str, str]) -> list[Group]:
    """Return tables of the stages and of the results that exist so far."""
    fields = result.json()
    columns: list[Column] = [text_of("stage"), count_of("finished"), count_of("trainings")]
    tables = [table(f"{result.spec.name}: {sum(result.planned.values())} trainings", columns, fields["stages"])]
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
    columns: list[Column] = [
        text_of("network"),
        ("at loss", lambda row: four_digits(row["loss"])),
        ("first", lambda row: row["method"]),
        ("after", seconds_of("seconds")),
        ("seeds on\nwhich it is", lambda row: f"{row['won']} of {seeds}"),
    ]
    return table("first over networks: finals, by arithmetic", columns, rows, text_columns=(0, 2))


def _chosen_table(result: Replicated) -> Group:
    rows = [
        {
            "method": label,
            "trials": result.effort[label],
            "knobs": ", ".join(f"{k} {v:g}" for k, v in choice["knobs"].items()),
        }
        for label, choice in result.chosen.items()
    ]
    return table(
        "tuning effort: equal", [text_of("method"), count_of("trials"), text_of("knobs")], rows, text_columns=(0, 2)
    )


def _verdict_table(result: Replicated, claims: Mapping[str, str]) -> Group:
    columns: list[Column] = [
        ("claim", lambda row: claims.get(row["claim"], row["claim"])),
        text_of("state"),
        text_of("comparison"),
        ("difference: median\n(lowest to highest)", _difference),
        ("seeds\nas claimed", lambda row: f"{row['as_claimed']} of {row['seeds']}"),
        ("P over trials\nand seeds", lambda row: f"{row['probability']:.2f}"),
        ("seen\nfrom", lambda row: f"{row['resolution']:.3f}"),
    ]
    return table("verdicts", columns, result.verdicts, text_columns=(0, 1, 2))


def _difference(row: Mapping[str, Any]) -> str:
    return f"{row['difference']:+.3f} ({row['difference_min']:+.3f} to {row['difference_max']:+.3f})"
