"""MT-DAO's numbers: half-lives, traffic, its wall-clock model, momenta of simulated noise, and Rosenbrock's valley."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from syncline.analysis.theory import drift_factor, flat_drift, mt_dao_rate, mt_dao_step_size
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
from syncline.studies.scoreboard.cells import study_cell
from syncline.studies.scoreboard.literal import literal_distance, spread_as_printed

__all__ = ["literal_distance", "spread_as_printed", "study_cell"]

SEQUENCE, WORKERS, PERIOD = 2048, 4, 32
BATCHES = {"16m": 64, "125m": 256, "360m": 256, "720m": 512, "1.3b": 1024}
"""Sequences of a step (Table 2)."""


def shape_parameters(size: str, unit: float = 1e6) -> float:
    """Of the shape of Table 2's row, in millions."""
    return MODELS[f"mt-dao-{size}"].parameters / unit


def batch_tokens(size: str, unit: float = 1e6) -> float:
    """Of a step, in millions."""
    return BATCHES[size] * SEQUENCE / unit


def over_optimal_budget(size: str, steps: int) -> float:
    """Tokens of a training over 20 per parameter."""
    return steps * BATCHES[size] * SEQUENCE / (20 * MODELS[f"mt-dao-{size}"].parameters)


def half_life_of(beta: float) -> float:
    """Steps after which half is forgotten."""
    return float(half_life(beta))


def half_life_rounded(beta: float) -> int:
    """The period that follows, at least K_x."""
    return half_life_period(beta, PERIOD)


def nearest_power_of_two(beta: float) -> float:
    """To the half-life."""
    return 2.0 ** round(float(np.log2(half_life(beta))))


def kept_of_a_momentum(beta: float, period: int = PERIOD) -> float:
    """``beta^K``."""
    return beta**period


PERIODS = {
    "unified": (32, 32, 32),
    "des-loc-adam": (32, 32, 69),
    "des-loc-adopt": (32, 32, 6931),
    "mt-dao-adam": (32, 693, 693),
    "mt-dao-adopt": (32, 693, 6931),
}
"""Of parameters, momentum, second moment (Table 3)."""


def times_less_sent(strategy: str, size: str = "125m") -> float:
    """How many times fewer bytes than a gradient in every step, by what the methods say they send."""
    k_x, k_u, k_v = PERIODS[strategy]
    tensors = MODELS[f"mt-dao-{size}"].tensors
    spec = {"kind": "mt-dao", "lr": 0.001, "period": k_x, "momentum_periods": [k_u], "second_moment_period": k_v}
    sent, every_step = (mean_bytes_per_step(method_of(one).exchanges(tensors, WORKERS)) for one in (spec, "ddp-adam"))
    return every_step / sent


def _two_momenta(field: str) -> tuple[float, float]:
    tensors = MODELS["mt-dao-125m"].tensors
    specs = [
        method_of({"kind": "mt-dao", "lr": 0.001, "betas": betas, "omegas": omegas})
        for betas, omegas in (((0.999,), (0.95,)), ((0.9, 0.999), (0.05, 0.95)))
    ]
    if field == "sent":
        one, two = (mean_bytes_per_step(spec.exchanges(tensors, WORKERS)) for spec in specs)
    else:
        one, two = (float(spec.kept_elements(tensors, WORKERS)) for spec in specs)
    return one, two


def one_momentum_saves(field: str) -> float:
    """What one momentum in the place of two saves of what is ``sent`` or ``kept``, in percent."""
    one, two = _two_momenta(field)
    return 100 * (1 - one / two)


def time_saved(size: str, bandwidth: str, overlap: str) -> float:
    """What averaging three states every 32 steps saves of a step's time, in percent.

    Four workers of one H100 at 40 %, 50 us, rings; data parallelism overlaps its gradients with the backward pass
    (``ddp``) or not (``none``).
    """
    model = MODELS[f"mt-dao-{size}"]
    step_s = float(compute_s(model.flops_per_token * BATCHES[size] * SEQUENCE / WORKERS, HARDWARE["h100"]))
    link = Link(50e-6, float(bandwidth) * 1e9 / 8)
    buckets = gradient_buckets([t.elements for t in model.tensors]) if overlap == "ddp" else WHOLE
    times = [
        float(mean_step(step_s, method_of(one).exchanges(model.tensors, WORKERS), 4_096, WORKERS, link,
                        overlap=overlap, buckets=buckets).step_time_s)
        for one in ("mt-dao", "ddp-adam")
    ]  # fmt: skip
    return 100 * (1 - times[0] / times[1])


def events_over_equation(panel: str, method: str, gbit_per_s: float, column: str = "total") -> float:
    """The event simulation's time over the paper's equation, of Figure 9's training."""
    at: dict[str, Any] = {"panel": panel, "method": method, "bandwidth_bytes_per_s": gbit_per_s * 1e9 / 8}
    events, equation = (study_cell("mt-dao-fig9", f"{by}_{column}_s", **at) for by in ("events", "equation"))
    return float(events / equation)


def hours_by_method(panel: str, column: str, gbit_per_s: float) -> dict[str, float]:
    """Hours of Figures 9 and 10 by method, of the paper's equations."""
    local = {"Adam": "Local Adam", "ADOPT": "Local ADOPT"}[panel]
    names = {"local": local, "unified": "MT-DAO (unified)", "des-loc": "DES-LOC", "mt-dao": "MT-DAO (half-life)"}
    at: dict[str, Any] = {"panel": panel, "bandwidth_bytes_per_s": gbit_per_s * 1e9 / 8}
    return {
        name: float(study_cell("mt-dao-fig9", f"equation_{column}_s", 1 / 3600, method=method, **at))
        for name, method in names.items()
    }


def late_latency_error(gbit_per_s: float, method: str, panel: str) -> float:
    """By how much events are above the equation's communication at a latency of 25 ms, in percent."""
    return 100 * (_slow_latency(method, panel, gbit_per_s * 1e9 / 8) - 1)


@cache
def _slow_latency(method: str, panel: str, bandwidth: float) -> float:
    from syncline.specs import Override, load_spec
    from syncline.studies.papers.wall_clock import equation_s, simulated_s, step_compute_s

    spec: Any = load_spec("mt-dao-fig9", [Override.parse("latency='25 ms'")])
    (strategy,) = (one for one in spec.strategies if (one.method, one.panel) == (method, panel))
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
    """Of a momentum after K local steps on independent gradients of variance 1, over workers."""
    return float(_local_noise(beta, period).var())


def simulated_information(beta: float, period: int = PERIOD) -> float:
    """Nats that it shares with the common momentum, if that has the variance which the noise's can become."""
    rng = np.random.default_rng(seed64(0, "common momenta"))
    noise = _local_noise(beta, period)
    before = np.sqrt((1 - beta) / (1 + beta)) * rng.normal(size=noise.size)
    correlation = np.corrcoef(before, beta**period * before + noise)[0, 1]
    return float(-0.5 * np.log1p(-(correlation**2)))


def batch_variance(beta: float, batch: int, workers: int, period: int = PERIOD) -> float:
    """Variance where each worker's gradient is the mean of its share of the global batch, samples of variance 1."""
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
    """The largest ``a`` that converges, by the recurrence's eigenvalues, of Local SGDM and MT-DAO-SGDM."""
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
    """Steps until the distance is below 1 % for good."""
    found = {}
    for name, omega in (("local", 1.0), ("mt-dao", 0.95)):
        above = np.flatnonzero(_quadratic(beta, omega, a, 20_000) >= 0.01)
        found[name] = float(above[-1] + 2)
    return found


def worst_period_difference(beta: float, a: float = 1.0, periods: Sequence[int] = (1, 32), steps: int = 256) -> float:
    """Between mean trajectories of four workers with starts of their own that average often and rarely."""
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
    """``beta_omega``: the mean age of the gradients in a mixture, ``omega sum_i i (1 - beta) beta^i``, summed."""
    ages = np.arange(200_000)
    return float(omega * (ages * (1 - beta) * beta**ages).sum())


def drift_by_decay(period: int = PERIOD) -> dict[str, float]:
    """psi of one momentum, parameters and momentum averaged with the same probability."""
    return {f"{beta:g}": float(drift_factor(1 / period, beta, 1.0, 1 / period)) for beta in (0.9, 0.99, 0.999)}


def drift_by_period(beta: float = 0.99) -> dict[str, float]:
    """psi by the momentum's period, parameters every 32 steps."""
    return {f"every {period}": float(drift_factor(1 / PERIOD, beta, 1.0, 1 / period)) for period in (8, 32, 128)}


def proof_condition(form: str, lag: float) -> float:
    """``eta L + 2 eta^2 L^2 beta_omega^2`` at the step size of a form, without drift; the proof needs at most 1/2."""
    eta = float(mt_dao_step_size(1.0, lag, 0.0, form=form))  # type: ignore[arg-type]
    return eta + 2 * eta**2 * lag**2


def drift_over_lemma(beta: float, period: int = PERIOD) -> float:
    """The workers' exact drift on flat ground over what Lemma 3 bounds it by."""
    at = (1 / period, beta, 1.0, 1 / period)
    return float(flat_drift(*at) / (4 * drift_factor(*at)))


def rate_exponent() -> float:
    """By which power of the steps equation (2) falls, once they are many."""
    at: dict[str, Any] = {"gap": 1.0, "smoothness": 1.0, "noise_variance": 1.0, "workers": 4, "lag": 9.0, "drift": 10.0}
    one, other = (float(mt_dao_rate(steps, **at)) for steps in (1e12, 1e14))
    return float(np.log(other / one) / np.log(100))


def overlap_takes_off(gbit_per_s: float) -> float:
    """What a step of computing during each average takes off the unified methods' total, in percent."""
    at: dict[str, Any] = {"panel": "Adam", "method": "Local Adam", "bandwidth_bytes_per_s": gbit_per_s * 1e9 / 8}
    hidden, whole = (study_cell("mt-dao-fig9", f"{by}_total_s", **at) for by in ("overlap", "events"))
    return float(100 * (1 - hidden / whole))
