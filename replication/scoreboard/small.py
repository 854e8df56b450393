"""Figures of trainings in small: final losses of the MLP on digits, over a grid of one or two hyperparameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from syncline.comm import SimulatedCommunicator
from syncline.methods import method_of
from syncline.optim.measures import UpdateVectors, Watch
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of, train

WORKERS, STEPS, SEEDS = 4, 128, (0, 1, 2)
RATES = (0.006, 0.02)
FAST, MIDDLE, SLOW = 0.9, 0.95, 0.99
"""Decays of momenta; the paper's 0.9, 0.99 and 0.999 are for trainings of thousands of steps."""

BETA2 = 0.999
WEIGHTS = (0.5, 0.7, 0.9, 0.95)
"""Weights of the slow momentum, of the six that MT-DAO's Appendix H.2.1 sweeps."""

PAIRS = ((0.05, 0.9), (0.15, 0.8), (0.25, 0.7), (0.35, 0.6), (0.45, 0.5))
"""Weights of the middle and the slow momentum beside a fastest part of 0.05, as in Appendix H.2.2.

There (0.25, 0.8) adds to 1.1 with the fastest part; here it is (0.15, 0.8).
"""


def final_loss(
    spec: Mapping[str, Any], workers: int = WORKERS, batch_size: int = 32, skew: float = 0.0, steps: int = STEPS
) -> float:
    """Return the median final loss of three seeds on digits; infinite if most diverge."""
    return _final_loss(json.dumps(dict(spec)), workers, batch_size, skew, steps)


@cache
def _final_loss(spec: str, workers: int, batch_size: int, skew: float, steps: int) -> float:
    losses = []
    fields = json.loads(spec)
    replicas = 1 if fields["kind"] == "curvadion" else len(SEEDS)  # a trigger is one seed's
    for seeds in (SEEDS,) if replicas > 1 else ((seed,) for seed in SEEDS):
        comm = SimulatedCommunicator(workers, replicas=replicas)
        task = Digits(batch_size=batch_size, skew=skew).build(rows_of(comm, seeds))
        method = method_of(fields).build(parameter_groups(task), comm, True)
        losses += list(train(task, method, seeds, steps).evaluation["loss"][-1])
    return median_loss(losses)


def median_loss(losses: ArrayLike) -> float:
    """Return the median of the seeds' losses; a training that diverged counts as infinite."""
    return float(np.median(np.nan_to_num(np.asarray(losses, dtype=float), nan=np.inf)))


def best_loss(spec: Mapping[str, Any], rates: Iterable[float] = RATES, workers: int = WORKERS, **setting: Any) -> float:
    """Return the lowest median final loss over learning rates."""
    return min(final_loss({**spec, "lr": rate}, workers, **setting) for rate in rates)


# MT-DAO, Appendices B.3 and H.2, Figures 17 and 20 to 24.


def _mixed(betas: tuple[float, ...], omegas: tuple[float, ...], base: str = "adam", period: int = 32) -> dict[str, Any]:
    spec = {"kind": "mt-dao", "base": base, "betas": list(betas), "omegas": list(omegas), "period": period}
    return spec | ({"beta2": BETA2} if base == "adam" else {})


def best_rates() -> dict[str, float]:
    """Return the best of the powers of two between 2^-9 and 2^-5 of Adam and ADOPT in data parallelism."""
    rates = [2.0**-power for power in range(5, 10)]
    best = {}
    for name in ("adam", "adopt"):
        losses = {rate: final_loss({"kind": "ddp", "rule": {"kind": name}, "lr": rate}) for rate in rates}
        best[name] = min(losses, key=losses.__getitem__)
    return best


def clipping_ratio(clip_norm: float) -> float:
    """Return MT-DAO's loss with unclipped gradients over that with clipped ones, each at its best rate."""
    spec = _mixed((SLOW,), (0.95,))
    return best_loss(spec) / best_loss({**spec, "clip_norm": clip_norm})


def best_weight(momenta: str, base: str = "adam") -> float:
    """Return the slowest momentum's weight with the lowest loss at its best rate.

    Args:
        momenta: ``one`` beside the gradient, ``two``, ``one-and-middle`` beside the gradient, or ``three``.
        base: ``adam`` or ``muon``.
    """
    forms: dict[str, list[tuple[tuple[float, ...], tuple[float, ...]]]] = {
        "one": [((SLOW,), (weight,)) for weight in WEIGHTS],
        "two": [((FAST, SLOW), (round(1 - weight, 2), weight)) for weight in WEIGHTS],
        "one-and-middle": [((MIDDLE, SLOW), pair) for pair in PAIRS],
        "three": [((FAST, MIDDLE, SLOW), (round(1 - sum(pair), 2), *pair)) for pair in PAIRS],
    }
    losses = {omegas: best_loss(_mixed(betas, omegas, base)) for betas, omegas in forms[momenta]}
    return min(losses, key=losses.__getitem__)[-1]


def momenta_in_every_step() -> dict[str, float]:
    """Return the best loss with one momentum and with two, averaged in every step, over weights and rates."""
    weights = (0.5, 0.9)
    single = [_mixed((SLOW,), (weight,), period=1) for weight in weights]
    two = [_mixed((FAST, SLOW), (round(1 - weight, 2), weight), period=1) for weight in weights]
    return {"one": min(map(best_loss, single)), "two": min(map(best_loss, two))}


# MT-DAO, Table 1 and Figures 13 and 14: labels alike or skewed, rates from trying.


def losses_by_period(beta: float) -> dict[str, float]:
    """Return MT-DAO's best loss with skewed labels by the period of the parameters; momenta have a period of 16."""
    spec = _mixed((beta,), (0.95,)) | {"eps": 1e-3, "momentum_periods": [16], "second_moment_period": 16}
    setting: dict[str, Any] = {"skew": 0.8, "steps": 512}
    return {f"K {k}": best_loss({**spec, "period": k}, (0.016, 0.032), **setting) for k in (16, 64, 256)}


def growth_by_decay() -> dict[str, float]:
    """Return by how many percent the loss of `losses_by_period` grows from a period of 16 to one of 256."""
    losses = {beta: losses_by_period(beta) for beta in (0.9, 0.99, 0.995)}
    return {f"{beta:g}": 100 * (loss["K 256"] / loss["K 16"] - 1) for beta, loss in losses.items()}


def losses_by_momenta(skew: float) -> dict[str, float]:
    """Return MT-DAO's best loss with one momentum and the gradient, two, two and the gradient, and three."""
    momenta = {
        "one": _mixed((0.999,), (0.95,)), "two": _mixed((0.9, 0.999), (0.05, 0.95)),
        "qh-two": _mixed((0.99, 0.999), (0.05, 0.9)), "three": _mixed((0.9, 0.99, 0.999), (0.05, 0.05, 0.9)),
    }  # fmt: skip
    setting: dict[str, Any] = {"skew": skew, "steps": 256}
    return {name: best_loss({**spec, "eps": 1e-3}, (0.032, 0.064), **setting) for name, spec in momenta.items()}


# CurvaDion, Appendix D.


def robustness(field: str, values: tuple[float, ...], threshold: float = 0.3) -> float:
    """Return the largest over the smallest ratio of CurvaDion's loss to Dion's, over batch sizes or rank fractions."""
    ratios = []
    for value in values:
        common = {"lr": 0.02, "other_lr": 0.003} | ({} if field == "batch_size" else {field: value})
        batch_size = int(value) if field == "batch_size" else 32
        triggered = final_loss({"kind": "curvadion", "threshold": threshold} | common, batch_size=batch_size)
        ratios.append(triggered / final_loss({"kind": "dion"} | common, batch_size=batch_size))
    return max(ratios) / min(ratios)


# Lion Cub, Figures 8 to 10, 12 and 14.

VOTES: dict[str, dict[str, Any]] = {
    "lion": {"kind": "ddp", "rule": "lion"}, "one-bit": {"kind": "lion-cub", "vote": "one-bit", "ties": "alternate"},
    "plus": {"kind": "lion-cub", "vote": "one-bit", "ties": "plus"}, "L1": {"kind": "lion-cub", "bits": 8, "p": 1.0},
    "Qinf": {"kind": "lion-cub", "bits": 8, "p": "inf", "stochastic": True},
}  # fmt: skip
"""Lion on the mean gradient, one bit per vote whose ties alternate or are always plus, and two 8-bit votes."""


def losses_by_vote(skew: float, *votes: str, rates: tuple[float, ...] = (0.004,)) -> dict[str, float]:
    """Return the best loss of eight workers over learning rates, by a name of `VOTES`."""
    return {name: best_loss(VOTES[name], rates, workers=8, skew=skew) for name in votes}


def losses_by_ties() -> dict[str, float]:
    """Return the losses of one-bit votes, labels alike, whose ties alternate or are always plus."""
    losses = losses_by_vote(0.0, "one-bit", "plus")
    return {"alternating": losses["one-bit"], "plus": losses["plus"]}


def vote_over_lion(vote: str, skew: float) -> float:
    """Return a loss of `losses_by_vote` over Lion's."""
    losses = losses_by_vote(skew, vote, "lion")
    return losses[vote] / losses["lion"]


def losses_by_norm() -> dict[str, float]:
    """Return the best loss of Lion Cub with eight workers and 8 bits, by the norm that scales the integers."""
    norms = {"L0": 0.0, "L1": 1.0, "Linf": "inf"}
    rates = (0.002, 0.006)
    return {
        name: best_loss({"kind": "lion-cub", "vote": "quantised", "p": p}, rates, workers=8)
        for name, p in norms.items()
    }


def norm_ratio() -> float:
    """Return the largest over the smallest of `losses_by_norm`."""
    losses = losses_by_norm()
    return max(losses.values()) / min(losses.values())


@cache
def sign_matches() -> dict[str, float]:
    """Return the share of signs of the mean update that quantised votes keep along a training on images."""
    comm = SimulatedCommunicator(8)
    task = Digits().build(rows_of(comm, (0,)))
    spec = {"kind": "lion-cub", "lr": 0.002, "vote": "quantised"}
    method = method_of(spec).build(parameter_groups(task), comm, True)
    watched = train(task, method, (0,), STEPS, watch=Watch([UpdateVectors()])).watched
    names = {"vote": "match: one bit", "L1": "match: 8 bits, L1", "Qinf": "match: 8 bits, Qinf"}
    return {
        name: float(np.median([row.value for row in watched if row.measure == measure and not row.layer]))
        for name, measure in names.items()
    }
