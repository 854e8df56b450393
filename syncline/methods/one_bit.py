"""Methods that send signs in a frozen scaling, as specs: 1-bit Adam and 0/1 Adam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from syncline.costmodel import Exchange
from syncline.costmodel.traffic.packing import SCALE_BYTES, packed_bytes
from syncline.fields import Period, Rate
from syncline.methods.base import FP32_BYTES, MethodBase, Tensors, elements, every, tensors_of

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method


class OneBitBase(MethodBase):
    """What the methods share that average by signs."""

    family: ClassVar[str] = "one bit"

    freeze_step: Period
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Annotated[float, Field(ge=0)] = 1e-8
    bias_correction: bool = True
    scale: Literal["rms", "mean"] = "rms"

    def _signs(self, model: Tensors, workers: int, period: int = 1, **phase: Any) -> list[Exchange]:
        """Signs and a scale of every chunk to its owner, and back."""
        encoded = FP32_BYTES * elements(tensors_of(model))
        owned = [packed_bytes(chunk, 1) + SCALE_BYTES for chunk in chunks(model, workers)]
        return [
            Exchange(workers * sum(owned), period, "worker signs", "all_to_all", encoded_bytes=encoded, **phase),
            Exchange(sum(owned), period, "owner signs", "all_gather", encoded_bytes=encoded, **phase),
        ]

    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """The worker's error, and the owner's of its chunks."""
        return elements(tensors_of(model)) + sum(chunks(model, workers))

    def _gradient(self, model: Tensors, period: int = 1, **phase: Any) -> Exchange:
        return self._plain(elements(tensors_of(model)), period, "gradient", **phase)

    def _options(self, comm: Communicator, worker_axis: bool) -> dict[str, Any]:
        names = ("freeze_step", "beta1", "beta2", "eps", "bias_correction", "scale")
        return {name: getattr(self, name) for name in names} | self._common(comm, worker_axis)


class OneBitAdamSpec(OneBitBase):
    """1-bit Adam: Adam until ``freeze_step``, then signs of momenta in a scaling that stays."""

    source: ClassVar[str] = "1-bit Adam (Tang et al., 2021)"

    kind: Literal["one-bit-adam"] = "one-bit-adam"
    freeze_step: Period = 100

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or "one-bit-adam"

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Gradients until the freeze, then signs."""
        return [self._gradient(model, stop=self.freeze_step), *self._signs(model, workers, start=self.freeze_step)]

    def traffic_formula(self, workers: int) -> str:
        """See ``MethodBase.traffic_formula``; after the freeze."""
        return signs_formula(workers)

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Adam's two, the worker's error, and the owner's of its chunks."""
        return 3 * elements(tensors_of(model)) + sum(chunks(model, workers))

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import OneBitAdam

        return OneBitAdam(params, self.lr, **self._options(comm, worker_axis))


class ZeroOneAdamSpec(OneBitBase):
    """0/1 Adam: local steps in a scaling refreshed ever more seldom, averaged by signs ever more seldom."""

    source: ClassVar[str] = "0/1 Adam (Lu et al., 2023)"

    kind: Literal["zero-one-adam"] = "zero-one-adam"
    freeze_step: Period = 100
    kappa: Period = 16
    double_every: Period = 50
    max_interval: Period = 16
    form: Literal["paper", "code"] = "code"

    @property
    def name(self) -> str:
        """See ``MethodBase.name``."""
        return self.label or "zero-one-adam"

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Gradients in ever longer intervals until the freeze; signs in every other step, then in longer intervals."""
        out, signs = [], []
        for doublings, begin, end in self._rounds():
            period, phase = 2**doublings, {"start": begin, "stop": end}
            out.append(self._gradient(model, period, offset=begin + 1, **phase))
            # Steps that are no multiple of the period: odd ones, those that 2 divides and 4 does not, and so on.
            halves = range(1, doublings + 1) if self.form == "code" else ()
            signs += [
                e for k in halves for e in self._signs(model, workers, 2**k, offset=begin + 1 + 2 ** (k - 1), **phase)
            ]
        if self.form == "paper":
            signs = self._signs(model, workers, stop=self.freeze_step)
        for period, begin, stop in self._intervals():
            signs += self._signs(model, workers, period, start=begin, stop=stop)
        return [*out, *signs]

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

    def traffic_formula(self, workers: int) -> str:
        """See ``MethodBase.traffic_formula``; in the longest interval."""
        return every(signs_formula(workers), self.max_interval)

    def kept_elements(self, model: Tensors, workers: int) -> int:
        """1-bit Adam's, what is accumulated, and where the workers last met."""
        return 5 * elements(tensors_of(model)) + sum(chunks(model, workers))

    def build(self, params: Iterable[Any], comm: Communicator, worker_axis: bool = True) -> Method:
        """See ``MethodBase.build``."""
        from syncline.optim import ZeroOneAdam

        schedule = {name: getattr(self, name) for name in ("kappa", "double_every", "max_interval", "form")}
        return ZeroOneAdam(params, self.lr, **schedule, **self._options(comm, worker_axis))


def chunks(model: Tensors, workers: int) -> list[int]:
    """Numbers that one worker averages for all, ``ceil(n / M)`` of each tensor."""
    return [-(-tensor.elements // workers) for tensor in tensors_of(model)]


def signs_formula(workers: int) -> str:
    """Bytes of one chunk per owner, and then of one's own: each is packed signs and a scale."""
    return f"Σ {workers + 1} (4 + ⌈n / {8 * workers}⌉)"
