"""Record fields, starting points, update rules and quadratics that the parts of an alignment study share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from replication.studies.alignment.spec import AlignmentSpec
from syncline.specs import Record

if TYPE_CHECKING:
    from torch import Tensor

    from replication.studies.alignment.walks import MakeRule

RECORD: Record = dict.fromkeys((
    *("part", "method", "lr", "problem", "angle_deg", "axes_deg", "misalignment", "seed"),
    *("steps", "steps_delayed", "undone", "undone_delayed", "slowdown", "radius", "arc"),
))  # fmt: skip
"""Fields of a record; a field is None if it does not apply or if the point did not reach the target."""

ROW: Record = dict.fromkeys((
    *("part", "method", "lr", "angle_deg", "axes_deg", "misalignment", "draws", "arrived", "steps", "steps_delayed"),
    *("slowdown", "slowdown_min", "slowdown_max", "undone", "undone_delayed", "restored"),
    *("steps_rank", "slowdown_rank", "slowdown_rank_draws", "claim", "share", "trap_radius", "trap_closed_form"),
))  # fmt: skip


class Points(NamedTuple):
    """Starting points of A angles and S seeds, angle by angle, each once without delay and once with it.

    Attributes:
        start: positions, ``(2 A S, 2)``; the A S points without delay come first.
        hessians: Hessians at the starting points, ``(2 A S, 2, 2)``.
        delays: gradient delays in updates, ``(2 A S,)``.
    """

    start: Tensor
    hessians: Tensor
    delays: Tensor


def points_of(spec: AlignmentSpec) -> Points:
    """Return the starting points of the study, for all angles and seeds, without and with delay."""
    import torch

    from syncline.problems.landscapes import spiral_hessian

    if spec.on_spiral:
        start = torch.stack([floor_point(angle, spec.problem.radius) for angle in spec.angles_deg])
        start = start.repeat_interleave(len(spec.seeds), 0)
        hessians = spiral_hessian(start)
    else:
        turned = [dataclasses.replace(spec.problem, angle_deg=angle) for angle in spec.angles_deg]
        start = torch.stack([problem.start_of(seed) for problem in turned for seed in spec.seeds])
        hessians = torch.stack([problem.hessian() for problem in turned for _ in spec.seeds])
    delays = torch.tensor([0, spec.delay]).repeat_interleave(len(start))
    return Points(start.repeat(2, 1), hessians.repeat(2, 1, 1), delays)


def floor_point(angle_deg: float, radius: float) -> Tensor:
    """Return the point ``(2,)`` on the spiral's floor at a polar angle, on the winding nearest to ``radius``."""
    from syncline.problems import Spiral
    from syncline.problems.landscapes import FLOOR_RAD, TURNS

    turn = 2 * math.pi / TURNS  # between two windings of the valley
    first = (math.radians(angle_deg) - FLOOR_RAD) / TURNS
    windings = max(round((radius - first) / turn), math.floor(-first / turn) + 1)
    return Spiral(radius=first + windings * turn).start_point()


def rule_of(method: str, beta2: float, hessian: Callable[[Tensor], Tensor]) -> MakeRule:
    """Return the function that makes a method's update rule, with beta1 = 0.

    ``hessian`` returns the Hessians ``(R, 2, 2)`` at positions ``(R, 2)``; only ``rotated`` uses it.
    """
    from syncline.optim import ada_sgd, adam, full_rotation

    def rule(gradient_of: Callable[[int], Tensor]) -> Any:
        if method == "adam":
            return adam(beta1=0.0, beta2=beta2)
        if method == "ada-sgd":
            return ada_sgd(beta1=0.0, beta2=beta2)
        if method == "rotated-ema":
            return full_rotation(beta1=0.0, beta2=beta2)
        return full_rotation(lambda step: hessian(gradient_of(step)), beta1=0.0, beta2=beta2)

    return rule


def quadratics(hessians: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return the oracle of ``f = 1/2 x^T H x``, where each of R points has its own Hessian H, ``(R, d, d)``."""

    def oracle(x: Tensor) -> tuple[Tensor, Tensor]:
        gradient = (x.unsqueeze(-2) @ hessians).squeeze(-2)
        return 0.5 * (x * gradient).sum(-1), gradient

    return oracle


def finite(value: float) -> float | None:
    """Return the value if it is finite, otherwise None."""
    return value if math.isfinite(value) else None


def or_inf(value: float | None) -> float:
    """Return the value, or infinity for None, which marks a point that did not arrive."""
    return math.inf if value is None else value


def share_of(holds: list[bool]) -> float | None:
    """Return the share of true entries, or None for an empty list."""
    return sum(holds) / len(holds) if holds else None
