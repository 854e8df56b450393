"""CurvaDion's numbers: results of its step times, volumes and model sizes, and its theorem on a quadratic."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from replication.scoreboard.cells import study_cell
from replication.theory import rmmc_exact, rmmc_leading_order
from replication.theory.wall_clock import curvadion_speedup
from syncline.costmodel import MODELS, Link, collective_s, mean_bytes_per_step, mean_step
from syncline.methods import method_of
from syncline.seeds import seed64
from syncline.specs import network as network_of

__all__ = ["study_cell"]

COMPUTE_MS, OPTIMIZER_MS, FLAG_MS = 3375.0, 39.0, 0.5
"""Milliseconds of the parts of a step (Appendix E)."""

SYNC_MS = {"infiniband": 70.0, "10gbe": 700.0, "wan": 12_000.0}
STEP_MIB = 619.0
"""Traffic of Dion per step in MiB; the paper prints the unit as "MB"."""

BATCH_TOKENS = {"160M": 2**20, "350M": 2**21, "1.3B": 2**21}
STEPS = {"160M": 3_000, "350M": 9_000, "1.3B": 47_000}


def printed_ratio(part: float, total: float, scale: float = 100.0) -> float:
    """Return a printed number over another, times ``scale``; by default in percent."""
    return scale * part / total


def printed_cut(part: float, total: float) -> float:
    """Return the saving of ``part`` in place of ``total``, in percent."""
    return 100 * (1 - part / total)


def printed_gap(high: float, low: float) -> float:
    """Return the difference of two printed numbers, ``high - low``."""
    return high - low


def volume_at_rate(volume: float, rate: float) -> float:
    """Return the share ``rate`` of a printed volume, in the unit of the volume."""
    return volume * rate


def gradient_megabytes() -> float:
    """Return the size of the gradient of the 160M shape in fp32, in decimal MB."""
    return MODELS["gpt-160m"].parameter_bytes() / 1e6


def tokens_billion(model: str) -> float:
    """Return the tokens of a training of a model: steps times tokens per step, in billions."""
    return STEPS[model] * BATCH_TOKENS[model] / 1e9


def parameters_million(model: str) -> float:
    """Return the parameters of the shape whose volume per step is the printed volume, in millions."""
    return MODELS[f"gpt-{model.lower()}"].parameters / 1e6


def volume_gib(mib_per_step: float, steps: int = 3_000) -> float:
    """Return the volume of a training in GiB from MiB per step."""
    return mib_per_step * steps / 1024


def skipped_step_ms() -> float:
    """Return the milliseconds of a step that does not average: computing, optimizer and flag."""
    return COMPUTE_MS + OPTIMIZER_MS + FLAG_MS


def synced_step_ms(network: str = "infiniband", flag: int = 1) -> float:
    """Return the milliseconds of a step that averages; with ``flag=0`` it is a step of Dion."""
    return COMPUTE_MS + OPTIMIZER_MS + FLAG_MS * flag + SYNC_MS[network]


def sync_share(network: str) -> float:
    """Return the share of synchronisation in Dion's step on a network, in percent."""
    return 100 * SYNC_MS[network] / synced_step_ms(network, flag=0)


def compute_share() -> float:
    """Return the share of computing in Dion's step on InfiniBand, in percent."""
    return 100 * COMPUTE_MS / synced_step_ms("infiniband", flag=0)


def training_minutes(sync_rate: float, steps: int = 3_000) -> float:
    """Return the minutes of a CurvaDion training on InfiniBand at a sync rate.

    A rate of 1 stands for Dion, which sends no flag.
    """
    flag_ms = FLAG_MS if sync_rate < 1 else 0.0
    return steps * (COMPUTE_MS + OPTIMIZER_MS + flag_ms + sync_rate * SYNC_MS["infiniband"]) / 60_000


def minutes_saved() -> float:
    """Return the minutes of a training that a sync rate of 1 % saves on InfiniBand."""
    return training_minutes(1.0) - training_minutes(0.01)


def communication_cut(sync_rate: float = 0.01) -> float:
    """Return the saving of communication time on InfiniBand at a sync rate, in percent.

    CurvaDion sends the flag in every step and the average in the share ``sync_rate`` of the steps.
    """
    return 100 * (1 - (FLAG_MS + sync_rate * SYNC_MS["infiniband"]) / SYNC_MS["infiniband"])


def speedup_from(network: str, sync_rate: float) -> float:
    """Return the speedup of Appendix E on a network at a sync rate."""
    ms = (COMPUTE_MS, OPTIMIZER_MS, FLAG_MS, SYNC_MS[network])
    return float(curvadion_speedup(*ms, sync_rate))


def ring_ms(network: str, workers: int) -> float:
    """Return the milliseconds of a ring all-reduce of 619 MiB on the link alone."""
    return 1e3 * float(collective_s("all_reduce", workers, STEP_MIB * 2**20, network_of(network)))


def sent_mib(method: str, **knobs: Any) -> float:
    """Return the MiB that a worker sends per step with a method on the 160M shape."""
    spec = method_of({"kind": method, "lr": 0.02, **knobs} if knobs else method)
    return mean_bytes_per_step(spec.exchanges(MODELS["gpt-160m"].tensors, 8)) / 2**20


def flag_bytes() -> float:
    """Return the payload of the trigger's all-reduce, in bytes."""
    flag, *_ = method_of("curvadion").exchanges(MODELS["gpt-160m"].tensors, 8)
    return float(flag.payload_bytes)


def wan_step_s() -> dict[str, float]:
    """Return the seconds of a step without overlap on the wide-area link, by method.

    Eight workers in a ring train the 160M shape; the computing time is the printed one.
    """
    wan = network_of("wan")
    assert isinstance(wan, Link)
    compute_s, tensors = (COMPUTE_MS + OPTIMIZER_MS) / 1e3, MODELS["gpt-160m"].tensors
    methods = {
        "curvadion": method_of({"kind": "curvadion", "lr": 0.02, "expected_sync_rate": 0.01}),
        "dion": method_of("dion"),
        "ddp": method_of("ddp-adam"),
    }
    return {
        name: float(mean_step(compute_s, method.exchanges(tensors, 8), 3_000, 8, wan).step_time_s)
        for name, method in methods.items()
    }


# Theorem 1 on a quadratic with 20 curvatures from 0.01 to 1.

MU, CURVATURES = 0.95, np.geomspace(0.01, 1.0, 20)


@cache
def _descent(eta: float, noise_std: float, steps: int = 3_000) -> np.ndarray:
    """Return per step the measured RMMC, its exact form, the curvature term and the bias, ``(4, steps - 1)``."""
    rng = np.random.default_rng(seed64(0, "curvadion notebook"))
    x, m, g = np.ones_like(CURVATURES), np.zeros_like(CURVATURES), None
    rows: list[tuple[float, ...]] = []
    for _ in range(steps):
        previous, g = g, CURVATURES * x + noise_std * rng.normal(size=x.size)
        if previous is not None:
            size = float(np.linalg.norm(m))
            unit = m / size
            along = g @ unit / size
            across = np.linalg.norm(g / size - along * unit)
            measured = abs(np.linalg.norm(MU * m + g) / size - 1)
            curvature, bias = eta * unit @ (CURVATURES * unit), previous @ unit / size - (1 - MU)
            rows.append((measured, float(rmmc_exact(MU, along, across)), curvature, bias))
        m = MU * m + g
        x = x - eta * m
    return np.array(rows, dtype=float).T


def rmmc_error_percent(eta: float, noise_std: float = 0.0, quantile: float = 0.5) -> float:
    """Return a quantile over the steps of the relative error of Theorem 1's leading order, in percent."""
    measured, _, curvature, bias = _descent(eta, noise_std)
    return float(100 * np.quantile(np.abs(rmmc_leading_order(1.0, curvature, bias) - measured) / measured, quantile))


def rmmc_exact_error() -> float:
    """Return the largest difference of the exact form from the measured RMMC."""
    measured, exact, _, _ = _descent(1e-3, 0.0)
    return float(np.max(np.abs(exact - measured)))


def bias_over_curvature() -> float:
    """Return the median of ``|b| / (eta kappa)`` over the second half of the steps, where the paper expects zero."""
    _, _, curvature, bias = _descent(1e-3, 0.0)
    half = len(bias) // 2
    return float(np.median(-bias[half:] / curvature[half:]))


def rmmc_errors() -> dict[str, float]:
    """Return the 95 % quantile of the leading order's relative error without noise, in percent, by learning rate."""
    return {str(eta): rmmc_error_percent(eta, 0.0, 0.95) for eta in (0.0001, 0.001, 0.01)}


def momentum_variance(form: str, mu: float = MU) -> float:
    """Return the variance of a momentum over that of a gradient.

    ``form`` is ``average`` for ``mu m + (1 - mu) g`` or ``sum`` for ``mu m + g``.
    """
    return {"average": (1 - mu) / (1 + mu), "sum": 1 / (1 - mu**2)}[form]
