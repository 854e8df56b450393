"""Projected steps of workers whose computing varies, against the clock of the same collectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import syncline as sl
from syncline.costmodel import Link, calls_of
from syncline.methods import method_of, tensors_of
from syncline.sim import clock
from syncline.sim.program.disturbances import ComputeTime, LogNormalJitter
from syncline.specs import model

STEPS, WORKERS, JITTER = 1000, 8, 0.2

METHODS: dict[str, tuple[dict[str, Any], str, float]] = {
    "every-step": ({"kind": "ddp", "rule": "adam", "lr": 0.003}, "ddp", 0.005),
    "a-step-later": ({"kind": "ddp", "rule": "adam", "lr": 0.003}, "async", 0.01),
    "streams": (
        {"kind": "streaming-diloco", "lr": 0.01, "period": 30, "stream": {"fragments": 2, "tau": 5}}, "ddp", 0.005,
    ),
    "several-periods": (
        {"kind": "mt-dao", "lr": 0.003, "betas": [0.9], "omegas": [0.9], "period": 8, "momentum_periods": [12],
         "second_moment_period": 30}, "ddp", 0.005,
    ),
    "phases": ({"kind": "zero-one-adam", "lr": 0.001}, "ddp", 0.005),
    "nodes": ({"kind": "demo", "lr": 0.001, "per_node": 2, "period": 8}, "ddp", 0.02),
}  # fmt: skip
"""By what matters for the waits: the fields of a method, the overlap, and the largest relative difference."""


@pytest.mark.parametrize("name", METHODS)
def test_workers_wait_for_the_slowest_as_often_as_in_the_clock(name: str) -> None:
    fields, overlap, tolerance = METHODS[name]
    link = Link(1e-9, 1e18, name="instant")
    (row,) = sl.project(
        model="gpt2", methods=[fields], networks=[link], workers=WORKERS, steps=STEPS, overlap=overlap,
        compute={"seconds": 1.0, "jitter": JITTER}, thresholds=False,
    ).rows  # fmt: skip
    exchanges = method_of(fields).exchanges(tensors_of(model("gpt2").tensors), WORKERS)
    times = ComputeTime(1.0, (LogNormalJitter(JITTER),)).sample(STEPS, WORKERS, np.random.default_rng(0))
    calls = calls_of(exchanges, STEPS, range(WORKERS))
    simulated = clock(calls, times / times.mean(), link, WORKERS, STEPS, overlap=overlap)
    assert row["step_time_s"] == pytest.approx(simulated.step_time_s, rel=tolerance)
