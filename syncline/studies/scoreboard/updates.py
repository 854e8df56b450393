"""Lion's update vectors in a training of the MLP on digits: how they are distributed."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import stats

from syncline.analysis.theory import mean_size
from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of

BETA1, STEPS = 0.9, 64


@cache
def _updates() -> np.ndarray:
    """A worker's ``beta1 m + (1 - beta1) g`` of the first layer after 64 steps, without zeros, over its mean size."""
    comm = SimulatedCommunicator(4)
    task = Digits().build(rows_of(comm, (0,)))
    method = method_of({"kind": "lion-cub", "lr": 0.003, "vote": "one-bit"}).build(parameter_groups(task), comm, True)
    first = next(iter(task.params.values()))
    for t in range(STEPS):
        task.step_gradients(t)
        assert first.grad is not None
        update = BETA1 * method.state[first]["momentum_1"] + (1 - BETA1) * first.grad if t else first.grad
        method.step()
    found = np.asarray(update[0].double()).ravel()
    found = found[found != 0]
    return found / np.abs(found).mean()


def distances() -> dict[str, float]:
    """Kolmogorov-Smirnov distance of the updates from a Laplace and a Gaussian distribution of their own spread."""
    x = _updates()
    return {
        "laplace": float(stats.kstest(x, stats.laplace(scale=np.abs(x).mean()).cdf).statistic),
        "gaussian": float(stats.kstest(x, stats.norm(scale=x.std()).cdf).statistic),
    }


def largest_over_mean() -> dict[str, float]:
    """The largest entry over the mean of all sizes, and what it is expected to be of as many Gaussian ones."""
    x = _updates()
    return {
        "update": float(np.abs(x).max()),
        "gaussian": mean_size(np.inf, "gaussian", x.size) / mean_size(1, "gaussian"),
    }
