"""Measures of rounds between averages, for the MLP on digits with four workers and K = 32."""

from __future__ import annotations

from functools import cache
from statistics import fmean
from typing import Any

import numpy as np

from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.optim.measures import Rounds, Watch
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of, train

PERIOD, STEPS = 32, 256
SETTLING = 2
"""Number of first rounds that the means exclude, because momenta build up in the first round."""

SPREAD = "momentum_spread"
SPECS: dict[str, dict[str, Any]] = {
    "mt-dao": {"kind": "mt-dao", "lr": 0.01, "betas": [0.999], "omegas": [0.95], "period": PERIOD},
    "local": {"kind": "local", "lr": 0.003, "rule": {"kind": "adam", "beta1": 0.95}, "period": PERIOD},
}


@cache
def _rounds(method: str) -> dict[str, float]:
    """Return the measures of `Rounds`, by name, as means over the rounds after the first ``SETTLING`` rounds."""
    comm = SimulatedCommunicator(4)
    task = Digits(skew=0.5).build(rows_of(comm, (0,)))
    built = method_of(SPECS[method]).build(parameter_groups(task), comm, True)
    measurements = train(task, built, (0,), STEPS, watch=Watch([Rounds()])).watched
    values: dict[str, list[float]] = {}
    for measurement in measurements:
        if measurement.step > SETTLING * PERIOD:
            values.setdefault(measurement.measure, []).append(measurement.value)
    spreads = zip(values["momentum_variance"], values["momentum_norm"], strict=True)
    values[SPREAD] = [variance / norm**2 for variance, norm in spreads]
    return {measure: fmean(of_rounds) for measure, of_rounds in values.items()}


def over_rounds(measure: str) -> dict[str, float]:
    """Return a measure of `syncline.optim.measures.Rounds`, by method.

    ``momentum_spread`` is the variance of the momentum over its squared norm.
    """
    return {method: _rounds(method)[measure] for method in SPECS}


def over_rounds_of_mt_dao(measure: str) -> float:
    """Return a measure of `syncline.optim.measures.Rounds` for MT-DAO."""
    return over_rounds(measure)["mt-dao"]


def second_moment_norms(steps: int = 64) -> dict[str, float]:
    """Return the norm of Adam's second moment with gradients averaged before squaring (``ddp``) or after (``k 1``)."""
    norms = {}
    rule = {"kind": "adam", "beta1": 0.9, "beta2": 0.99}
    for name, spec in (("ddp", {"kind": "ddp", "lr": 0.003, "rule": rule}),
                       ("k 1", {"kind": "local", "lr": 0.003, "rule": rule, "period": 1})):  # fmt: skip
        comm = SimulatedCommunicator(4)
        task = Digits().build(rows_of(comm, (0,)))
        method = method_of(spec).build(parameter_groups(task), comm, True)
        for t in range(steps):
            task.step_gradients(t)
            method.step()
        states = [method.state[p] for p in task.params.values()]
        norms[name] = float(np.sqrt(sum(float((s["second_moment"][0].double() ** 2).sum()) for s in states)))
    return norms
