"""0/1 Adam: signs of accumulated momenta, averaged seldom, in a scaling refreshed ever more seldom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from syncline.costmodel import Exchange
from syncline.costmodel.traffic.refreshes import refresh_intervals
from syncline.fields import Period
from syncline.methods.constructor import constructor
from syncline.methods.one_bit_adam import OneBitBase, chunks, signs_formula
from syncline.methods.parts.method_spec import Presets, Tensors, elements, per_step_formula, tensors_of
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


@register
class ZeroOneAdamSpec(OneBitBase):
    """0/1 Adam: local steps in a scaling refreshed ever more seldom, averaged by signs ever more seldom.

        m_i <- beta1 m_i + (1 - beta1) g_i;   x_i <- x_i - lr m_i / (sqrt(v) + eps);   u_i <- u_i + lr m_i

    When workers average, with ``s`` the sum of the learning rates of their steps since they last did, and ``a`` where
    they then were:

        m <- OneBitMean(u_i / s);   x <- a <- a - s m / (sqrt(v) + eps);   u <- 0;   s <- 0

    When the second moment is refreshed: ``v <- beta2 v + (1 - beta2) (mean g)^2``, in full precision.

    Errors are kept of ``u / s`` and not of ``u``, so that a learning rate or an interval that changes does not blow
    them up; with both constant it is the same. Momentum and second moment have seen the step's gradient when x moves,
    as in the public code. Bias correction divides each learning rate by ``1 - beta1^(t+1)`` and v by
    ``1 - beta2^refreshes``. Weight decay shrinks x, a, u and s alike, so that averaging stays exact. Where v is 0
    nothing moves, as for ``OneBitAdam``.

    Args:
        freeze_step: when the second moment stays for good and intervals begin to grow.
        kappa: refreshes of the second moment before the steps between them double.
        double_every: steps before the steps between averages double.
        max_interval: H, the longest interval.
        form: ``paper``: signs are averaged in every step until ``freeze_step``. ``merged``: a step that averages
            gradients for the second moment uses them for the momentum too, and sends no signs. ``code``: DeepSpeed's.
            Until ``freeze_step``, its ``var_freeze_step + 1``, nobody steps alone: momenta see gradients that all
            have, their mean where the second moment is refreshed (see ``refresh_intervals``) and their ``OneBitMean``
            elsewhere. Step 0 moves nothing. At the freeze all errors are forgotten; from then on what is averaged,
            and owed, is the way that each has come, weight decay too, times ``sqrt(v) + eps``. It has no bias
            correction.
        beta1: decay of the momentum.
        beta2: decay of the second moment.
        eps: added to the root.
        bias_correction: as above; without it, the paper's form.
        scale: as for ``OneBitMean``.

    Source: Lu et al. (2023), Algorithm 1 and section 5.
    """

    source: ClassVar[str] = "0/1 Adam (Lu et al., 2023)"

    presets: ClassVar[Presets] = {
        "zero-one-adam": {"lr": 0.003, "eps": 0.001},
    }

    kind: Literal["zero-one-adam"] = "zero-one-adam"
    freeze_step: Period = 100
    kappa: Period = 16
    double_every: Period = 50
    max_interval: Period = 16
    form: Literal["paper", "merged", "code"] = "merged"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Gradients in ever longer intervals until the freeze; signs in every other step, then in longer intervals."""
        if self.form == "code":
            return self._exchanges_of_code(model, workers)
        out, signs = [], []
        for doublings, begin, end in self._doublings():
            period, phase = 2**doublings, {"start": begin, "stop": end}
            out.append(self._gradient(model, period, offset=begin + 1, **phase))
            # Steps that are no multiple of the period: odd ones, those that 2 divides and 4 does not, and so on.
            halves = range(1, doublings + 1) if self.form == "merged" else ()
            signs += [
                e for k in halves for e in self._signs(model, workers, 2**k, offset=begin + 1 + 2 ** (k - 1), **phase)
            ]
        if self.form == "paper":
            signs = self._signs(model, workers, stop=self.freeze_step)
        for period, begin, stop in self._intervals():
            signs += self._signs(model, workers, period, start=begin, stop=stop)
        return [*out, *signs]

    def _exchanges_of_code(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return gradients whole at step 0 and at refreshes, as signs in every other step until the freeze."""
        out = [self._gradient(model, stop=1)]
        for interval, begin, end in refresh_intervals(self.kappa):
            if begin >= self.freeze_step:
                break
            phase = {"start": begin, "stop": min(end, self.freeze_step)}
            out.append(self._gradient(model, interval, **phase))
            for k in range(1, interval.bit_length()):  # odd multiples of 1, 2, ..., half the interval
                out += self._signs(model, workers, 2**k, offset=2 ** (k - 1), **phase)
        for period, start, stop in self._intervals():
            out += self._signs(model, workers, period, start=start, stop=stop)
        return out

    def _doublings(self) -> Iterable[tuple[int, int, int]]:
        """Doublings i, first step ``kappa (2^i - 1)`` and the step after the last, until the freeze."""
        i = 0
        while (begin := self.kappa * (2**i - 1)) < self.freeze_step:
            yield i, begin, min(self.kappa * (2 ** (i + 1) - 1), self.freeze_step)
            i += 1

    def _intervals(self) -> Iterable[tuple[int, int, int | None]]:
        """Interval, first step, and the step after the last, of each interval after the freeze."""
        i = 0
        while 2**i < self.max_interval:
            begin = self.freeze_step + i * self.double_every
            yield 2**i, begin, begin + self.double_every
            i += 1
        yield self.max_interval, self.freeze_step + i * self.double_every, None

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the traffic in the longest interval."""
        return per_step_formula(signs_formula(workers), self.max_interval)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """1-bit Adam's, where the workers last met, and what is accumulated, but for ``code``."""
        return (4 if self.form == "code" else 5) * elements(tensors_of(model)) + sum(chunks(model, workers))

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> Method:
        from syncline.optim import ZeroOneAdamMethod
        from syncline.optim.zero_one_adam import CodeSchedule, ZeroOneSchedule

        knobs = (self.freeze_step, self.kappa, self.double_every, self.max_interval, self.form)
        schedule = CodeSchedule(*knobs) if self.form == "code" else ZeroOneSchedule(*knobs)
        return ZeroOneAdamMethod(params, self.lr, schedule=schedule, **self._options(comm, worker_axis))


ZeroOneAdam = constructor(ZeroOneAdamSpec)
