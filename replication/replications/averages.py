"""Steps at which triggers and placements averaged: a table for each stage, and the part of a page about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from replication.replications.spec import Cell
from replication.replications.stage_tables import ABOUT
from syncline.files import atomic_path
from syncline.runs.folders.result_files import AVERAGES, WHOLE, json_value, read_parquet
from syncline.runs.sweep.folder import Swept

EARLY_SHARE = 6
"""The first sixth of a training's steps is reported separately: 500 of CurvaDion's 3,000 steps (section 4.3)."""


class AveragedTraining(NamedTuple):
    """A training step by step: whether it averaged, and the value that its trigger compared with the threshold.

    Without a trigger there are no such values.
    """

    averaged: list[bool]
    trigger: list[float] | None

    @property
    def steps(self) -> list[int]:
        """Return the steps at which the training averaged, from 0."""
        return [t for t, averaged in enumerate(self.averaged) if averaged]


Averages = dict[Cell, dict[int, AveragedTraining]]
"""Averaged trainings by method and setting, then by seed."""


def averages_rows(swept: Swept, runs: Path) -> list[dict[str, Any]]:
    """Return rows with method, seed, step, ``averaged`` and ``trigger``, for methods that record averages."""
    rows: list[dict[str, Any]] = []
    for row in swept.rows:
        metrics = read_parquet(runs / row["run"] / "metrics.parquet", {"step": WHOLE})
        if "averaged" not in metrics.column_names:
            continue
        keys = {"method": row["method"], "seed": row["seed"]}
        triggers = metrics["trigger"].to_pylist() if "trigger" in metrics.column_names else [None] * len(metrics)
        steps = zip(metrics["step"].to_pylist(), metrics["averaged"].to_pylist(), triggers, strict=True)
        rows += [keys | {"step": t, "averaged": bool(averaged), "trigger": value} for t, averaged, value in steps if t]
    return rows


def averages_file(table: Path) -> Path:
    """Return the path of the table of averages that belongs to a stage's table."""
    return table.with_name(f"{table.stem}-averages.parquet")


def keep_averages(table: Path, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Write the rows as a table, if there are any."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if rows:
        metadata = {ABOUT: json.dumps(json_value(about), sort_keys=True)}
        with atomic_path(averages_file(table)) as working:
            content = pa.Table.from_pylist([dict(row) for row in rows]).replace_schema_metadata(metadata)
            pq.write_table(content, working, compression="zstd")


def read_averages(tables: Mapping[str, Path]) -> Averages:
    """Return the averages of the stages whose table has any, by the extra's name (empty for the finals)."""
    averages: Averages = {}
    for extra, table in tables.items():
        path = averages_file(table)
        if not path.is_file():
            continue
        rows = read_parquet(path, AVERAGES).to_pylist()
        for row in sorted(rows, key=lambda entry: entry["step"]):
            seeds = averages.setdefault(Cell(row["method"], extra), {})
            entry = seeds.setdefault(row["seed"], AveragedTraining([], None if row["trigger"] is None else []))
            entry.averaged.append(row["averaged"])
            if entry.trigger is not None:
                entry.trigger.append(row["trigger"])
    return averages


def averages_page(averages: Averages, figure: str) -> Iterator[str]:
    """Yield a table of the number of averages and of the share of early ones; the figure shows their steps."""
    yield "## When it was averaged\n"
    yield f"![when it was averaged]({figure})\n"
    yield "| setting | method | averages: median (lowest to highest) | of them in the first sixth | steps |"
    yield "|---|---|---|---|---|"
    for cell, seeds in averages.items():
        counts = sorted(sum(training.averaged) for training in seeds.values())
        shares = [early_share(training.averaged) for training in seeds.values()]
        known_shares = [share for share in shares if share is not None]
        shown = f"{median(known_shares):.0%}" if known_shares else "-"
        steps = max(len(training.averaged) for training in seeds.values())
        yield (
            f"| {cell.extra or 'finals'} | {cell.method} | {median(counts):g} ({counts[0]} to {counts[-1]}) "
            f"| {shown} | {steps:,} |"
        )
    yield ""


def early_share(averaged: Sequence[bool]) -> float | None:
    """Return the share of the averages that lies in the first sixth of the steps; None without any.

    >>> early_share([True, False, False, False, False, False, False, True, False, False, False, False])
    0.5
    """
    total = sum(averaged)
    return sum(averaged[: len(averaged) // EARLY_SHARE]) / total if total else None
