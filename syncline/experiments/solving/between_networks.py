"""The cheapest of several links in the place of one: what each costs, and which of them meet a target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.experiments.solving.places import place_of
from syncline.experiments.solving.question import Inverse, OfferedLink
from syncline.experiments.solving.reasons import told_text
from syncline.experiments.solving.sought import TriedSetting
from syncline.experiments.solving.spans import BOUNDS
from syncline.experiments.solving.tried import Tried, tried
from syncline.methods import MethodBase
from syncline.specs import ProjectSpec

MONTH_S = 365.25 / 12 * 86400.0


def between_networks(question: Inverse) -> list[dict[str, Any]]:
    """A row per method, that of the cheapest network first: by money where it is known of all, else by bandwidth."""
    rows: list[dict[str, Any]] = []
    for spec in question.specs:
        for network in spec.networks:
            answers = [_answer(question, spec, network, method) for method in question.methods(spec)]
            answers.sort(key=lambda one: one["_order"])
            for number, one in enumerate(answers, start=1):
                one["rank"] = number if one["value"] is not None else None
                one["tie"] = bool(number > 1 and one["rank"] and one["_order"] == answers[0]["_order"])
            rows += [{name: value for name, value in one.items() if name != "_order"} for one in answers]
    return rows


def _answer(question: Inverse, spec: ProjectSpec, network: Network, method: MethodBase) -> dict[str, Any]:
    place = place_of(network, question.level)
    settings = [TriedSetting(spec, place.with_link(one.link), method) for one in question.among]
    present = TriedSetting(spec, network, method)
    *every, now = tried([*settings, present], question.targets, question.training, question.baseline)
    offered = list(question.among)
    money = [_money(one, each) for one, each in zip(offered, every, strict=True)]
    by_money = all(one is not None for one in money)
    wide = [float(one.link.bandwidth_bytes_per_s) for one in offered]
    order = sorted(range(len(offered)), key=lambda i: (money[i] if by_money else wide[i], wide[i], i))
    good = [[i for i in order if every[i].margins[bound] >= 0] for bound in range(len(BOUNDS))]
    cheapest = [of[0] if of else None for of in good]
    unknown = all(np.isnan(one.margins[0]) for one in every)
    best = cheapest[0]
    nearest = best if best is not None else max(order, key=lambda i: np.nan_to_num(every[i].margins[0], nan=-math.inf))
    names = [one.link.name for one in offered]
    holds = (
        "unknown" if unknown else "never" if best is None else "always" if len(good[0]) == len(names) else "in parts"
    )
    here = every[nearest]
    reached = here.told[here.decides][0]
    why = None
    if best is None:
        why = here.unknown or f"at best {told_text(here.decides, reached or math.nan, question.training)}"
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
        "optimistic_holds": "from" if good[1] else "never",
        "pessimistic_holds": "from" if good[2] else "never",
        "shortest": None,
        "spans": [[names[i], names[i]] for i in good[0]],
        "now": place.link.name,
        "now_holds": None if np.isnan(now.margins[0]) else bool(now.margins[0] >= 0),
        "decides": here.decides.removesuffix("_s"),
        "why": why,
        "at": names[nearest],
        "by": "money" if by_money else "bandwidth",
        "money": money[nearest],
        "network_month": offered[nearest].month,
        **here.row,
        "_order": (best is None, (money[best] if by_money else wide[best]) if best is not None else 0.0),
    }


def _money(offered: OfferedLink, there: Tried) -> float | None:
    """What is paid: the training, as far as a price list says, and the network for as long as it takes."""
    row = there.row
    cost, seconds = row.get("cost"), row.get("training_s")
    if offered.month is None:
        return cost
    if seconds is None:
        return offered.month if "training_s" not in row and "cost" not in row else None
    if "cost" in row and cost is None:
        return None
    return float((cost or 0.0) + offered.month * seconds / MONTH_S)
