"""When triggers and placements averaged: a table beside that of a stage, and what a page says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from syncline.experiments.plain import plain
from syncline.experiments.replicating.kept import ABOUT
from syncline.experiments.result_files import AVERAGES, WHOLE, read_parquet
from syncline.experiments.sweep.swept import Swept
from syncline.files import whole_file
from syncline.specs.replications import Cell

EARLY_SHARE = 6
"""Of a training's steps the first sixth is told apart: 500 of CurvaDion's 3,000 steps (section 4.3)."""


class AveragedTraining(NamedTuple):
    """A training step by step: whether it averaged, and what its trigger compared with the threshold, if it has one."""

    averaged: list[bool]
    trigger: list[float] | None

    @property
    def steps(self) -> list[int]:
        """Those that averaged, from 0."""
        return [t for t, one in enumerate(self.averaged) if one]


Averages = dict[Cell, dict[int, AveragedTraining]]
"""By method and setting, and seed."""


def averages_rows(swept: Swept, runs: Path) -> list[dict[str, Any]]:
    """Method, seed, step, ``averaged`` and ``trigger``, of those methods that say so."""
    rows: list[dict[str, Any]] = []
    for row in swept.rows:
        metrics = read_parquet(runs / row["run"] / "metrics.parquet", {"step": WHOLE})
        if "averaged" not in metrics.column_names:
            continue
        whose = {"method": row["method"], "seed": row["seed"]}
        triggers = metrics["trigger"].to_pylist() if "trigger" in metrics.column_names else [None] * len(metrics)
        steps = zip(metrics["step"].to_pylist(), metrics["averaged"].to_pylist(), triggers, strict=True)
        rows += [whose | {"step": t, "averaged": bool(one), "trigger": value} for t, one, value in steps if t]
    return rows


def averages_file(table: Path) -> Path:
    """The table of averages beside a stage's."""
    return table.with_name(f"{table.stem}-averages.parquet")


def keep_averages(table: Path, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Write them, if there are any."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if rows:
        told = {ABOUT: json.dumps(plain(about), sort_keys=True)}
        with whole_file(averages_file(table)) as working:
            kept = pa.Table.from_pylist([dict(row) for row in rows]).replace_schema_metadata(told)
            pq.write_table(kept, working, compression="zstd")


def read_averages(tables: Mapping[str, Path]) -> Averages:
    """Of tables of stages, by the extra's name (none: the finals), those that have any."""
    found: Averages = {}
    for extra, table in tables.items():
        path = averages_file(table)
        if not path.is_file():
            continue
        rows = read_parquet(path, AVERAGES).to_pylist()
        for row in sorted(rows, key=lambda one: one["step"]):
            seeds = found.setdefault(Cell(row["method"], extra), {})
            one = seeds.setdefault(row["seed"], AveragedTraining([], None if row["trigger"] is None else []))
            one.averaged.append(row["averaged"])
            if one.trigger is not None:
                one.trigger.append(row["trigger"])
    return found


def averages_page(found: Averages, figure: str) -> Iterator[str]:
    """How often, and how much of it early; the picture has when."""
    yield "## When it was averaged\n"
    yield f"![when it was averaged]({figure})\n"
    yield "| setting | method | averages: median (lowest to highest) | of them in the first sixth | steps |"
    yield "|---|---|---|---|---|"
    for cell, seeds in found.items():
        counts = sorted(sum(one.averaged) for one in seeds.values())
        early = [share for one in seeds.values() if (share := early_share(one.averaged)) is not None]
        shown = f"{median(early):.0%}" if early else "-"
        steps = max(len(one.averaged) for one in seeds.values())
        yield (
            f"| {cell.extra or 'finals'} | {cell.method} | {median(counts):g} ({counts[0]} to {counts[-1]}) "
            f"| {shown} | {steps:,} |"
        )
    yield ""


def early_share(averaged: Sequence[bool]) -> float | None:
    """Of the averages those in the first sixth of the steps; None without any.

    >>> early_share([True, False, False, False, False, False, False, True, False, False, False, False])
    0.5
    """
    total = sum(averaged)
    return sum(averaged[: len(averaged) // EARLY_SHARE]) / total if total else None
