"""Sweeps of milliseconds that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from syncline.runs.sweep.folder import Swept
from syncline.runs.sweep.sweep import sweep
from syncline.runs.training import train_and_time
from tests.runs.examples import BOWL

FIELDS = {name: value for name, value in BOWL.items() if name not in ("methods", "networks")} | {
    "kind": "run",
    "steps": 6,
    "eval_every": 2,
    "method": BOWL["methods"][1] | {"period": 2},
    "network": "wan",
}
"""The second method of the bowl's comparison, as fields."""

RATES = (0.01, 0.02, 0.04)


def small_sweep(out: Path, **options: Any) -> Swept:
    """Three rates, two seeds, in this process."""
    return sweep(FIELDS, {"method.lr": RATES}, **({"out": out, "jobs": 1} | options))


@contextmanager
def counted_trainings() -> Iterator[list[tuple[float, int]]]:
    """Rate and seed of every training that is begun in this process."""
    begun: list[tuple[float, int]] = []
    train = train_and_time.train_method

    def train_method(spec: Any, method: Any, *arguments: Any) -> Any:
        begun.append((method.lr, *spec.seeds))
        return train(spec, method, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_and_time, "train_method", train_method)
        yield begun
