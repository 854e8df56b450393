"""MT-DAO and Local Adam in Rosenbrock's valley, as in Figure 1.

We chose the start, the rates, the periods and the steps by trial.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.problems import Rosenbrock
from syncline.training import rows_of, train

STEPS = 20_000
START = float(np.hypot(1 + 1.2, 0.0))


@cache
def _distances(
    method: str, workers: int, noise_std: float, period: int, beta: float, seeds: tuple[int, ...] = (0,)
) -> np.ndarray:
    """Return the distance of the workers' mean to the optimum after each step, ``(steps, seeds)``."""
    spec: dict[str, Any] = {"lr": 0.1, "period": period}
    if method == "mt-dao":
        spec |= {"kind": "mt-dao", "betas": [beta], "omegas": [0.95], "beta2": 0.999}
    else:
        spec |= {"kind": "local", "rule": {"kind": "adam", "beta1": beta, "beta2": 0.999}}
    comm = SimulatedCommunicator(workers, replicas=len(seeds))
    task = Rosenbrock(noise_std=noise_std, start=(-1.2, 1.0)).build(rows_of(comm, seeds))
    built = method_of(spec).build(task.params.values(), comm, True)
    return np.asarray(train(task, built, seeds, STEPS).trace["distance"])


def valley_distance(
    method: str,
    workers: int = 16,
    noise_std: float = 2.0,
    period: int = 32,
    beta: float = 0.9999,
    seeds: tuple[int, ...] = (0,),
) -> float:
    """Return the distance of the workers' mean to the optimum, averaged over the last tenth of 20,000 steps.

    With several seeds it is their median.
    """
    distances = _distances(method, workers, noise_std, period, beta, seeds)
    return float(np.median(distances[-STEPS // 10 :].mean(0)))


def valley_distances(**setting: Any) -> dict[str, float]:
    """Return the distances of `valley_distance` for MT-DAO and Local Adam."""
    return {method: valley_distance(method, **setting) for method in ("mt-dao", "local")}


def valley_farthest(method: str, workers: int = 16) -> float:
    """Return the largest distance of the workers' mean to the optimum over the distance at the start."""
    return float(_distances(method, workers, 2.0, 32, 0.9999).max()) / START


def valley_ratio(beta: float, workers: int = 16) -> float:
    """Return Local Adam's mean distance to the optimum over that of MT-DAO."""
    distances = valley_distances(workers=workers, beta=beta)
    return distances["local"] / distances["mt-dao"]
