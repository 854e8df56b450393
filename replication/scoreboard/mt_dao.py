"""MT-DAO's numbers: half-lives, traffic, the wall-clock model, momenta of simulated noise, and a quadratic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from replication.scoreboard.cells import study_cell
from replication.scoreboard.literal import literal_distance, spread_as_printed
from replication.studies.papers.wall_clock import equation_s, simulated_s, step_compute_s
from replication.theory import drift_factor, flat_drift, mt_dao_rate, mt_dao_step_size
from syncline.costmodel import (
    HARDWARE,
    MODELS,
    Link,
    compute_s,
    half_life,
    half_life_period,
    mean_bytes_per_step,
    mean_step,
)
from syncline.costmodel.traffic.overlap import WHOLE, gradient_buckets
from syncline.methods import method_of
from syncline.seeds import seed64

__all__ = ["literal_distance", "spread_as_printed", "study_cell"]

SEQUENCE, WORKERS, PERIOD = 2048, 4, 32
BATCHES = {"16m": 64, "125m": 256, "360m": 256, "720m": 512, "1.3b": 1024}
"""Sequences per step, by model size (Table 2)."""


def shape_parameters(size: str, unit: float = 1e6) -> float:
    """Return the number of parameters of a shape of Table 2, in multiples of ``unit``."""
    return MODELS[f"mt-dao-{size}"].parameters / unit


def batch_tokens(size: str, unit: float = 1e6) -> float:
    """Return the number of tokens of a step, in multiples of ``unit``."""
    return BATCHES[size] * SEQUENCE / unit


def over_optimal_budget(size: str, steps: int) -> float:
    """Return the tokens of a training over 20 tokens per parameter."""
    return steps * BATCHES[size] * SEQUENCE / (20 * MODELS[f"mt-dao-{size}"].parameters)


def half_life_of(beta: float) -> float:
    """Return the half-life of a momentum in steps."""
    return float(half_life(beta))


def half_life_rounded(beta: float) -> int:
    """Return the period in steps that follows from the half-life; it is at least K_x."""
    return half_life_period(beta, PERIOD)


def nearest_power_of_two(beta: float) -> float:
    """Return the power of two nearest to the half-life of a momentum."""
    return 2.0 ** round(float(np.log2(half_life(beta))))


def remaining_momentum(beta: float, period: int = PERIOD) -> float:
    """Return the share ``beta^K`` of a momentum that is left after K steps."""
    return beta**period


PERIODS = {
    "unified": (32, 32, 32), "des-loc-adam": (32, 32, 69), "des-loc-adopt": (32, 32, 6931),
    "mt-dao-adam": (32, 693, 693), "mt-dao-adopt": (32, 693, 6931),
}  # fmt: skip
"""Periods of parameters, momentum and second moment in steps, by strategy (Table 3)."""


def times_less_sent(strategy: str, size: str = "125m") -> float:
    """Return the bytes of data parallelism per step over those of a strategy, by the exchanges of the methods."""
    k_x, k_u, k_v = PERIODS[strategy]
    tensors = MODELS[f"mt-dao-{size}"].tensors
    spec = {"kind": "mt-dao", "lr": 0.001, "period": k_x, "momentum_periods": [k_u], "second_moment_period": k_v}
    sent, every_step = (
        mean_bytes_per_step(method_of(method).exchanges(tensors, WORKERS)) for method in (spec, "ddp-adam")
    )
    return every_step / sent


def _two_momenta(field: str) -> tuple[float, float]:
    tensors = MODELS["mt-dao-125m"].tensors
    specs = [
        method_of({"kind": "mt-dao", "lr": 0.001, "betas": betas, "omegas": omegas})
        for betas, omegas in (((0.999,), (0.95,)), ((0.9, 0.999), (0.05, 0.95)))
    ]
    if field == "sent":
        single, double = (mean_bytes_per_step(spec.exchanges(tensors, WORKERS)) for spec in specs)
    else:
        single, double = (float(spec.kept_elements(tensors, WORKERS)) for spec in specs)
    return single, double


def one_momentum_saves(field: str) -> float:
    """Return the saving of one momentum in place of two, in percent.

    ``field`` ``sent`` compares the bytes sent, ``kept`` the elements of optimizer state.
    """
    single, double = _two_momenta(field)
    return 100 * (1 - single / double)


def time_saved(size: str, bandwidth: str, overlap: str) -> float:
    """Return the share of a step's time that averaging three states every 32 steps saves, in percent.

    Four workers have one H100 each at 40 % of its peak, links with 50 us of latency, and ring collectives. Data
    parallelism overlaps its gradients with the backward pass (``ddp``) or does not (``none``).
    """
    model = MODELS[f"mt-dao-{size}"]
    step_s = float(compute_s(model.flops_per_token * BATCHES[size] * SEQUENCE / WORKERS, HARDWARE["h100"]))
    link = Link(50e-6, float(bandwidth) * 1e9 / 8)
    buckets = gradient_buckets([t.elements for t in model.tensors]) if overlap == "ddp" else WHOLE
    times = [
        float(mean_step(step_s, method_of(method).exchanges(model.tensors, WORKERS), 4_096, WORKERS, link,
                        overlap=overlap, buckets=buckets).step_time_s)
        for method in ("mt-dao", "ddp-adam")
    ]  # fmt: skip
    return 100 * (1 - times[0] / times[1])


def events_over_equation(panel: str, method: str, gbit_per_s: float, column: str = "total") -> float:
    """Return the time of Figure 9's training by the event simulation over that by the paper's equation."""
    cell: dict[str, Any] = {"panel": panel, "method": method, "bandwidth_bytes_per_s": gbit_per_s * 1e9 / 8}
    events, equation = (
        study_cell("mt-dao-fig9", f"{estimate}_{column}_s", **cell) for estimate in ("events", "equation")
    )
    return float(events / equation)


def hours_by_method(panel: str, column: str, gbit_per_s: float) -> dict[str, float]:
    """Return the hours of Figures 9 and 10 by the paper's equations, by method."""
    local = {"Adam": "Local Adam", "ADOPT": "Local ADOPT"}[panel]
    names = {"local": local, "unified": "MT-DAO (unified)", "des-loc": "DES-LOC", "mt-dao": "MT-DAO (half-life)"}
    cell: dict[str, Any] = {"panel": panel, "bandwidth_bytes_per_s": gbit_per_s * 1e9 / 8}
    return {
        name: float(study_cell("mt-dao-fig9", f"equation_{column}_s", 1 / 3600, method=method, **cell))
        for name, method in names.items()
    }


def late_latency_error(gbit_per_s: float, method: str, panel: str) -> float:
    """Return the excess of the simulated communication time over the equation's at a latency of 25 ms, in percent."""
    return 100 * (_slow_latency(method, panel, gbit_per_s * 1e9 / 8) - 1)


@cache
def _slow_latency(method: str, panel: str, bandwidth: float) -> float:
    from syncline.specs import Override, load_spec

    spec: Any = load_spec("mt-dao-fig9", [Override.parse("latency='25 ms'")])
    (strategy,) = (entry for entry in spec.strategies if (entry.method, entry.panel) == (method, panel))
    computing_s, link = spec.steps * step_compute_s(spec), Link(0.025, bandwidth)
    by_events = simulated_s(spec, strategy, link, wait_steps=0) - computing_s
    return float(by_events / (equation_s(spec, strategy, link) - computing_s))


# Momenta of simulated noise.


@cache
def _local_noise(beta: float, period: int, gradient_std: float = 1.0, workers: int = 200_000) -> np.ndarray:
    rng = np.random.default_rng(seed64(0, "momenta of noise", round(1e6 * beta), period))
    u = np.zeros(workers)
    for _ in range(period):
        u = beta * u + (1 - beta) * gradient_std * rng.normal(size=workers)
    return u


def simulated_variance(beta: float, period: int = PERIOD) -> float:
    """Return the variance over workers of a momentum after K local steps on independent gradients of variance 1."""
    return float(_local_noise(beta, period).var())


def simulated_information(beta: float, period: int = PERIOD) -> float:
    """Return the mutual information in nats of a worker's momentum after K local steps and the common momentum.

    The common momentum has the steady-state variance of a momentum of noise.
    """
    rng = np.random.default_rng(seed64(0, "common momenta"))
    noise = _local_noise(beta, period)
    common = np.sqrt((1 - beta) / (1 + beta)) * rng.normal(size=noise.size)
    correlation = np.corrcoef(common, beta**period * common + noise)[0, 1]
    return float(-0.5 * np.log1p(-(correlation**2)))


def batch_variance(beta: float, batch: int, workers: int, period: int = PERIOD) -> float:
    """Return the variance over workers of a momentum after K local steps on shares of a global batch.

    A worker's gradient is the mean of its share of the batch, with samples of variance 1.
    """
    return float(_local_noise(beta, period, float(np.sqrt(workers / batch))).var())


# A quadratic: lambda x^2 / 2, u <- beta u + (1 - beta) g, x <- x - [(1 - omega) g + omega u], a = rate * lambda.


def _quadratic(beta: float, omega: float, a: float, steps: int) -> np.ndarray:
    x, u, path = 1.0, 0.0, []
    for _ in range(steps):
        u = beta * u + (1 - beta) * x
        x = x - a * ((1 - omega) * x + omega * u)
        path.append(abs(x))
        if not abs(x) < 1e12:
            break
    return np.array(path)


def largest_stable(beta: float) -> dict[str, float]:
    """Return the largest ``a`` with which Local SGDM and MT-DAO-SGDM converge, by the recurrence's eigenvalues."""
    return {name: _largest_stable(beta, omega) for name, omega in (("local", 1.0), ("mt-dao", 0.95))}


def _largest_stable(beta: float, omega: float) -> float:
    def radius(a: float) -> float:
        step = np.array([
            [1 - a * (1 - omega) - a * omega * (1 - beta), -a * omega * beta],
            [1 - beta, beta],
        ])  # fmt: skip
        return float(np.abs(np.linalg.eigvals(step)).max())

    low, high = 0.0, 1.0
    while radius(high) < 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if radius(middle) < 1 else (low, middle)
    return low


def steps_to_a_percent(beta: float, a: float = 1.0) -> dict[str, float]:
    """Return the number of steps after which the distance stays below 1 %, by method."""
    steps = {}
    for name, omega in (("local", 1.0), ("mt-dao", 0.95)):
        above = np.flatnonzero(_quadratic(beta, omega, a, 20_000) >= 0.01)
        steps[name] = float(above[-1] + 2)
    return steps


def worst_period_difference(beta: float, a: float = 1.0, periods: Sequence[int] = (1, 32), steps: int = 256) -> float:
    """Return the largest difference between mean trajectories of workers that average often and rarely.

    Four workers have different starts; ``periods`` are the two averaging periods in steps.
    """
    means = []
    for period in periods:
        x, u = np.array([0.5, 0.8, 1.2, 1.5]), np.zeros(4)
        path = []
        for t in range(steps):
            u = beta * u + (1 - beta) * x
            x = x - a * (0.05 * x + 0.95 * u)
            if (t + 1) % period == 0:
                x, u = np.full(4, x.mean()), np.full(4, u.mean())
            path.append(x.mean())
        means.append(path)
    return float(np.abs(np.array(means[0]) - np.array(means[1])).max())


# Theorem 1.


def lag_by_summing(beta: float, omega: float) -> float:
    """Return ``beta_omega``, the mean age of the gradients in a mixture, as a sum over ages.

    The sum is ``omega sum_i i (1 - beta) beta^i``.
    """
    ages = np.arange(200_000)
    return float(omega * (ages * (1 - beta) * beta**ages).sum())


def drift_by_decay(period: int = PERIOD) -> dict[str, float]:
    """Return psi by beta, with parameters and one momentum averaged with the same probability."""
    return {f"{beta:g}": float(drift_factor(1 / period, beta, 1.0, 1 / period)) for beta in (0.9, 0.99, 0.999)}


def drift_by_period(beta: float = 0.99) -> dict[str, float]:
    """Return psi by the period of the momentum, with parameters averaged every 32 steps."""
    return {f"every {period}": float(drift_factor(1 / PERIOD, beta, 1.0, 1 / period)) for period in (8, 32, 128)}


def proof_condition(form: str, lag: float) -> float:
    """Return ``eta L + 2 eta^2 L^2 beta_omega^2`` at a form's step size without drift; the proof needs at most 1/2."""
    eta = float(mt_dao_step_size(1.0, lag, 0.0, form=form))  # type: ignore[arg-type]
    return eta + 2 * eta**2 * lag**2


def drift_over_lemma(beta: float, period: int = PERIOD) -> float:
    """Return the exact drift of the workers on a flat loss over the bound of Lemma 3."""
    arguments = (1 / period, beta, 1.0, 1 / period)
    return float(flat_drift(*arguments) / (4 * drift_factor(*arguments)))


def rate_exponent() -> float:
    """Return the power of the number of steps with which equation (2) falls, for many steps."""
    constants: dict[str, Any] = {
        "gap": 1.0, "smoothness": 1.0, "noise_variance": 1.0, "workers": 4, "lag": 9.0, "drift": 10.0,
    }  # fmt: skip
    short, long = (float(mt_dao_rate(steps, **constants)) for steps in (1e12, 1e14))
    return float(np.log(long / short) / np.log(100))


def overlap_saving(gbit_per_s: float) -> float:
    """Return the share of the unified methods' total time that one step of overlap per average saves, in percent."""
    cell: dict[str, Any] = {"panel": "Adam", "method": "Local Adam", "bandwidth_bytes_per_s": gbit_per_s * 1e9 / 8}
    overlapped, exposed = (
        study_cell("mt-dao-fig9", f"{estimate}_total_s", **cell) for estimate in ("overlap", "events")
    )
    return float(100 * (1 - overlapped / exposed))
