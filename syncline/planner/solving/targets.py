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

ToldThree = tuple[float | None, float | None, float | None]
"""A quantity as predicted, and with the clock's optimistic and pessimistic bound; None if unknown."""


class TargetKind(NamedTuple):
    """The comparison of a target with its quantity.

    Attributes:
        at_least: whether the quantity must be at least the limit; else at most.
        share: whether it is a share, whose margin is a difference; else the margin is a difference of logarithms.
    """

    at_least: bool
    share: bool = False


KINDS_OF_TARGET: Mapping[str, TargetKind] = {
    "deadline_s": TargetKind(False),
    "budget": TargetKind(False),
    "step_time_s": TargetKind(False),
    "utilisation": TargetKind(True),
    "compute_utilisation": TargetKind(True, share=True),
    "exposed": TargetKind(False, share=True),
    "speedup": TargetKind(True),
    "loss_penalty": TargetKind(False),
    "memory": TargetKind(False),
}


@dataclass(frozen=True)
class SolveTargets:
    """The targets to meet, all at once.

    Args:
        deadline_s: seconds of the whole training.
        budget: cost of the whole training, in the currency of the prices.
        step_time_s: seconds of a mean step.
        utilisation: share of the hardware's peak, above 0.
        compute_utilisation: share of a step in which a worker computes, as papers on DiLoCo define it.
        exposed: largest share of a step in which a worker waits for the network with nothing to compute.
        speedup: speedup over the baseline.
        loss_penalty: share by which the predicted loss may exceed that of data parallelism on the same tokens.
        memory: largest share of a worker's memory that is used.

    Raises:
        SpecError: no target, or a number out of range.
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
        if not self.specified:
            raise SpecError("target", None, "something to meet, as a deadline, a budget, a utilisation or a speedup")
        for name, value in self.specified.items():
            path = name.removesuffix("_s") if name == "deadline_s" else "step_time" if name == "step_time_s" else name
            if name in ("utilisation", "compute_utilisation") and not 0 < value <= 1:
                raise SpecError(path, value, "a part of 1 above 0, as 0.5 or '50%'")
            if name == "exposed" and not 0 <= value < 1:
                raise SpecError(path, value, "a part of 1 below it, as 0.05 or '5%'")
            if name == "loss_penalty" and not 0 <= value < math.inf:
                raise SpecError(path, value, "a part that is not negative, as 0.01 or '1%'")
            if not 0 <= value < math.inf or (value == 0 and name not in ("exposed", "loss_penalty")):
                raise SpecError(path, value, "a positive number")

    @property
    def specified(self) -> dict[str, float]:
        """Return the targets that are set, by name."""
        return {
            target_field.name: getattr(self, target_field.name)
            for target_field in fields(self)
            if getattr(self, target_field.name) is not None
        }

    @property
    def of_shares(self) -> bool:
        """Return whether some targets need the shares of a step, which no row has."""
        return self.exposed is not None or self.compute_utilisation is not None

    def check(self, training: WholeTraining) -> None:
        """Refuse targets that the training's options leave undefined.

        Raises:
            SpecError: a deadline or a budget without the length of the training, or a budget without prices.
        """
        long = training.tokens is not None or training.target_loss is not None
        if self.deadline_s is not None and not long:
            expected = "the training's tokens beside it, or a target loss: how long it is"
            raise SpecError("deadline", format_seconds(self.deadline_s), expected)
        if self.budget is not None and training.prices is None:
            raise SpecError("budget", self.budget, "prices beside it: a list by name, or a file")
        if self.budget is not None and not long:
            raise SpecError("budget", self.budget, "the training's tokens beside it, or a target loss: how long it is")

    def describe(self, training: WholeTraining, baseline: str = "the baseline") -> str:
        """Return the targets for people: ``140 B tokens within 30 d``."""
        parts = []
        if training.tokens is not None:
            parts.append(f"{training.tokens / 1e9:,.4g} B tokens")
        elif training.target_loss is not None:
            parts.append(f"a loss of {training.target_loss:g}")
        if self.deadline_s is not None:
            parts.append(f"within {format_seconds(self.deadline_s)}")
        if self.budget is not None and training.prices is not None:
            parts.append(f"for at most {self.budget:,.10g} {training.prices.currency}")
        texts = {
            "step_time_s": lambda v: f"a step of at most {format_seconds(v)}",
            "utilisation": lambda v: f"at least {100 * v:.4g}% of the peak",
            "compute_utilisation": lambda v: f"at least {100 * v:.4g}% of a step computing",
            "exposed": lambda v: f"at most {100 * v:.4g}% of a step waiting for the network",
            "speedup": lambda v: f"at least {v:.4g} times as fast as {baseline}",
            "loss_penalty": lambda v: f"a loss at most {100 * v:.4g}% above data parallelism's",
            "memory": lambda _: "within a worker's memory",
        }
        phrases = [*parts, *(texts[name](value) for name, value in self.specified.items() if name in texts)]
        return ", ".join(phrases).replace(" tokens, within", " tokens within").replace(" tokens, for", " tokens for")


def quantities(row: Mapping[str, Any]) -> dict[str, ToldThree]:
    """Return the quantity of each target from a row of a projection; shares and losses come from elsewhere."""
    step_s = _three(row, "step_time{}_s")
    used = row["utilisation"]
    return {
        "deadline_s": _three(row, "training{}_s") if "training_s" in row else (None,) * 3,
        "budget": _three(row, "cost{}") if "cost" in row else (None,) * 3,
        "step_time_s": step_s,
        "utilisation": tuple(
            None if used is None or seconds is None or step_s[0] is None else used * step_s[0] / seconds
            for seconds in step_s
        ),
        "speedup": (row["speedup"], row["speedup_high"], row["speedup_low"]),
    }


def _three(row: Mapping[str, Any], name: str) -> ToldThree:
    return row[name.format("")], row[name.format("_low")], row[name.format("_high")]


def margins(targets: SolveTargets, target_values: Mapping[str, ToldThree]) -> tuple[Floats, str]:
    """Return the margin by which all targets are met, ``(3,)``, at least 0 if they are; nan if unknown; and the target.

    The three are as predicted, with the optimistic bound and with the pessimistic one. The margin is the smallest of
    all targets', and the returned name is the target that has it.
    """
    by_target: dict[str, NDArray[np.float64]] = {}
    for name, limit in targets.specified.items():
        kind = KINDS_OF_TARGET[name]
        value = np.array([np.nan if number is None else number for number in target_values[name]], dtype=np.float64)
        if kind.share:
            excess = value - limit
        else:
            with np.errstate(divide="ignore"):
                excess = np.log(value) - np.log(1 + limit if name == "loss_penalty" else limit)
        by_target[name] = excess if kind.at_least else -excess
    stacked = np.stack(list(by_target.values()))
    unknown = np.isnan(stacked[:, 0])
    decides = list(by_target)[int(np.argmax(unknown)) if unknown.any() else int(np.argmin(stacked[:, 0]))]
    return stacked.min(axis=0), decides  # nan wins over every number
