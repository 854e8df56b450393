"""Rows of a projection at values of what is sought, and by how much they meet a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel.network.paths import Floats
from syncline.costmodel.scaling.predict import TrainingAtScale
from syncline.costmodel.scaling.relative import relative_loss
from syncline.errors import SpecError
from syncline.experiments.projection.answers import WholeTraining, method_covered, with_training
from syncline.experiments.projection.project import project_all
from syncline.experiments.solving.shares import shares
from syncline.experiments.solving.sought import Sought, TriedSetting, neighbours
from syncline.experiments.solving.targets import SolveTargets, ToldThree, margins, quantities
from syncline.methods import MethodBase
from syncline.specs import ProjectSpec


class Tried(NamedTuple):
    """A value that was tried.

    Attributes:
        row: of the projection, with the whole training if one is asked about.
        margins: ``(3,)``: as predicted, at the optimistic bound and at the pessimistic one; at least 0 where all
            targets are met, nan where nobody knows.
        decides: the target of the smallest margin.
        told: what each target is held against.
        unknown: why nobody knows, where that is so.
    """

    row: dict[str, Any]
    margins: Floats
    decides: str
    told: dict[str, ToldThree]
    unknown: str | None


@dataclass
class Trials:
    """The values of one variable that were tried, each once.

    Args:
        sought: the variable.
        targets: to be met.
        training: what is asked of the whole training.
        baseline: of speedups.
    """

    sought: Sought
    targets: SolveTargets
    training: WholeTraining
    baseline: MethodBase | None = None
    known: dict[float, Tried] = field(default_factory=dict)

    def at(self, values: Sequence[float]) -> list[Tried]:
        """What is known of each, of which those that are new are projected together."""
        new = [one for one in dict.fromkeys(values) if one not in self.known]
        told = tried([self.sought.at(one) for one in new], self.targets, self.training, self.baseline)
        self.known |= dict(zip(new, told, strict=True))
        return [self.known[one] for one in values]


def tried(
    settings: Sequence[TriedSetting], targets: SolveTargets, training: WholeTraining, baseline: MethodBase | None = None
) -> list[Tried]:
    """Each setting as it is projected.

    Args:
        settings: one after another; neighbours of the same spec and method are priced at once.
        targets: to be met.
        training: what is asked of the whole training.
        baseline: of speedups; the method itself unless given.
    """
    out: list[Tried] = []
    for spec, method, networks in neighbours(settings):
        methods = (method,) if baseline is None else (baseline, method)
        asked = spec.model_copy(update={"networks": tuple(networks), "methods": methods})
        rows = project_all([asked], thresholds=False)[len(methods) - 1 :: len(methods)]
        own = asked.model_copy(update={"methods": (method,)})
        if not training.is_nothing:
            rows = with_training(rows, [own], training).as_plain()
        parts = shares(own, 0, networks) if targets.of_shares else [{} for _ in networks]
        for row, part in zip(rows, parts, strict=True):
            out.append(_held_against(dict(row), part, own, method, targets, training))
    return out


def _held_against(
    row: dict[str, Any],
    part: dict[str, ToldThree],
    spec: ProjectSpec,
    method: MethodBase,
    targets: SolveTargets,
    training: WholeTraining,
) -> Tried:
    told: dict[str, ToldThree] = quantities(row)
    told |= part if row["step_time_s"] is not None else dict.fromkeys(part, (None, None, None))
    machine = spec.memory_machine
    room = machine.memory_bytes if machine else None
    told["memory"] = (None,) * 3 if room is None else (row["memory_bytes"] / room,) * 3
    unknown = row["not_timed"]
    if targets.loss_penalty is not None:
        told["loss_penalty"], why = _loss_over_ddp(spec, method, row, training)
        unknown = unknown or why
    over, decides = margins(targets, told)
    if np.isnan(over[0]):
        unknown = unknown or _why_unknown(row, decides)
    return Tried(row, over, decides, told, unknown if np.isnan(over[0]) else None)


def _loss_over_ddp(
    spec: ProjectSpec, method: MethodBase, row: dict[str, Any], training: WholeTraining
) -> tuple[ToldThree, str | None]:
    """The predicted loss over that of data parallelism; or why nobody can tell."""
    of = TrainingAtScale(
        method_covered(method),
        float(spec.model.parameters),
        training.tokens,
        replicas=float(row["replicas"]),
        period=float(getattr(method, "period", 1)),
    )
    try:
        ratio = relative_loss(of, extrapolate=training.extrapolate)
    except SpecError as error:
        return (None, None, None), str(error)
    return (ratio.ratio, ratio.low, ratio.high), None


def _why_unknown(row: dict[str, Any], target: str) -> str:
    if row.get("loss_unknown") and row.get("training_s") is None:
        return str(row["loss_unknown"])
    reasons = {
        "utilisation": "no hardware is known, and so no peak",
        "memory": "no hardware's memory is known",
        "budget": "the list of prices makes no sum of it: a price is lacking, or of something that nobody counts",
    }
    return reasons.get(target, "nobody knows the time of a step")
