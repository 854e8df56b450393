"""0/1 Adam: Adam whose second moment is updated, and whose steps are averaged by signs, at growing intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.costmodel.traffic.exchanges import refresh_intervals
from syncline.optim import one_bit_adam
from syncline.optim.base import ParamRow, SyncPolicy
from syncline.optim.rules import adam
from syncline.optim.scalings import SECOND_MOMENT

STEP_SUM, AVERAGED_PARAMS = "accumulated", "anchor"
"""Names of the states u, the sum of a worker's steps since the last average, and a, the parameters after it."""

RATE_SUMS = "rate_sums"
"""Key in a parameter group: s, the sum of learning rates since the last average, by the index of each parameter that
has moved since then."""

Variant = Literal["paper", "merged", "code"]


@dataclass(frozen=True)
class ZeroOneSchedule(SyncPolicy):
    """0/1 Adam's schedule of updates of the second moment, called refreshes, and of averages over the workers.

    Before ``freeze_step`` workers average in every step. Kappa refreshes are 1 step apart, then kappa are 2 steps
    apart, then 4, and so on. From ``freeze_step`` on there are no refreshes, and workers average after step t if
    ``(t + 1) % interval == 0``. The interval doubles every ``double_every`` steps up to ``max_interval``.

    `ZeroOneAdamSpec` explains the values of ``variant``.

    Source: Lu et al., "Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam" (2023), section 5.
    """

    freeze_step: int
    kappa: int
    double_every: int
    max_interval: int
    variant: Variant

    def _phase(self, t: int) -> tuple[int, int]:
        """Return the number of the phase of step ``t``, from 0, and the phase's first step.

        Phase i has kappa refreshes, which are 2^i steps apart, so that it begins after ``kappa (2^i - 1)`` steps.
        """
        phase = (t // self.kappa + 1).bit_length() - 1  # the largest i with kappa (2^i - 1) <= t
        return phase, self.kappa * (2**phase - 1)

    def updates_second_moment(self, t: int) -> bool:
        """Return whether the second moment is updated in step ``t``."""
        phase, first_step = self._phase(t)
        return t < self.freeze_step and (t - first_step) % 2**phase == 0

    def num_second_moment_updates(self, t: int) -> int:
        """Return the number of updates of the second moment until the end of step ``t``."""
        last = min(t, self.freeze_step - 1)
        phase, first_step = self._phase(last)
        updates_in_phase = (last - first_step) // 2**phase + 1
        return self.kappa * phase + updates_in_phase  # each earlier phase has kappa updates

    def interval(self, t: int) -> int:
        """Return the number of steps between averages at step ``t``."""
        doublings = max(0, t - self.freeze_step) // self.double_every
        most_doublings = self.max_interval.bit_length()  # enough to exceed max_interval
        return min(self.max_interval, 2 ** min(doublings, most_doublings))

    def states_due(self, t: int) -> tuple[str, ...]:
        """Return ``gradient`` if workers average gradients in step ``t``, ``params`` if they average signs of steps."""
        if self.variant == "merged" and self.updates_second_moment(t):  # the mean gradient serves the momentum, too
            return ("gradient",)
        return ("params",) if (t + 1) % self.interval(t) == 0 else ()


class CodeSchedule(ZeroOneSchedule):
    """0/1 Adam's schedule in DeepSpeed's code: until ``freeze_step`` every step exchanges gradients.

    Workers average exact gradients in steps that update the second moment, and signs of gradients in other steps.
    """

    @override
    def updates_second_moment(self, t: int) -> bool:
        """Return whether the second moment is updated in step ``t``, as in DeepSpeed's code."""
        if not 0 < t < self.freeze_step:  # DeepSpeed's step 0 updates nothing
            return False
        for interval, _, end in refresh_intervals(self.kappa):
            if t < end:
                return (t + 1) % interval == 0
        return False

    @override
    def num_second_moment_updates(self, t: int) -> int:
        """Return the number of updates of the second moment until the end of step ``t``, as in DeepSpeed's code."""
        stop = min(t + 1, self.freeze_step)
        count = 0
        for interval, begin, end in refresh_intervals(self.kappa):
            if stop <= begin:
                break
            count += min(stop, end) // interval - begin // interval  # multiples of the interval after ``begin``
        return count

    @override
    def states_due(self, t: int) -> tuple[str, ...]:
        """Return ``gradient`` before ``freeze_step``, and later what the base class returns."""
        return ("gradient",) if t < self.freeze_step else super().states_due(t)


class ZeroOneAdamMethod(one_bit_adam.OneBitMethod):
    """0/1 Adam: workers take local Adam steps with equal second moments v, and average the sums u of these steps.

        m_i <- beta1 m_i + (1 - beta1) g_i;   x_i <- x_i - lr m_i / (sqrt(v) + eps);   u_i <- u_i + lr m_i
        average:   m <- OneBitMean(u_i / s);   x <- a <- a - s m / (sqrt(v) + eps);    u <- 0;   s <- 0
        refresh:   v <- beta2 v + (1 - beta2) (mean g)^2

    g_i is the gradient of worker i, s the sum of the learning rates since the last average, and a are the parameters
    after it. `ZeroOneAdamSpec` explains details and variants.

    Args:
        schedule: schedule of the refreshes of the second moment, and of the averages.
        beta1, beta2, eps: as in ``adam``.
        bias_correction: whether learning rate and second moment are corrected; the paper has no correction.
        scale: magnitude of the signs, ``rms`` or ``mean``, see ``OneBitMean``.
        **options: further options of ``Method``.

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
        scale: one_bit_adam.Scale,
        **options: Any,
    ) -> None:
        self.bias_correction = bias_correction
        self._follows_deepspeed = schedule.variant == "code"
        rule = adam(beta1, beta2, eps, bias_correction)
        super().__init__(params, lr, rule, sync=schedule, scale=scale, **options)

    @override
    def rows(self, *, without_gradient: bool = False) -> list[ParamRow]:
        """Return the rows; new ones get the states a, parameters after the last average, and u, the sum of steps."""
        rows = super().rows(without_gradient=without_gradient)
        for row in rows:
            if AVERAGED_PARAMS not in row.state:
                row.state[AVERAGED_PARAMS] = row.x.detach().clone()
                if not self._follows_deepspeed:  # DeepSpeed averages the change of x since a instead
                    row.state[STEP_SUM] = torch.zeros_like(row.x)
        return rows

    @override
    def exchange_gradients(self, rows: list[ParamRow], t: int) -> list[ParamRow]:
        """Return the rows with mean gradients, or with one-bit means where DeepSpeed sends signs of gradients."""
        if rows and self._follows_deepspeed and t > 0 and not self.sync.updates_second_moment(t):
            means = self.one_bit.mean([row.g for row in rows], [row.state for row in rows], self.comm)
            return [row._replace(g=mean) for row, mean in zip(rows, means, strict=True)]
        exchanged = super().exchange_gradients(rows, t)
        return [] if self._follows_deepspeed and t == 0 else exchanged  # DeepSpeed's step 0 moves no parameter

    @override
    def directions(self, rows: list[ParamRow], t: int) -> list[Tensor | None]:
        """Return the local directions; update momenta, the sums u and s and, if they are due, the second moments."""
        if self.sync.updates_second_moment(t):
            gradients = [row.g for row in rows]
            if self.sync.variant == "paper" and rows:  # other variants have averaged them before
                gradients = self.comm.all_reduce_coalesced(gradients, wire=self.wire, label="gradient")
            for row, g in zip(rows, gradients, strict=True):
                beta2 = row.group["beta2"]
                row.state[SECOND_MOMENT].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        for group in self.param_groups:
            decay, rate = self._decay_and_rate(group, t)
            rate_sums = dict(group.get(RATE_SUMS, {}))
            for row in rows:
                if row.group is group:
                    rate_sums[row.param_index] = decay * rate_sums.get(row.param_index, 0.0) + rate
            group[RATE_SUMS] = rate_sums
        return [self._local_direction(row, t) for row in rows]

    def _decay_and_rate(self, group: dict[str, Any], t: int) -> tuple[float, float]:
        """Return the factor by which weight decay shrinks u, s and a, and the rate at which the momentum moves x."""
        # DeepSpeed averages the change of x including weight decay: its sums do not decay.
        decay = 1.0 if self._follows_deepspeed else 1 - group["lr"] * group["weight_decay"]
        return decay, group["lr"] / self._momentum_correction(group, t)

    def _momentum_correction(self, group: dict[str, Any], t: int) -> float:
        """Return the divisor of the momentum for its bias correction after step ``t``; 1 if the method has none."""
        return one_bit_adam.momentum_bias_correction(group, steps=t + 1) if self.bias_correction else 1.0

    def _local_direction(self, row: ParamRow, t: int) -> Tensor:
        """Update a worker's momentum and its sum u of steps, and return the direction of the local step."""
        m = row.state[one_bit_adam.MOMENTUM]
        decay, rate = self._decay_and_rate(row.group, t)
        m.lerp_(row.g, 1 - row.group["betas"][0])
        if not self._follows_deepspeed:
            row.state[STEP_SUM].mul_(decay).add_(m, alpha=rate)
            row.state[AVERAGED_PARAMS].mul_(decay)
        # Where v is 0 no worker has had a gradient. Nothing moves there, as an average of signs could not give 0.
        direction = m.masked_fill(row.state[SECOND_MOMENT] == 0, 0)
        return direction / self._momentum_correction(row.group, t) / self._denominator(row, t)

    def _denominator(self, row: ParamRow, t: int) -> Tensor:
        """Return Adam's divisor ``sqrt(v) + eps`` after step ``t``, with bias correction of v if it is on."""
        updates = self.sync.num_second_moment_updates(t) if self.bias_correction else None
        return one_bit_adam.adam_denominator(row, updates)

    @override
    def rows_to_average(self, rows: list[ParamRow]) -> list[ParamRow]:
        """Return the rows of parameters that moved since the last average, also without a gradient in this step."""
        # Each step of a parameter adds to its sum of rates, and an average removes the sum.
        return [row for row in self.rows(without_gradient=True) if row.param_index in row.group[RATE_SUMS]]

    @override
    def average_states(self, rows: list[ParamRow], names: tuple[str, ...]) -> None:
        """Average the sums of steps by signs if an average is due, and start new sums."""
        t = self.steps_done
        if names and rows:
            self._average_signs(rows, t)
        elif self.sync.interval(t) > 1:  # no average is due: the sums continue
            return
        # With the interval 1, a step without an average of signs has averaged gradients: workers are equal, too.
        for row in rows:
            row.state[AVERAGED_PARAMS].copy_(row.x)
            if not self._follows_deepspeed:
                row.state[STEP_SUM].zero_()
        # DeepSpeed averages another tensor from the next step on, with new errors.
        if self._follows_deepspeed and t == self.sync.freeze_step - 1:
            for row in self.rows(without_gradient=True):
                row.state[one_bit_adam.WORKER_ERROR].zero_()
                row.state[one_bit_adam.OWNER_ERROR].zero_()
        for group in self.param_groups:
            group[RATE_SUMS] = {}

    def _average_signs(self, rows: list[ParamRow], t: int) -> None:
        """Average the workers' sums of steps by signs, and move all from their last common parameters by the mean."""
        rate_sums = [row.group[RATE_SUMS][row.param_index] for row in rows]
        messages = []
        for row, rate_sum in zip(rows, rate_sums, strict=True):
            if not rate_sum:  # all learning rates were 0: average the momenta
                messages.append(row.state[one_bit_adam.MOMENTUM].clone())
            elif self._follows_deepspeed:  # a sum of steps, which the loop below divides
                messages.append((row.state[AVERAGED_PARAMS] - row.x) * self._denominator(row, t))
            else:
                messages.append(row.state[STEP_SUM] / rate_sum)
        means = self.one_bit.mean(messages, [row.state for row in rows], self.comm)
        for row, rate_sum, mean in zip(rows, rate_sums, means, strict=True):
            mean_momentum = mean / rate_sum if rate_sum and self._follows_deepspeed else mean
            # Where v is 0 no worker has had a gradient: replace the sign by 0.
            m = row.state[one_bit_adam.MOMENTUM].copy_(mean_momentum.masked_fill(row.state[SECOND_MOMENT] == 0, 0))
            row.x.copy_(row.state[AVERAGED_PARAMS].addcdiv(m, self._denominator(row, t), value=-rate_sum))
