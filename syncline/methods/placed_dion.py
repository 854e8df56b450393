"""Dion whose averages are placed beforehand: evenly, at random or at the beginning, so many in so many steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange
from syncline.fields import Seed, Steps, refusal
from syncline.methods.constructor import constructor
from syncline.methods.dion import DionBase
from syncline.methods.parts.method_spec import Presets, Tensors
from syncline.methods.registry import register
from syncline.seeds import generator

if TYPE_CHECKING:
    from syncline.comm import Communicator

Placement = Literal["even", "random", "early"]

MOST_STEPS = 10**7
"""Among which averages are placed: drawing them at random lists all steps."""


def placed_steps(num_averages: int, steps: int, placement: Placement, seed: int = 0) -> tuple[int, ...]:
    """Return the steps, from 0, after which ``num_averages`` of ``steps`` steps average, in order.

    ``even``: every ``t`` with ``floor((t + 1) n / T) > floor(t n / T)``, the last step among them; ``random``: a draw
    without replacement, the same on all workers; ``early``: ``t < n``.

    >>> placed_steps(3, 12, "even"), placed_steps(3, 12, "early")
    ((3, 7, 11), (0, 1, 2))
    """
    if placement == "even":
        return tuple(-(-number * steps // num_averages) - 1 for number in range(1, num_averages + 1))
    if placement == "early":
        return tuple(range(num_averages))
    drawn = generator(seed, "placement of averages").choice(steps, num_averages, replace=False)
    return tuple(sorted(int(t) for t in drawn))


@register
class PlacedDionSpec(DionBase):
    """Dion with ``num_averages`` averages in ``steps`` steps, placed beforehand.

    It is the baseline for triggers: CurvaDion without its flag, with as many averages, at steps that do not depend on
    the training. If the training is longer than T steps, the placement repeats.

    Args:
        num_averages: n, number of steps that average.
        steps: T, number of steps among which the averages are placed, usually the steps of the training.
        placement: ``even``, ``random`` or ``early``, see ``placed_steps``.
        placement_seed: seed of the random placement.

    Source: CurvaDion, section 4.3 and appendix C (Scheduled Sync Dion: ``even``).
    """

    source: ClassVar[str] = "CurvaDion, section 4.3"

    presets: ClassVar[Presets] = {
        "dion-placed": {"label": "dion-placed", "lr": 0.02, "other_lr": 0.003},
    }

    kind: Literal["placed-dion"] = "placed-dion"
    num_averages: int = Field(default=16, ge=1, le=1_000_000)
    steps: Annotated[Steps, Field(le=MOST_STEPS)] = 400
    placement: Placement = "even"
    placement_seed: Seed = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.num_averages > self.steps:
            raise refusal("num_averages", self.num_averages, f"at most steps ({self.steps})")
        return self

    @property
    def placed(self) -> tuple[int, ...]:
        """Return the steps, from 0, after which the method averages."""
        return placed_steps(self.num_averages, self.steps, self.placement, self.placement_seed)

    @property
    @override
    def name(self) -> str:
        return self.label or f"dion-{self.num_averages}-{self.placement}{self._suffix}"

    @property
    @override
    def sends_in_backward(self) -> bool:
        """Return whether gradients are sent in the backward pass; the steps that exchange are known beforehand."""
        return self.sends_gradients

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return Dion's exchanges after each placed step, which repeat every ``steps`` steps."""
        return self._averaged_at(model, workers, self.steps, self.placed)

    @override
    def exchanges_at(self, model: Tensors, workers: int, steps: int, averaged: Sequence[int]) -> list[Exchange]:
        """Return Dion's exchanges after each step of ``averaged``."""
        return self._averaged_at(model, workers, steps, averaged)

    @override
    def traffic_formula(self, workers: int) -> str:
        if self.exchange == "gradient" and not self.compressor:
            return super().traffic_formula(workers)
        if self.steps == 1:
            return super().traffic_formula(workers)
        in_each = self.model_copy(update={"num_averages": 1, "steps": 1})
        return f"{self.num_averages} ({in_each.traffic_formula(workers)}) / {self.steps}"

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        return self._with_trigger(params, optim.AtSteps(frozenset(self.placed), self.steps), comm, worker_axis)


PlacedDion = constructor(PlacedDionSpec)
