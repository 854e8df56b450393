"""1-bit Adam: Adam for a while, then momentum in a frozen scaling, averaged by signs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from typing_extensions import override

from syncline.optim.base import Row, SyncPolicy
from syncline.optim.buffers import BufferSync
from syncline.optim.one_bit import OneBitMethod, Scale
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT, momentum_names

(MOMENTUM,) = momentum_names(1)


@dataclass(frozen=True)
class WarmUp(SyncPolicy):
    """The gradient is averaged in the first ``steps`` steps."""

    steps: int

    def due(self, t: int) -> tuple[str, ...]:
        """Return the gradient, or nothing."""
        return ("gradient",) if t < self.steps else ()

    def check(self, available: tuple[str, ...]) -> None:
        """Accept any rule, because gradients and momenta always exist."""


class OneBitAdamMethod(OneBitMethod):
    """Adam on mean gradients; from ``freeze_step`` on the second moment stays, and momenta are averaged by signs.

    The formulas, and why they are so: `syncline.methods.one_bit_adam.OneBitAdamSpec`.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        freeze_step: number of first steps, which are Adam's, at least 1; then the second moment stays constant.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        bias_correction: whether both moments are corrected for their start at zero; the public code has no correction.
        scale: magnitude of the signs, ``rms`` or ``mean``, see ``OneBitMean``.
        **options: options of ``Method``. Gradients are clipped after they are averaged, later each worker's own.

    Raises:
        SpecError: for a value out of range.

    Source: Tang et al. (2021), Algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        freeze_step: int,
        beta1: float,
        beta2: float,
        eps: float,
        bias_correction: bool,
        scale: Scale,
        **options: Any,
    ) -> None:
        self.freeze_step, self.bias_correction = freeze_step, bias_correction
        super().__init__(params, lr, adam(beta1, beta2, eps, bias_correction), WarmUp(freeze_step), scale, **options)

    @override
    def buffers_due(self, t: int) -> BufferSync:
        return "broadcast"  # momenta are averaged in every step, so that parameters stay equal

    @override
    def directions(self, rows: list[Row], t: int) -> list[Tensor | None]:
        if t < self.freeze_step or not rows:
            return super().directions(rows, t)
        for row in rows:
            row.state[MOMENTUM].lerp_(row.g, 1 - row.group["betas"][0])
        means = self.one_bit.mean([row.state[MOMENTUM] for row in rows], [row.state for row in rows], self.comm)
        for row, mean in zip(rows, means, strict=True):
            row.state[MOMENTUM].copy_(mean.masked_fill(row.state[SECOND_MOMENT] == 0, 0))
        share, updates = (t + 1, self.freeze_step) if self.bias_correction else (0, 0)
        return [row.state[MOMENTUM] / momentum_share(row, 0, share) / denominator(row, updates) for row in rows]


def momentum_share(row: Row, j: int, steps: int) -> float:
    """Return ``1 - beta_j^steps``, by which a momentum's start at zero is corrected; 1 for 0 steps, no correction."""
    return float(1 - row.group["betas"][j] ** steps) if steps else 1.0


def denominator(row: Row, updates: int) -> Tensor:
    """Return ``sqrt(v / (1 - beta2^updates)) + eps`` after so many updates of v; uncorrected for 0."""
    root = row.state[SECOND_MOMENT].sqrt()
    if updates:
        root.div_((1 - row.group["beta2"] ** updates) ** 0.5)
    return root.add_(row.group["eps"])
