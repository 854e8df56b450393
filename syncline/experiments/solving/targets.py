"""What a training is to meet, and by how much a row of a projection meets it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError
from syncline.experiments.projection.answers import WholeTraining
from syncline.units import format_seconds

ToldThree = tuple[float | None, float | None, float | None]
"""A quantity as predicted, and with the clock's optimistic and pessimistic bound; None where nobody knows."""


class TargetKind(NamedTuple):
    """How a target is held against a quantity.

    Attributes:
        at_least: whether the quantity has to be the limit or more; else the limit or less.
        share: whether it is a share, whose margin is a difference; else that of logarithms.
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
    """What is to be met, all of it at once.

    Args:
        deadline_s: of the whole training.
        budget: for it, in the currency of the prices.
        step_time_s: of a mean step.
        utilisation: of the hardware's peak, above 0.
        compute_utilisation: part of a step in which something is computed, as papers on DiLoCo have it.
        exposed: most of a step that a worker waits for the network with nothing to compute, as a part of it.
        speedup: over the baseline.
        loss_penalty: by which part the predicted loss may be above that of data parallelism on the same tokens.
        memory: most of a worker's memory that is used, as a part of it.

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
        if not self.given:
            raise SpecError("target", None, "something to meet, as a deadline, a budget, a utilisation or a speedup")
        for name, value in self.given.items():
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
    def given(self) -> dict[str, float]:
        """Those that are asked for, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None}

    @property
    def of_shares(self) -> bool:
        """Whether some are told by no row, but by the parts of a step."""
        return self.exposed is not None or self.compute_utilisation is not None

    def check(self, training: WholeTraining) -> None:
        """Refuse targets of which the training cannot tell.

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
        """For people: ``140 B tokens within 30 d``."""
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
        told = [*parts, *(texts[name](value) for name, value in self.given.items() if name in texts)]
        return ", ".join(told).replace(" tokens, within", " tokens within").replace(" tokens, for", " tokens for")


def quantities(row: Mapping[str, Any]) -> dict[str, ToldThree]:
    """Of a row of a projection, what each target is held against; those of shares and losses come from elsewhere."""
    step_s = _three(row, "step_time{}_s")
    used = row["utilisation"]
    return {
        "deadline_s": _three(row, "training{}_s") if "training_s" in row else (None,) * 3,
        "budget": _three(row, "cost{}") if "cost" in row else (None,) * 3,
        "step_time_s": step_s,
        "utilisation": tuple(
            None if used is None or one is None or step_s[0] is None else used * step_s[0] / one for one in step_s
        ),
        "speedup": (row["speedup"], row["speedup_high"], row["speedup_low"]),
    }


def _three(row: Mapping[str, Any], name: str) -> ToldThree:
    return row[name.format("")], row[name.format("_low")], row[name.format("_high")]


def margins(targets: SolveTargets, told: Mapping[str, ToldThree]) -> tuple[Floats, str]:
    """By how much all targets are met, ``(3,)``: at least 0 where they are; nan where nobody knows.

    As predicted, with the optimistic bound and with the pessimistic one. Of several targets that of the smallest
    margin, which is named.
    """
    each: dict[str, NDArray[np.float64]] = {}
    for name, limit in targets.given.items():
        kind = KINDS_OF_TARGET[name]
        value = np.array([np.nan if one is None else one for one in told[name]], dtype=np.float64)
        if kind.share:
            over = value - limit
        else:
            with np.errstate(divide="ignore"):
                over = np.log(value) - np.log(1 + limit if name == "loss_penalty" else limit)
        each[name] = over if kind.at_least else -over
    stacked = np.stack(list(each.values()))
    unknown = np.isnan(stacked[:, 0])
    decides = list(each)[int(np.argmax(unknown)) if unknown.any() else int(np.argmin(stacked[:, 0]))]
    return stacked.min(axis=0), decides  # nan wins over every number
