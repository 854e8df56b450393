"""0/1 Adam: signs of accumulated momenta, averaged seldom, in a scaling refreshed ever more seldom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from syncline.costmodel import (
    Exchange,
)
from syncline.costmodel.traffic.refreshes import aligned_rounds
from syncline.fields import Period
from syncline.methods.base import (
    Presets,
    Tensors,
    elements,
    every,
    tensors_of,
)
from syncline.methods.one_bit_adam import OneBitBase, chunks, signs_formula
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


@register
class ZeroOneAdamSpec(OneBitBase):
    """0/1 Adam: local steps in a scaling refreshed ever more seldom, averaged by signs ever more seldom."""

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
        for doublings, begin, end in self._rounds():
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
        """Gradients whole at step 0 and at refreshes, as signs in every other step until the freeze."""
        out = [self._gradient(model, stop=1)]
        for interval, begin, end in aligned_rounds(self.kappa):
            if begin >= self.freeze_step:
                break
            phase = {"start": begin, "stop": min(end, self.freeze_step)}
            out.append(self._gradient(model, interval, **phase))
            for k in range(1, interval.bit_length()):  # odd multiples of 1, 2, ..., half the interval
                out += self._signs(model, workers, 2**k, offset=2 ** (k - 1), **phase)
        for period, start, stop in self._intervals():
            out += self._signs(model, workers, period, start=start, stop=stop)
        return out

    def _rounds(self) -> Iterable[tuple[int, int, int]]:
        """Doublings i, first step ``kappa (2^i - 1)`` and the step after the last, of each round before the freeze."""
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
        """In the longest interval."""
        return every(signs_formula(workers), self.max_interval)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """1-bit Adam's, where the workers last met, and what is accumulated, but for ``code``."""
        return (4 if self.form == "code" else 5) * elements(tensors_of(model)) + sum(chunks(model, workers))

    @override
    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        from syncline.optim import ZeroOneAdam

        schedule = {name: getattr(self, name) for name in ("kappa", "double_every", "max_interval", "form")}
        return ZeroOneAdam(params, self.lr, **schedule, **self._options(comm, worker_axis))
