"""Columns of a running training, part by part, for its streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.costmodel import Call
from syncline.costmodel.traffic.call import columns_of

if TYPE_CHECKING:
    from syncline.training import History


def metrics_part(method: str, history: History, first: int) -> pa.Table:
    """Return rows of a running training, from completed step ``first`` on; the history has these rows alone."""
    schema, end = metrics_schema([history]), first + history.steps + (first == 0)
    return pa.concat_tables(
        [metrics_table(method, history, s, schema, first, end, first) for s in range(len(history.seeds))]
    )


def metrics_schema(histories: Iterable[History]) -> pa.Schema:
    """Return the schema: names, seeds and steps, then all quantities that any of the histories has measured."""
    kinds: dict[str, pa.DataType] = {"method": pa.string(), "seed": pa.int64(), "step": pa.int64()}
    for history in histories:
        kinds.setdefault("train_loss", pa.float64())
        for name, values in history.evaluation.items():
            kinds.setdefault(f"eval_{name}", _kind(values))
        for name, values in history.trace.items():
            for column in _components(name, values):
                kinds.setdefault(column, _kind(values))
    return pa.schema(list(kinds.items()))


def _kind(values: np.ndarray) -> pa.DataType:
    return {"i": pa.int64(), "u": pa.int64(), "b": pa.bool_()}.get(values.dtype.kind, pa.float64())


def _components(name: str, values: np.ndarray) -> list[str]:
    return [name] if values.ndim == 2 else [f"{name}_{i}" for i in range(int(np.prod(values.shape[2:])))]


def metrics_table(
    method: str, history: History, s: int, schema: pa.Schema, begin: int, end: int, first: int = 0
) -> pa.Table:
    """Return rows of completed steps ``begin`` to ``end - 1`` of one seed; the history begins at step ``first``."""
    count, before = end - begin, int(begin == 0)  # row 0 is before the first step
    after = slice(begin + before - max(first, 1), end - max(first, 1))
    missing = np.arange(count) < before
    columns: dict[str, Any] = {
        "method": pa.repeat(pa.scalar(method, pa.string()), count),
        "seed": np.full(count, history.seeds[s]),
        "step": np.arange(begin, end),
    }

    def later(values: np.ndarray) -> pa.Array:
        column = np.zeros(count, dtype=values.dtype)
        column[before:] = values[after]
        return pa.array(column, mask=missing)

    columns["train_loss"] = later(history.loss[:, s])
    for name, values in history.evaluation.items():
        eval_steps = history.eval_step[: len(values)]
        mask = (eval_steps >= begin) & (eval_steps < end)
        column, unknown = np.zeros(count, dtype=values.dtype), np.ones(count, dtype=bool)
        column[eval_steps[mask] - begin], unknown[eval_steps[mask] - begin] = values[: len(eval_steps), s][mask], False
        columns[f"eval_{name}"] = pa.array(column, mask=unknown)
    for name, values in history.trace.items():
        flat = values[:, s].reshape(history.steps, -1)
        columns |= {column: later(flat[:, i]) for i, column in enumerate(_components(name, values))}
    arrays = [
        pa.array(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def ledger_part(method: str, calls: Sequence[Call]) -> dict[str, list[Any]]:
    """Return some calls of a running training as columns."""
    return {"method": [method] * len(calls)} | columns_of(calls) if calls else {}
