"""Predictions held against what was published later, or by others, without a fit to it.

`backtest` and `ranking`: losses at 4B and 10B from those of smaller models. `intellect`: the clock of INTELLECT-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import ModelShape
from syncline.costmodel.scaling.laws import log_bounds, printed_losses
from syncline.costmodel.scaling.measured_end import CURVES, fitted_curve, measured_ratios, ratio_uncertainty_beyond
from syncline.costmodel.scaling.relative import law_factors, ratio_uncertainty


def off(printed: float, ours: float) -> str:
    """By how much ours is more, in percent."""
    return f"{100 * (ours / printed - 1):+.2f}%"


BACKTEST_SIZE = 2.4e9
"""Largest model that the backtest's fits have seen."""


class Backtest(NamedTuple):
    """A measured ratio of losses and its prediction from smaller models, with the token factors of both.

    ``rule``: ``laws`` divides two power laws; ``measured end`` lets no ratio fall below the curve's end.
    """

    family: str
    size_b: float
    method: str
    replicas: int
    period: int
    rule: str
    measured_ratio: float
    predicted_ratio: float
    low: float
    high: float
    covered: bool
    measured_tokens: float
    predicted_tokens: float
    tokens_off: str


def backtest() -> list[Backtest]:
    """Return the ratios of models above 2.4B, predicted from those of 2.4B and below, by both rules."""
    rows = []
    for family, method in CURVES:
        seen = max(measured.row.parameters for measured in measured_ratios(family, method, BACKTEST_SIZE))
        later = [measured for measured in measured_ratios(family, method) if measured.row.parameters > BACKTEST_SIZE]
        for rule, capped in (("laws", False), ("measured end", True)):
            curve = fitted_curve(family, method, BACKTEST_SIZE, capped)
            growth = ratio_uncertainty_beyond(BACKTEST_SIZE, capped)
            for row, measured in later:
                predicted = curve.ratio(row.setting)
                within = log_bounds(ratio_uncertainty(family, method), 1.0)
                grown = log_bounds(growth, float(np.sqrt(np.log(row.parameters / seen))))
                low, high = (predicted * float(np.exp(sign * np.hypot(within[end], grown[end])))
                             for end, sign in ((0, -1), (1, 1)))  # fmt: skip
                tokens, predicted_tokens = (made_up[0] for ratio in (measured, predicted)
                                            if (made_up := law_factors(ratio, row.parameters, row.tokens)))  # fmt: skip
                rows.append(
                    Backtest(
                        family, round(row.parameters / 1e9, 2), method, int(row.replicas), int(row.period), rule,
                        round(measured, 5), round(predicted, 5), round(low, 5), round(high, 5), low < measured < high,
                        round(tokens, 3), round(predicted_tokens, 3), off(tokens, predicted_tokens),
                    )
                )  # fmt: skip
    return rows


class Ranking(NamedTuple):
    """Methods of one size ranked by predicted losses, against the ranks of measured ones.

    ``pairs`` leaves out two methods of the same measured loss; ``regret_nats`` is the measured loss of the method with
    the lowest predicted loss over the lowest measured loss, ``regret_tokens`` the same in tokens. ``worst_tokens_off``:
    predicted over measured token factor, the one that is furthest off.
    """

    family: str
    size_b: float
    candidates: str
    rule: str
    pairs: int
    hits: int
    covered: int
    ratios: int
    chosen: str
    regret_nats: float
    regret_tokens: str
    worst_tokens_off: str


def ranking() -> list[Ranking]:
    """Return the ranks of all methods at each size, and those without one replica, which no network slows down."""
    out = []
    tests = backtest()
    for family, size, rule in dict.fromkeys((row.family, row.size_b, row.rule) for row in tests):
        alike = [row for row in tests if (row.family, row.size_b, row.rule) == (family, size, rule)]
        (base,) = (
            one.loss for one in printed_losses(family, "ddp-adam", "test") if round(one.parameters / 1e9, 2) == size
        )
        for candidates, least in (("all", 1), ("two replicas and more", 2)):
            chosen = [row for row in alike if row.replicas >= least]
            if least > 1 and len(chosen) == len(alike):
                continue
            names = ["ddp-adam", *(f"{row.method}, M = {row.replicas}" for row in chosen)]
            measured, predicted, tokens = (
                dict(zip(names, (1.0, *values), strict=True))
                for values in zip(
                    *((r.measured_ratio, r.predicted_ratio, r.measured_tokens) for r in chosen), strict=True
                )
            )
            pairs = [(a, b) for a, b in combinations(names, 2) if measured[a] != measured[b]]
            hits = sum((measured[a] < measured[b]) == (predicted[a] < predicted[b]) for a, b in pairs)
            first, best = min(names, key=predicted.__getitem__), min(names, key=measured.__getitem__)
            worst = max(chosen, key=lambda row: abs(np.log(row.predicted_tokens / row.measured_tokens)))
            regret = round(base * (measured[first] - measured[best]), 4)
            covered = sum(row.covered for row in chosen)
            lost = off(tokens[best], tokens[first])
            counts = len(pairs), hits, covered, len(chosen)
            out.append(Ranking(family, size, candidates, rule, *counts, first, regret, lost, worst.tokens_off))
    return out


# INTELLECT-1, from its published lines, model and batch.

PERIOD = 100
"""Inner steps between two all-reduces of INTELLECT-1."""

ALL_SITES = 14
"""Largest number of sites of INTELLECT-1; how many of them were in the USA is not published."""

PUBLISHED_STEP_S = 22.8
PUBLISHED_MFU = 0.433
PUBLISHED = {"USA": (103.0, 0.957), "USA and Europe": (382.0, 0.856), "worldwide": (469.0, 0.830)}
"""Seconds of an all-reduce, and the part of the time that is computing, by place."""

SHAPES: dict[str, Mapping[str, int]] = {
    "38 layers": {"layers": 38},
    "46 layers": {"layers": 46},
    "26 layers, 5,120 wide": {"layers": 26, "width": 5120, "heads": 40, "hidden": 17920},
}
"""Other shapes of about 10B parameters, to see how much depends on the shape."""


class Replayed(NamedTuple):
    """A published number of INTELLECT-1 and its prediction.

    ``low`` and ``high``: the prediction at the ends of the published range of lines, or at the bounds of computing. A
    range of lines has no ``predicted`` value, and ``difference`` is that of its nearer end.
    """

    what: str
    setting: str
    published: float
    predicted: float | None
    low: float
    high: float
    unit: str
    difference: str


class Clock(NamedTuple):
    """Seconds of a step's computing with its bounds, and of an all-reduce between sites; the part that is computing."""

    compute_s: float
    low_s: float
    high_s: float
    all_reduce_s: float
    utilisation: float


def replayed(workers: int = 112, model: Mapping[str, int] | None = None, **compute: Any) -> dict[str, Clock]:
    """Return the clock of the bundled spec by network, from projections with its period and with twice its period.

    An all-reduce of R seconds every H steps adds R / H to a step; two periods separate it from all else in the step.
    Utilisation is that of the published account: computing over computing and all-reduces.

    Args:
        workers: GPUs, 8 a site.
        model: fields of the model to replace.
        compute: fields of ``compute`` beside the hardware.
    """
    import syncline as sl
    from syncline.specs import ProjectSpec, load_spec

    spec = load_spec("intellect-1")
    assert isinstance(spec, ProjectSpec) and isinstance(spec.model, ModelShape)
    (method,) = spec.methods
    changes: dict[str, Any] = {
        "model": replace(spec.model, **(model or {})),
        "compute": {"hardware": "h100", **compute},
    }
    if "mfu" in compute:  # which counts no FLOPs of recomputation
        changes["memory"] = spec.memory.model_copy(update={"activations": None})
    rows: list[list[Mapping[str, Any]]] = []
    for period in (PERIOD, 2 * PERIOD):
        rows.append(
            sl.project(
                "intellect-1", **changes, workers=[workers], thresholds=False,
                methods=[method.model_dump() | {"period": period}],
            ).rows
        )  # fmt: skip
    out = {}
    for often, seldom in zip(*rows, strict=True):
        all_reduce_s = 2 * PERIOD * (often["exposed_communication_s"] - seldom["exposed_communication_s"])
        computing_s = often["step_time_s"] - all_reduce_s / PERIOD
        low_s, high_s = (computing_s * seldom[f"step_time_{end}_s"] / seldom["step_time_s"] for end in ("low", "high"))
        share = computing_s / often["step_time_s"]
        out[often["network"]] = Clock(computing_s, low_s, high_s, all_reduce_s, share)
    return out


def intellect() -> list[Replayed]:
    """Return the published numbers of INTELLECT-1 beside predictions from its lines, model and batch alone."""
    rows = [
        _step("preset h100", replayed()),
        _step("published MFU", replayed(mfu=PUBLISHED_MFU)),
        *(_step(f"preset h100, {name}", replayed(model=fields)) for name, fields in SHAPES.items()),
    ]
    for sites in (14, 8, 2):
        clocks = replayed(8 * sites)
        fast, slow = clocks["fast-lines"], clocks["slow-lines"]
        for place, (all_reduce_s, utilisation) in PUBLISHED.items() if sites == ALL_SITES else [*PUBLISHED.items()][:1]:
            setting = f"{place}, {sites} sites"
            rows.append(_range("all-reduce", setting, all_reduce_s, (fast.all_reduce_s, slow.all_reduce_s), "s"))
            rows.append(_range("utilisation", setting, utilisation, (slow.utilisation, fast.utilisation), ""))
    return rows


def _step(setting: str, clocks: Mapping[str, Clock]) -> Replayed:
    clock = clocks["fast-lines"]
    seconds = (round(value, 2) for value in (clock.compute_s, clock.low_s, clock.high_s))
    return Replayed("step", setting, PUBLISHED_STEP_S, *seconds, "s", off(PUBLISHED_STEP_S, clock.compute_s))


def _range(what: str, setting: str, published: float, ends: tuple[float, float], unit: str) -> Replayed:
    """Return a row of a value that is predicted at both ends of the published range of lines."""
    low, high = ends
    inside = low <= published <= high
    difference = "inside" if inside else off(published, low if published < low else high)
    digits = 1 if unit else 3
    return Replayed(what, setting, published, None, round(low, digits), round(high, digits), unit, difference)
