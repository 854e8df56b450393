"""Why a target is met always or never, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.experiments.projection.answers import WholeTraining
from syncline.experiments.projection.thresholds import at_bandwidth
from syncline.experiments.solving.sought import Sought
from syncline.experiments.solving.targets import SolveTargets
from syncline.experiments.solving.tried import Trials, Tried, tried
from syncline.units import format_seconds


def share_text(share: float) -> str:
    """For people: ``43.1%``."""
    return f"{100 * share:.3g}%"


def told_text(name: str, value: float, training: WholeTraining) -> str:
    """What a target is held against, for people."""
    if name == "budget":
        return f"{value:,.0f} {training.prices.currency if training.prices else ''}".rstrip()
    texts: dict[str, Callable[[float], str]] = {
        "deadline_s": format_seconds,
        "step_time_s": format_seconds,
        "utilisation": lambda v: f"{share_text(v)} of the peak",
        "compute_utilisation": lambda v: f"{share_text(v)} of a step computing",
        "exposed": lambda v: f"{share_text(v)} of a step waiting",
        "speedup": lambda v: f"{v:.3g} times the baseline",
        "loss_penalty": lambda v: f"{100 * (v - 1):+.2g}% in loss",
        "memory": lambda v: f"{v:.3g} times the memory of a worker",
    }
    return texts[name](value)


def why_never(trials: Trials) -> tuple[str, float]:
    """Why no value meets a target, and the value that comes nearest."""
    targets, training = trials.targets, trials.training
    values = sorted(trials.known)
    every = [trials.known[one] for one in values]
    if all(np.isnan(one.margins[0]) for one in every):
        return every[-1].unknown or "nobody knows", values[-1]
    nearest = int(np.nanargmax([one.margins[0] for one in every]))
    value, best = values[nearest], every[nearest]
    alone = _computing_alone(best, targets, training)
    if alone:
        return alone, value
    reached = best.told[best.decides][0]
    assert reached is not None
    told = told_text(best.decides, reached, training)
    return _why_not(trials, value, best, told), value


def _why_not(trials: Trials, value: float, best: Tried, told: str) -> str:
    """Why not even the value that comes nearest meets a target that computing alone would."""
    sought = trials.sought
    if best.decides == "memory":
        whatever = f", at {sought.text(value)}" if sought.name == "workers" else ""
        return f"it takes {told}{whatever}; --layout shares a replica out"
    if sought.place is None or best.decides in ("speedup", "loss_penalty"):
        return f"at best {told}, at {sought.text(value)}"
    waits_s = best.row["exposed_communication_s"]
    waits = "" if best.decides == "exposed" else f", {format_seconds(waits_s)} of a step waiting"
    if sought.name == "bandwidth":
        return f"{_what_is_left(trials, value)}: {told} at {sought.text(value)}{waits}"
    return f"its bandwidth alone is too little: without any latency {told}{waits}"


def _what_is_left(trials: Trials, value: float) -> str:
    """Of a step that waits at the most bandwidth: is it this link's latency, or are it the other links?"""
    setting, place = trials.sought.at(value), trials.sought.place
    assert place is not None
    without = place.with_link(replace(at_bandwidth(place.link, value), latency_s=0.0))
    (one,) = tried([setting._replace(network=without)], trials.targets, trials.training, trials.baseline)
    return "its latency alone is too much" if one.margins[0] >= 0 else "the other links alone take too long"


NOT_OF_TIME = ("speedup", "exposed", "loss_penalty", "compute_utilisation", "memory")
"""Targets that a step without waiting says nothing of."""


def _computing_alone(best: Tried, targets: SolveTargets, training: WholeTraining) -> str | None:
    """Where the target would not be met by steps that wait for no network: what it is then."""
    row, name = best.row, best.decides
    step_s, waits_s = row["step_time_s"], row["exposed_communication_s"]
    value, limit = best.told[name][0], targets.given[name]
    if not step_s or value is None or name in NOT_OF_TIME:
        return None
    part = (step_s - waits_s) / step_s
    alone = value / part if name == "utilisation" else value * part
    if (alone >= limit) if name == "utilisation" else (alone <= limit):
        return None
    own = "" if name == "step_time_s" else f", {format_seconds(step_s - waits_s)} a step"
    told = {
        "utilisation": f"computing alone comes to {told_text(name, alone, training)}{own}",
        "budget": f"computing alone costs {told_text(name, alone, training)}{own}",
    }
    return told.get(name, f"computing alone takes {told_text(name, alone, training)}{own}")


def why_always(sought: Sought, nearest: Tried, training: WholeTraining, value: float) -> str:
    """Why every value meets a target: what the worst of them comes to."""
    reached: Any = nearest.told[nearest.decides][0]
    return f"met even at {sought.text(value)}: {told_text(nearest.decides, reached, training)}"
