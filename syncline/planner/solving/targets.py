"""The targets of a training, and the margin by which a row of a projection meets them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError
from syncline.planner.projection.training_totals import WholeTraining
from syncline.units import format_seconds


class BoundedValue(NamedTuple):
    """A quantity as predicted, and at the optimistic and pessimistic bound of the step time; None if unknown."""

    predicted: float | None
    optimistic: float | None
    pessimistic: float | None


UNKNOWN_VALUE = BoundedValue(None, None, None)


AT_LEAST = ("utilisation", "compute_utilisation", "speedup")
"""Targets whose quantity must be at least the limit; the quantity of any other target must be at most the limit."""

DIFFERENCES = ("compute_utilisation", "exposed")
"""Targets whose margin is the difference of quantity and limit; other margins are differences of logarithms."""


@dataclass(frozen=True)
class SolveTargets:
    """The targets that a training has to meet together, such as a deadline and a budget.

    Args:
        deadline_s: seconds of the whole training.
        budget: cost of the whole training, in the currency of the prices.
        step_time_s: seconds of a mean step.
        utilisation: share of the hardware's peak, above 0.
        compute_utilisation: share of a step in which a worker computes, as papers on DiLoCo define it.
        exposed: largest share of a step in which a worker waits for the network with nothing to compute.
        speedup: speedup over the baseline.
        loss_penalty: share by which the predicted loss may exceed data parallelism's loss on the same tokens.
        memory: largest share of a worker's memory that is used.
    """

    deadline_s: float | None = None
    budget: float | None = None
    step_time_s: float | None = None
    utilisation: float | None = None
    compute_utilisation: float | None = None
    exposed: float | None = None
    speedup: float | None = None
    loss_penalty: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        """Refuse fields of the wrong type, out of range, or in contradiction."""
        if not self.specified:
            raise SpecError("target", None, "a target, such as a deadline, a budget, a utilisation or a speedup")
        for name, value in self.specified.items():
            is_allowed, expected = 0 < value < math.inf, "a positive number"
            if name in ("utilisation", "compute_utilisation"):
                is_allowed, expected = 0 < value <= 1, "a part of 1 above 0, as 0.5 or '50%'"
            elif name == "exposed":
                is_allowed, expected = 0 <= value < 1, "a part of 1 below it, as 0.05 or '5%'"
            elif name == "loss_penalty":
                is_allowed, expected = 0 <= value < math.inf, "a part that is not negative, as 0.01 or '1%'"
            if not is_allowed:
                raise SpecError(name.removesuffix("_s"), value, expected)

    @property
    def specified(self) -> dict[str, float]:
        """Return the targets that the user has set, by name."""
        values = {target_field.name: getattr(self, target_field.name) for target_field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def need_shares(self) -> bool:
        """Return whether some targets need the shares of a step, which rows of a projection do not have."""
        return self.exposed is not None or self.compute_utilisation is not None

    def check(self, training: WholeTraining) -> None:
        """Raise an error for targets that the training's options leave undefined."""
        has_length = training.tokens is not None or training.target_loss is not None
        length_text = "the training's tokens as well, or a target loss, from which its length follows"
        if self.deadline_s is not None and not has_length:
            raise SpecError("deadline", format_seconds(self.deadline_s), length_text)
        if self.budget is not None and training.prices is None:
            raise SpecError("budget", self.budget, "prices as well: the name of a list, or a file")
        if self.budget is not None and not has_length:
            raise SpecError("budget", self.budget, length_text)

    def describe(self, training: WholeTraining, baseline: str = "the baseline") -> str:
        """Return the targets for people: ``140 B tokens within 30 d``."""
        currency = training.prices.currency if training.prices else ""
        length = ""
        if training.tokens is not None:
            length = f"{training.tokens / 1e9:,.4g} B tokens"
        elif training.target_loss is not None:
            length = f"a loss of {training.target_loss:g}"
        targets = [
            TARGET_TEXTS[name].format(
                value=value, time=format_seconds(value), percent=100 * value, currency=currency, baseline=baseline
            )
            for name, value in self.specified.items()
        ]
        if training.tokens is not None and targets[0].startswith(("within", "for")):
            return f"{length} {', '.join(targets)}"  # "140 B tokens within 30 d" has no comma
        return ", ".join([length, *targets] if length else targets)


TARGET_TEXTS = {
    "deadline_s": "within {time}",
    "budget": "for at most {value:,.10g} {currency}",
    "step_time_s": "a step of at most {time}",
    "utilisation": "at least {percent:.4g}% of the peak",
    "compute_utilisation": "at least {percent:.4g}% of a step computing",
    "exposed": "at most {percent:.4g}% of a step waiting for the network",
    "speedup": "at least {value:.4g} times as fast as {baseline}",
    "loss_penalty": "a loss at most {percent:.4g}% above data parallelism's",
    "memory": "within a worker's memory",
}


def quantities(row: Mapping[str, Any]) -> dict[str, BoundedValue]:
    """Return the quantity of each target whose quantity is in a row of a projection, or follows from the row alone.

    Shares of a step, memory and losses need more than a row.
    """
    step_s = BoundedValue(row["step_time_s"], row["step_time_low_s"], row["step_time_high_s"])
    # Without a whole training, or without prices, a row lacks these fields.
    training_s = BoundedValue(row.get("training_s"), row.get("training_low_s"), row.get("training_high_s"))
    cost = BoundedValue(row.get("cost"), row.get("cost_low"), row.get("cost_high"))
    utilisations: list[float | None] = []
    for bound_s in step_s:
        is_known = row["utilisation"] is not None and bound_s is not None and step_s.predicted is not None
        # The work of a step is fixed, so the utilisation falls as the step gets longer.
        utilisations.append(row["utilisation"] * step_s.predicted / bound_s if is_known else None)
    return {
        "deadline_s": training_s,
        "budget": cost,
        "step_time_s": step_s,
        "utilisation": BoundedValue(*utilisations),
        # The optimistic bound of a speedup is the high one; of a time it is the low one.
        "speedup": BoundedValue(row["speedup"], row["speedup_high"], row["speedup_low"]),
    }


def margins(targets: SolveTargets, target_values: Mapping[str, BoundedValue]) -> tuple[Floats, str]:
    """Return the smallest margin by which the targets are met, ``(3,)``, and the name of the target that has it.

    The three margins are as predicted, at the optimistic bound and at the pessimistic bound: at least 0 if all targets
    are met, nan if unknown.
    """
    margins_by_target: dict[str, NDArray[np.float64]] = {}
    for name, limit in targets.specified.items():
        value = np.array([np.nan if number is None else number for number in target_values[name]], dtype=np.float64)
        if name in DIFFERENCES:
            excess = value - limit
        else:
            # The quantity of a loss penalty is a ratio of losses.
            with np.errstate(divide="ignore"):
                excess = np.log(value) - np.log(1 + limit if name == "loss_penalty" else limit)
        margins_by_target[name] = excess if name in AT_LEAST else -excess
    all_margins = np.stack(list(margins_by_target.values()))
    # The first unknown margin, else the smallest: `argmin` and `min` take nan for the least.
    index = int(np.argmin(all_margins[:, 0]))
    return all_margins.min(axis=0), list(margins_by_target)[index]
