"""MT-DAO's and Local Adam's momenta from one average to the next: the MLP on digits, four workers, K = 32."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of

PERIOD, STEPS, FIRST_ROUND = 32, 256, 2
SPECS: dict[str, dict[str, Any]] = {
    "mt-dao": {"kind": "mt-dao", "lr": 0.01, "betas": [0.999], "omegas": [0.95], "period": PERIOD},
    "local": {"kind": "local", "lr": 0.003, "rule": {"kind": "adam", "beta1": 0.95}, "period": PERIOD},
}


@cache
def _rounds(method: str, skew: float = 0.5) -> list[dict[str, np.ndarray]]:
    """Per round parameters and momenta: common at its start, and of each worker ``(4, d)`` before its last step."""
    comm = SimulatedCommunicator(4)
    task = Digits(skew=skew).build(rows_of(comm, (0,)))
    made = method_of(SPECS[method]).build(parameter_groups(task), comm, True)
    params = list(task.params.values())

    def flat(name: str = "") -> np.ndarray:
        parts = [made.state[p][name] if name else p.detach() for p in params]
        return np.concatenate([np.asarray(part.double()).reshape(4, -1) for part in parts], axis=1)

    rounds, start = [], (flat(), np.zeros_like(flat()))
    for t in range(STEPS):
        if (t + 1) % PERIOD == 0:
            rounds.append({"x0": start[0][0], "u0": start[1][0], "x": flat(), "u": flat("momentum_1")})
        task.step_gradients(t)
        made.step()
        if (t + 1) % PERIOD == 0:
            start = flat(), flat("momentum_1")
    return rounds[FIRST_ROUND:]


def _each(measure: Any) -> dict[str, float]:
    return {method: float(np.mean([measure(one) for one in _rounds(method)])) for method in SPECS}


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Mean over workers."""
    return float(np.mean((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)))


def kept_information() -> dict[str, float]:
    """Nats per coordinate that a worker's momentum tells of the common one at the round's start, if Gaussian."""
    return _each(lambda one: -0.5 * np.log1p(-(_cosine(one["u"], one["u0"]) ** 2)))


def momentum_spread() -> dict[str, float]:
    """Variance of momenta between workers, over the mean's squared norm."""
    return _each(lambda one: ((one["u"] - one["u"].mean(0)) ** 2).sum(-1).mean() / (one["u"].mean(0) ** 2).sum())


def relative_change(state: str) -> dict[str, float]:
    """``||s_end - s_start|| / ||s_start||`` of parameters ``x`` or momenta ``u``, mean over workers."""
    return _each(
        lambda one: (np.linalg.norm(one[state] - one[f"{state}0"], axis=-1) / np.linalg.norm(one[f"{state}0"])).mean()
    )


def alignment(first: str, second: str) -> dict[str, float]:
    """Cosine between pseudo-gradients (``local-pg``, ``global-pg``) and momenta (``local-u``, ``global-u``)."""
    return _each(lambda one: _cosine(_vectors(one)[first], _vectors(one)[second]))


def lowest_alignment(first: str, second: str) -> float:
    """The same of MT-DAO."""
    return alignment(first, second)["mt-dao"]


def _vectors(one: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    gradients = one["x0"] - one["x"]
    return {
        "local-pg": gradients,
        "global-pg": gradients.mean(0, keepdims=True),
        "local-u": one["u"],
        "global-u": one["u"].mean(0, keepdims=True),
    }


def second_moment_norms(steps: int = 64) -> dict[str, float]:
    """Norm of Adam's second moment, of gradients averaged before squaring (``ddp``) and after (``k 1``)."""
    norms = {}
    rule = {"kind": "adam", "beta1": 0.9, "beta2": 0.99}
    for name, spec in (("ddp", {"kind": "ddp", "lr": 0.003, "rule": rule}),
                       ("k 1", {"kind": "local", "lr": 0.003, "rule": rule, "period": 1})):  # fmt: skip
        comm = SimulatedCommunicator(4)
        task = Digits().build(rows_of(comm, (0,)))
        made = method_of(spec).build(parameter_groups(task), comm, True)
        for t in range(steps):
            task.step_gradients(t)
            made.step()
        states = [made.state[p] for p in task.params.values()]
        norms[name] = float(np.sqrt(sum(float((s["second_moment"][0].double() ** 2).sum()) for s in states)))
    return norms
