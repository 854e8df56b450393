"""CurvaDion's numbers: its own step times, volumes and model sizes worked out, and its theorem on a quadratic."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from syncline.analysis.theory import rmmc_bias_over_curvature, rmmc_exact, rmmc_leading_order
from syncline.costmodel import MODELS, Link, collective_s, curvadion_speedup, mean_bytes_per_step, mean_step
from syncline.methods import method_of
from syncline.seeds import seed64
from syncline.specs import network as network_of
from syncline.studies.scoreboard.cells import study_cell

__all__ = ["study_cell"]

COMPUTE_MS, OPTIMIZER_MS, FLAG_MS = 3375.0, 39.0, 0.5
"""Of a step (Appendix E)."""

SYNC_MS = {"infiniband": 70.0, "10gbe": 700.0, "wan": 12_000.0}
STEP_MIB = 619.0
"""What Dion sends per step as printed, "MB"."""

BATCH_TOKENS = {"160M": 2**20, "350M": 2**21, "1.3B": 2**21}
STEPS = {"160M": 3_000, "350M": 9_000, "1.3B": 47_000}


def printed_ratio(part: float, whole: float, scale: float = 100.0) -> float:
    """One printed number over another, in percent."""
    return scale * part / whole


def printed_cut(part: float, whole: float) -> float:
    """What is saved by ``part`` in place of ``whole``, in percent."""
    return 100 * (1 - part / whole)


def printed_gap(high: float, low: float) -> float:
    """The difference of two printed numbers."""
    return high - low


def volume_at_rate(volume: float, rate: float) -> float:
    """That share of a printed volume, in its unit."""
    return volume * rate


def gradient_megabytes() -> float:
    """Of the 160M shape in fp32, decimal."""
    return MODELS["gpt-160m"].parameter_bytes() / 1e6


def tokens_billion(model: str) -> float:
    """Steps times tokens per step, in billions."""
    return STEPS[model] * BATCH_TOKENS[model] / 1e9


def parameters_million(model: str) -> float:
    """Of the shape whose volume per step is the printed one."""
    return MODELS[f"gpt-{model.lower()}"].parameters / 1e6


def volume_gib(mib_per_step: float, steps: int = 3_000) -> float:
    """GiB of a training from MiB per step."""
    return mib_per_step * steps / 1024


def skipped_step_ms() -> float:
    """A step whose flag says no: computing, optimizer, flag."""
    return COMPUTE_MS + OPTIMIZER_MS + FLAG_MS


def synced_step_ms(network: str = "infiniband", flag: int = 1) -> float:
    """A step that averages; without the flag, one of Dion."""
    return COMPUTE_MS + OPTIMIZER_MS + FLAG_MS * flag + SYNC_MS[network]


def sync_share(network: str) -> float:
    """Of Dion's step, in percent."""
    return 100 * SYNC_MS[network] / synced_step_ms(network, flag=0)


def compute_share() -> float:
    """Of Dion's step on InfiniBand, in percent."""
    return 100 * COMPUTE_MS / synced_step_ms("infiniband", flag=0)


def training_minutes(sync_rate: float, steps: int = 3_000) -> float:
    """Of CurvaDion at a rate, or of Dion, which sends no flag, at a rate of 1."""
    flag_ms = FLAG_MS if sync_rate < 1 else 0.0
    return steps * (COMPUTE_MS + OPTIMIZER_MS + flag_ms + sync_rate * SYNC_MS["infiniband"]) / 60_000


def minutes_saved() -> float:
    """By a sync rate of 1 %, on InfiniBand."""
    return training_minutes(1.0) - training_minutes(0.01)


def communication_cut(sync_rate: float = 0.01) -> float:
    """Of communication time, in percent: the flag in every step, the average in some."""
    return 100 * (1 - (FLAG_MS + sync_rate * SYNC_MS["infiniband"]) / SYNC_MS["infiniband"])


def speedup_from(network: str, sync_rate: float) -> float:
    """Appendix E at a sync rate."""
    ms = (COMPUTE_MS, OPTIMIZER_MS, FLAG_MS, SYNC_MS[network])
    return float(curvadion_speedup(*ms, sync_rate))


def ring_ms(network: str, workers: int) -> float:
    """A ring all-reduce of 619 MiB on the link alone, in ms."""
    return 1e3 * float(collective_s("all_reduce", workers, STEP_MIB * 2**20, network_of(network)))


def sent_mib(method: str, **knobs: Any) -> float:
    """MiB per worker and step of a method on the 160M shape."""
    spec = method_of({"kind": method, "lr": 0.02, **knobs} if knobs else method)
    return mean_bytes_per_step(spec.exchanges(MODELS["gpt-160m"].tensors, 8)) / 2**20


def flag_bytes() -> float:
    """What the trigger's all-reduce carries."""
    flag, *_ = method_of("curvadion").exchanges(MODELS["gpt-160m"].tensors, 8)
    return float(flag.payload_bytes)


def wan_step_s() -> dict[str, float]:
    """A step without overlap on the wide-area link, a ring of 8 workers, the 160M shape, computing as printed."""
    wan = network_of("wan")
    assert isinstance(wan, Link)
    compute_s, tensors = (COMPUTE_MS + OPTIMIZER_MS) / 1e3, MODELS["gpt-160m"].tensors
    methods = {
        "curvadion": method_of({"kind": "curvadion", "lr": 0.02, "expected_sync_rate": 0.01}),
        "dion": method_of("dion"),
        "ddp": method_of("ddp-adam"),
    }
    return {
        name: float(mean_step(compute_s, one.exchanges(tensors, 8), 3_000, 8, wan).step_time_s)
        for name, one in methods.items()
    }


# Theorem 1 on a quadratic with 20 curvatures from 0.01 to 1.

MU, CURVATURES = 0.95, np.geomspace(0.01, 1.0, 20)


@cache
def _descent(eta: float, noise_std: float, steps: int = 3_000) -> np.ndarray:
    """Per step the measured RMMC, its exact form, the curvature term, and the bias of the leading order."""
    rng = np.random.default_rng(seed64(0, "curvadion notebook"))
    x, m, g = np.ones_like(CURVATURES), np.zeros_like(CURVATURES), None
    rows: list[tuple[float, ...]] = []
    for _ in range(steps):
        before, g = g, CURVATURES * x + noise_std * rng.normal(size=x.size)
        if before is not None:
            size = float(np.linalg.norm(m))
            unit = m / size
            along = g @ unit / size
            across = np.linalg.norm(g / size - along * unit)
            measured = abs(np.linalg.norm(MU * m + g) / size - 1)
            curvature, bias = eta * unit @ (CURVATURES * unit), before @ unit / size - (1 - MU)
            rows.append((measured, float(rmmc_exact(MU, along, across)), curvature, bias))
        m = MU * m + g
        x = x - eta * m
    return np.array(rows, dtype=float).T


def rmmc_error_percent(eta: float, noise_std: float = 0.0, quantile: float = 0.5) -> float:
    """Relative error of Theorem 1's leading order, a quantile over the steps, in percent."""
    measured, _, curvature, bias = _descent(eta, noise_std)
    return float(100 * np.quantile(np.abs(rmmc_leading_order(1.0, curvature, bias) - measured) / measured, quantile))


def rmmc_exact_error() -> float:
    """Largest difference of the exact form and the measured RMMC."""
    measured, exact, _, _ = _descent(1e-3, 0.0)
    return float(np.max(np.abs(exact - measured)))


def bias_over_curvature() -> float:
    """``|b| / (eta kappa)``, median of the second half, where the paper expects it to vanish."""
    _, _, curvature, bias = _descent(1e-3, 0.0)
    half = len(bias) // 2
    return float(np.median(-bias[half:] / curvature[half:]))


def bias_in_steady_state() -> float:
    """The same in closed form: ``mu / (1 - mu)``."""
    return float(rmmc_bias_over_curvature(MU))


def rmmc_errors() -> dict[str, float]:
    """The 95 % quantile of the leading order's relative error by learning rate, without noise."""
    return {str(eta): rmmc_error_percent(eta, 0.0, 0.95) for eta in (0.0001, 0.001, 0.01)}


def momentum_variance(form: str, mu: float = MU) -> float:
    """A momentum's variance over a gradient's: of the average ``mu m + (1 - mu) g``, or of the sum ``mu m + g``."""
    return {"average": (1 - mu) / (1 + mu), "sum": 1 / (1 - mu**2)}[form]
