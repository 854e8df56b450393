"""The cheapest of several links that could replace one: the cost of each, and whether it meets a target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.methods import MethodBase
from syncline.planner.solving.evaluations import Evaluation, evaluate_settings
from syncline.planner.solving.feasible_intervals import BOUNDS
from syncline.planner.solving.infeasibility import quantity_text
from syncline.planner.solving.link_selection import place_of
from syncline.planner.solving.question import InverseProblem, OfferedLink
from syncline.planner.solving.variables import ProjectionSetting
from syncline.specs import ProjectSpec

MONTH_S = 365.25 / 12 * 86400.0
"""Seconds of a mean month."""


def choose_network(question: InverseProblem) -> list[dict[str, Any]]:
    """Return a row per method, the cheapest network first: by money if it is known for all, else by bandwidth."""
    rows: list[dict[str, Any]] = []
    for spec in question.specs:
        for network in spec.networks:
            answers = [_answer(question, spec, network, method) for method in question.methods(spec)]
            answers.sort(key=lambda answer: answer["_order"])
            for number, answer in enumerate(answers, start=1):
                answer["rank"] = number if answer["value"] is not None else None
                answer["tie"] = bool(number > 1 and answer["rank"] and answer["_order"] == answers[0]["_order"])
            rows += [{name: value for name, value in answer.items() if name != "_order"} for answer in answers]
    return rows


def _answer(question: InverseProblem, spec: ProjectSpec, network: Network, method: MethodBase) -> dict[str, Any]:
    """Return the row for one method: the cheapest link that meets the target, or the nearest, and the row with it."""
    place = place_of(network, question.level)
    settings = [ProjectionSetting(spec, place.with_link(offer.link), method) for offer in question.among]
    present = ProjectionSetting(spec, network, method)
    *trials, current = evaluate_settings([*settings, present], question.targets, question.training, question.baseline)
    offered = list(question.among)
    costs = [_cost(offer, trial) for offer, trial in zip(offered, trials, strict=True)]
    by_money = all(cost is not None for cost in costs)
    bandwidths = [float(offer.link.bandwidth_bytes_per_s) for offer in offered]
    order = sorted(range(len(offered)), key=lambda i: (costs[i] if by_money else bandwidths[i], bandwidths[i], i))
    met_by_bound = [[i for i in order if trials[i].margins[bound] >= 0] for bound in range(len(BOUNDS))]
    cheapest = [indices[0] if indices else None for indices in met_by_bound]
    unknown = all(np.isnan(trial.margins[0]) for trial in trials)
    best = cheapest[0]
    nearest = best if best is not None else max(order, key=lambda i: np.nan_to_num(trials[i].margins[0], nan=-math.inf))
    names = [offer.link.name for offer in offered]
    if best is None:
        holds = "unknown" if unknown else "never"
    else:
        holds = "always" if len(met_by_bound[0]) == len(names) else "in parts"
    nearest_trial = trials[nearest]
    reached = nearest_trial.reached[nearest_trial.decides].predicted
    why = None
    if best is None:
        reached_text = quantity_text(nearest_trial.decides, reached or math.nan, question.training)
        why = nearest_trial.unknown or f"at best {reached_text}"
        why += "" if unknown else f", by {names[nearest]}"
    low, value, high = (None if i is None else names[i] for i in (cheapest[1], cheapest[0], cheapest[2]))
    return {
        "sought": "network",
        "of": place.describe(),
        "level": place.name,
        "unit": "",
        "target": question.describe(),
        "holds": holds,
        "value": value,
        "low": low,
        "high": high,
        "optimistic_holds": "from" if met_by_bound[1] else "never",
        "pessimistic_holds": "from" if met_by_bound[2] else "never",
        "shortest": None,
        "spans": [[names[i], names[i]] for i in met_by_bound[0]],
        "now": place.link.name,
        "now_holds": None if np.isnan(current.margins[0]) else bool(current.margins[0] >= 0),
        "decides": nearest_trial.decides.removesuffix("_s"),
        "why": why,
        "at": names[nearest],
        "by": "money" if by_money else "bandwidth",
        "money": costs[nearest],
        "network_month": offered[nearest].month,
        **nearest_trial.row,
        "_order": (best is None, (costs[best] if by_money else bandwidths[best]) if best is not None else 0.0),
    }


def _cost(offered: OfferedLink, trial: Evaluation) -> float | None:
    """Return the cost of the training by the price list, plus the cost of the network for the training's duration."""
    row = trial.row
    cost, seconds = row.get("cost"), row.get("training_s")
    if offered.month is None:
        return cost
    if seconds is None:
        return offered.month if "training_s" not in row and "cost" not in row else None
    if "cost" in row and cost is None:
        return None
    return float((cost or 0.0) + offered.month * seconds / MONTH_S)
