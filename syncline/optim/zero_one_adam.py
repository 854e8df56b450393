"""0/1 Adam: signs of accumulated momenta, averaged seldom, in a scaling that is refreshed ever more seldom."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.costmodel.traffic.exchanges import refresh_intervals
from syncline.optim.base import Row
from syncline.optim.one_bit_adam import (
    MOMENTUM,
    SERVER_ERROR,
    WORKER_ERROR,
    OneBitMethod,
    Scale,
    denominator,
    momentum_share,
)
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT

ACCUMULATED, ANCHOR = "accumulated", "anchor"
RATE_SUMS = "rate_sums"  # of a group: s of each of its parameters, by number, that moved since the last average

Variant = Literal["paper", "merged", "code"]


@dataclass(frozen=True)
class ZeroOneSchedule:
    """The schedule of second-moment refreshes and of averages over the workers.

    Refreshes, until ``freeze_step``: the j-th is followed by the next after ``2^floor(j / kappa)`` steps, j from 0 at
    step 0. Averages: in every step until ``freeze_step``, then after step t when ``(t + 1) % interval == 0``, with an
    interval that doubles every ``double_every`` steps, up to ``max_interval``. So the scaling never changes between two
    averages.

    ``variant``: ``paper``: signs are averaged in every step until ``freeze_step``. ``merged``: a step that averages
    gradients for the second moment uses them for the momentum too, and sends no signs. ``code``: DeepSpeed's. Until
    ``freeze_step``, its ``var_freeze_step + 1``, nobody steps alone: momenta see gradients that all have, their mean
    where the second moment is refreshed (see ``refresh_intervals``) and their ``OneBitMean`` elsewhere. Step 0 moves
    nothing. At the freeze all errors are forgotten; from then on what is averaged, and owed, is the way that each has
    come, weight decay too, times ``sqrt(v) + eps``. It has no bias correction.
    """

    freeze_step: int
    kappa: int
    double_every: int
    max_interval: int
    variant: Variant

    def _interval_of_refreshes(self, t: int) -> tuple[int, int]:
        """Return i and the first step ``kappa (2^i - 1)`` of the kappa refreshes that are 2^i steps apart."""
        i = (t // self.kappa + 1).bit_length() - 1
        return i, self.kappa * (2**i - 1)

    def refreshes(self, t: int) -> bool:
        """Return whether the second moment is updated in step ``t``."""
        i, begin = self._interval_of_refreshes(t)
        return t < self.freeze_step and (t - begin) % 2**i == 0

    def refreshed(self, t: int) -> int:
        """Return the number of updates of the second moment until the end of step ``t``."""
        last = min(t, self.freeze_step - 1)
        i, begin = self._interval_of_refreshes(last)
        return self.kappa * i + (last - begin) // 2**i + 1

    def interval(self, t: int) -> int:
        """Return the number of steps between averages at step ``t``."""
        doublings = max(0, t - self.freeze_step) // self.double_every
        return min(self.max_interval, 2 ** min(doublings, self.max_interval.bit_length()))

    def due(self, t: int) -> tuple[str, ...]:
        """Return ``gradient`` where the momentum sees mean gradients; ``params`` where signs are averaged."""
        if self.variant == "merged" and self.refreshes(t):
            return ("gradient",)
        return ("params",) if (t + 1) % self.interval(t) == 0 else ()

    def check(self, available: tuple[str, ...]) -> None:
        """Accept any rule, because the averaged states always exist."""


class CodeSchedule(ZeroOneSchedule):
    """The public code's: each step before the freeze exchanges gradients, whole where v is refreshed, else as signs."""

    def _interval_of_refreshes(self, t: int) -> tuple[int, int]:
        """Return the interval and its first step."""
        return next((interval, begin) for interval, begin, end in refresh_intervals(self.kappa) if t < end)

    @override
    def refreshes(self, t: int) -> bool:
        return 0 < t < self.freeze_step and (t + 1) % self._interval_of_refreshes(t)[0] == 0

    @override
    def refreshed(self, t: int) -> int:
        last, count = min(t, self.freeze_step - 1), 0
        for interval, begin, end in refresh_intervals(self.kappa):
            if last < begin:
                break
            count += (min(last + 1, end) // interval) - begin // interval
        return count

    @override
    def due(self, t: int) -> tuple[str, ...]:
        return ("gradient",) if t < self.freeze_step else super().due(t)


class ZeroOneAdamMethod(OneBitMethod):
    """Local steps in a scaling that is the same on all workers, and what they add up to averaged by signs.

    The formulas, and why they are so: `syncline.methods.one_bit_adam.ZeroOneAdamSpec`.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        schedule: schedule of the refreshes of the second moment, and of the averages.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        bias_correction: whether learning rate and second moment are corrected; the paper has no correction.
        scale: magnitude of the signs, ``rms`` or ``mean``, see ``OneBitMean``.
        **options: further options of ``Method``.

    Raises:
        SpecError: for a value out of range.

    Source: Lu et al. (2023), Algorithm 1 and section 5.
    """

    sync: ZeroOneSchedule

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        schedule: ZeroOneSchedule,
        beta1: float,
        beta2: float,
        eps: float,
        bias_correction: bool,
        scale: Scale,
        **options: Any,
    ) -> None:
        self.bias_correction = bias_correction
        self._is_code = schedule.variant == "code"
        super().__init__(params, lr, adam(beta1, beta2, eps, bias_correction), schedule, scale, **options)

    @override
    def rows(self, *, without_gradient: bool = False) -> list[Row]:
        rows = super().rows(without_gradient=without_gradient)
        for row in rows:
            if ANCHOR not in row.state:
                row.state[ANCHOR] = row.x.detach().clone()
                if not self._is_code:
                    row.state[ACCUMULATED] = torch.zeros_like(row.x)
        return rows

    @override
    def exchange(self, rows: list[Row], t: int) -> list[Row]:
        if self._is_code and t > 0 and not self.sync.refreshes(t):
            means = self.one_bit.mean([row.g for row in rows], [row.state for row in rows], self.comm)
            return [row._replace(g=mean) for row, mean in zip(rows, means, strict=True)]
        exchanged = super().exchange(rows, t)
        return [] if self._is_code and t == 0 else exchanged

    @override
    def directions(self, rows: list[Row], t: int) -> list[Tensor | None]:
        if self.sync.refreshes(t) and rows:
            self._refresh(rows)
        share = t + 1 if self.bias_correction else 0
        for group in self.param_groups:
            decay, rate = self._rates(group, share)
            before = group.get(RATE_SUMS, {})
            moving = [row.number for row in rows if row.group is group]
            group[RATE_SUMS] = before | {number: decay * before.get(number, 0.0) + rate for number in moving}
        return [self._local(row, t, share) for row in rows]

    def _refresh(self, rows: list[Row]) -> None:
        gradients = [row.g for row in rows]
        if self.sync.variant == "paper":
            gradients = self.comm.all_reduce_coalesced(gradients, wire=self.wire, label="gradient")
        for row, g in zip(rows, gradients, strict=True):
            beta2 = row.group["beta2"]
            row.state[SECOND_MOMENT].mul_(beta2).addcmul_(g, g, value=1 - beta2)

    def _rates(self, group: dict[str, Any], share: int) -> tuple[float, float]:
        """Return the factor of weight decay, and the share of the momentum that this step adds."""
        decay = 1.0 if self._is_code else 1 - group["lr"] * group["weight_decay"]
        return decay, group["lr"] / (1 - group["betas"][0] ** share if share else 1)

    def _local(self, row: Row, t: int, share: int) -> Tensor:
        m, (decay, rate) = row.state[MOMENTUM], self._rates(row.group, share)
        m.lerp_(row.g, 1 - row.group["betas"][0])
        if not self._is_code:
            row.state[ACCUMULATED].mul_(decay).add_(m, alpha=rate)
            row.state[ANCHOR].mul_(decay)
        moving = m.masked_fill(row.state[SECOND_MOMENT] == 0, 0)
        return moving / momentum_share(row, 0, share) / self._denominator(row, t)

    def _denominator(self, row: Row, t: int) -> Tensor:
        return denominator(row, self.sync.refreshed(t) if self.bias_correction else 0)

    @override
    def averaged_rows(self, rows: list[Row]) -> list[Row]:
        """Return the rows that moved since the last average: the momentum that arrives is a step too."""
        return [row for row in self.rows(without_gradient=True) if row.number in row.group[RATE_SUMS]]

    @override
    def average(self, rows: list[Row], names: tuple[str, ...]) -> None:
        t = self.steps_done
        if names and rows:
            self._average_signs(rows, t)
        elif self.sync.interval(t) > 1:
            return
        for row in rows:
            row.state[ANCHOR].copy_(row.x)
            if not self._is_code:
                row.state[ACCUMULATED].zero_()
        if self._is_code and t == self.sync.freeze_step - 1:
            for row in self.rows(without_gradient=True):
                row.state[WORKER_ERROR].zero_()
                row.state[SERVER_ERROR].zero_()
        for group in self.param_groups:
            group[RATE_SUMS] = {}

    def _average_signs(self, rows: list[Row], t: int) -> None:
        """Move all workers from their last common parameters by the mean of their accumulated steps."""
        sums = [row.group[RATE_SUMS][row.number] for row in rows]
        # With learning rates of 0 nothing is accumulated; the momenta are averaged all the same.
        sent = [self._sent(row, t) if s else row.state[MOMENTUM].clone() for row, s in zip(rows, sums, strict=True)]
        units = [s if s and not self._is_code else 1.0 for s in sums]
        sent = [step / unit for step, unit in zip(sent, units, strict=True)]
        means = self.one_bit.mean(sent, [row.state for row in rows], self.comm)
        for row, s, mean in zip(rows, sums, means, strict=True):
            m = row.state[MOMENTUM]
            momentum = mean / s if s and self._is_code else mean
            m.copy_(momentum.masked_fill(row.state[SECOND_MOMENT] == 0, 0))
            row.x.copy_(row.state[ANCHOR].addcdiv(m, self._denominator(row, t), value=-s))

    def _sent(self, row: Row, t: int) -> Tensor:
        """Return the sum of a worker's steps since the last average, in units of momentum times learning rate."""
        if self._is_code:
            return (row.state[ANCHOR] - row.x) * self._denominator(row, t)
        return row.state[ACCUMULATED]
