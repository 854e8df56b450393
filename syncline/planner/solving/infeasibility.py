"""Reasons in words why a target is always or never met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.planner.projection.thresholds import at_bandwidth
from syncline.planner.projection.training_totals import WholeTraining
from syncline.planner.solving.evaluations import Evaluation, Trials, evaluate_settings
from syncline.planner.solving.targets import SolveTargets
from syncline.planner.solving.variables import DecisionVariable
from syncline.units import format_seconds


def share_text(share: float) -> str:
    """Return a share for people: ``43.1%``."""
    return f"{100 * share:.3g}%"


def quantity_text(name: str, value: float, training: WholeTraining) -> str:
    """Return the value of a target's quantity, for people."""
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
    """Return the reason why no value meets a target, and the value that comes nearest."""
    targets, training = trials.targets, trials.training
    values = sorted(trials.known)
    evaluations = [trials.known[value] for value in values]
    if all(np.isnan(evaluation.margins[0]) for evaluation in evaluations):
        return evaluations[-1].unknown or "nobody knows", values[-1]
    nearest = int(np.nanargmax([evaluation.margins[0] for evaluation in evaluations]))
    value, best = values[nearest], evaluations[nearest]
    reason = _computing_alone(best, targets, training)
    if reason:
        return reason, value
    reached = best.reached[best.decides].predicted
    assert reached is not None
    reached_text = quantity_text(best.decides, reached, training)
    return _why_not(trials, value, best, reached_text), value


def _why_not(trials: Trials, value: float, best: Evaluation, reached_text: str) -> str:
    """Return the reason why even the nearest value misses a target that computing alone would meet."""
    variable = trials.variable
    if best.decides == "memory":
        workers_text = f", at {variable.text(value)}" if variable.name == "workers" else ""
        return f"it takes {reached_text}{workers_text}; --layout shares a replica out"
    if variable.place is None or best.decides in ("speedup", "loss_penalty"):
        return f"at best {reached_text}, at {variable.text(value)}"
    waits_s = best.row["exposed_communication_s"]
    waits = "" if best.decides == "exposed" else f", {format_seconds(waits_s)} of a step waiting"
    if variable.name == "bandwidth":
        return f"{_limiting_part(trials, value)}: {reached_text} at {variable.text(value)}{waits}"
    return f"its bandwidth alone is too little: without any latency {reached_text}{waits}"


def _limiting_part(trials: Trials, value: float) -> str:
    """Return whether this link's latency or the other links make a step wait at the highest bandwidth."""
    setting, place = trials.variable.at(value), trials.variable.place
    assert place is not None
    network = place.with_link(replace(at_bandwidth(place.link, value), latency_s=0.0))
    (trial,) = evaluate_settings([setting._replace(network=network)], trials.targets, trials.training, trials.baseline)
    return "its latency alone is too much" if trial.margins[0] >= 0 else "the other links alone take too long"


NOT_OF_TIME = ("speedup", "exposed", "loss_penalty", "compute_utilisation", "memory")
"""Targets that do not follow from a step without waiting."""


def _computing_alone(best: Evaluation, targets: SolveTargets, training: WholeTraining) -> str | None:
    """Return the quantity without any waiting for the network, as text, if even it misses the target; else None."""
    row, name = best.row, best.decides
    step_s, waits_s = row["step_time_s"], row["exposed_communication_s"]
    value, limit = best.reached[name].predicted, targets.specified[name]
    if not step_s or value is None or name in NOT_OF_TIME:
        return None
    compute_share = (step_s - waits_s) / step_s
    alone = value / compute_share if name == "utilisation" else value * compute_share
    if (alone >= limit) if name == "utilisation" else (alone <= limit):
        return None
    step_text = "" if name == "step_time_s" else f", {format_seconds(step_s - waits_s)} a step"
    texts = {
        "utilisation": f"computing alone comes to {quantity_text(name, alone, training)}{step_text}",
        "budget": f"computing alone costs {quantity_text(name, alone, training)}{step_text}",
    }
    return texts.get(name, f"computing alone takes {quantity_text(name, alone, training)}{step_text}")


def why_always(variable: DecisionVariable, nearest: Evaluation, training: WholeTraining, value: float) -> str:
    """Return the reason why every value meets a target: the quantity at ``value``, the nearest to missing it."""
    reached: Any = nearest.reached[nearest.decides].predicted
    return f"met even at {variable.text(value)}: {quantity_text(nearest.decides, reached, training)}"
