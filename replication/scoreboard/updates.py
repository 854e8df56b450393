"""The distribution of Lion's update vectors in a training of the MLP on digits."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import stats

from replication.theory import mean_size
from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of

BETA1, STEPS = 0.9, 64


@cache
def _updates() -> np.ndarray:
    """Return a worker's ``beta1 m + (1 - beta1) g`` of the first layer after 64 steps, over its mean magnitude.

    Zeros are removed.
    """
    comm = SimulatedCommunicator(4)
    task = Digits().build(rows_of(comm, (0,)))
    method = method_of({"kind": "lion-cub", "lr": 0.003, "vote": "one-bit"}).build(parameter_groups(task), comm, True)
    first = next(iter(task.params.values()))
    for t in range(STEPS):
        task.step_gradients(t)
        assert first.grad is not None
        update = BETA1 * method.state[first]["momentum_1"] + (1 - BETA1) * first.grad if t else first.grad
        method.step()
    entries = np.asarray(update[0].double()).ravel()
    entries = entries[entries != 0]
    return entries / np.abs(entries).mean()


def distances() -> dict[str, float]:
    """Return the Kolmogorov-Smirnov distances of the updates from Laplace and Gaussian laws of equal spread."""
    x = _updates()
    return {
        "laplace": float(stats.kstest(x, stats.laplace(scale=np.abs(x).mean()).cdf).statistic),
        "gaussian": float(stats.kstest(x, stats.norm(scale=x.std()).cdf).statistic),
    }


def largest_over_mean() -> dict[str, float]:
    """Return the largest magnitude over the mean magnitude, of the updates and of as many Gaussian entries."""
    x = _updates()
    return {
        "update": float(np.abs(x).max()),
        "gaussian": mean_size(np.inf, "gaussian", x.size) / mean_size(1, "gaussian"),
    }
