"""Trainings as columns for parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.costmodel.traffic.call import columns_of

if TYPE_CHECKING:
    from syncline.costmodel import Call
    from syncline.experiments.trained import Trained
    from syncline.sim import Timeline
    from syncline.training import History


def metrics_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """One row per method, seed and step.

    ``step`` counts completed steps: row 0 is before the first. ``train_loss`` of row t is that of the batch of the t-th
    step; ``eval_*`` are measured on the mean of the workers' parameters after t steps, null where nothing was measured;
    traces (``distance``, ``position_0``, ...) are taken after the t-th step.
    """
    return _below([_metrics(one.method, one.history, s) for one in trained for s in range(len(one.history.seeds))])


def metrics_part(method: str, history: History, first: int) -> dict[str, list[Any]]:
    """Some rows of a training under way, from completed step ``first`` on; the history is of these rows alone."""
    return _below([_metrics(method, history, s, first) for s in range(len(history.seeds))])


def _below(parts: Sequence[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for part in parts for name in part))
    rows = [len(part["step"]) for part in parts]
    return {
        name: [x for part, n in zip(parts, rows, strict=True) for x in part.get(name, [None] * n)] for name in names
    }


def _metrics(method: str, history: History, s: int, first: int = 0) -> dict[str, list[Any]]:
    before = [] if first else [None]  # row 0 is before the first step
    count = history.steps + len(before)
    columns: dict[str, list[Any]] = {
        "method": [method] * count,
        "seed": [history.seeds[s]] * count,
        "step": list(range(first, first + count)),
        "train_loss": before + history.loss[:, s].tolist(),
    }
    for name, values in history.evaluation.items():
        column: list[Any] = [None] * count
        for step, value in zip(history.eval_step.tolist(), values[:, s].tolist(), strict=False):
            column[step - first] = value
        columns[f"eval_{name}"] = column
    for name, values in history.trace.items():
        flat = values[:, s].reshape(history.steps, -1)
        for i, column_of in enumerate(flat.T):
            columns[name if values.ndim == 2 else f"{name}_{i}"] = before + column_of.tolist()
    return columns


def ledger_part(method: str, calls: Sequence[Call]) -> dict[str, list[Any]]:
    """Some calls of a training under way."""
    return {"method": [method] * len(calls)} | columns_of(calls) if calls else {}


def ledger_columns(trained: Iterable[Trained]) -> dict[str, list[Any]]:
    """The ledgers of several methods, one below the other; one replica's, as all send the same."""
    columns: dict[str, list[Any]] = {"method": []}
    for one in trained:
        columns["method"] += [one.method] * len(one.ledger)
        for name, values in columns_of(one.ledger).items():
            columns.setdefault(name, []).extend(values)
    return columns


def timeline_columns(timelines: Sequence[tuple[str, str, Timeline]]) -> dict[str, Any]:
    """Timelines of (method, network), one below the other."""
    parts = [
        {"method": np.full(len(t), method), "network": np.full(len(t), network), **t.to_columns()}
        for method, network, t in timelines
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
