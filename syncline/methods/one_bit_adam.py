"""1-bit Adam: Adam for a while, then momentum in a frozen scaling, averaged by signs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange
from syncline.costmodel.traffic.packing import SCALE_BYTES, packed_bytes
from syncline.fields import Period, Rate
from syncline.methods.constructor import constructor
from syncline.methods.parts.method_spec import FP32_BYTES, MethodBase, Presets, Tensors, elements, tensors_of
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator


class OneBitBase(MethodBase):
    """The base of methods that average by signs.

    Args:
        freeze_step: number of steps before the second moment stays constant.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        bias_correction: whether momentum and second moment are corrected for their start at zero.
        scale: magnitude of the signs, ``rms`` or ``mean`` of the tensor, see ``OneBitMean``.
    """

    family: ClassVar[str] = "one bit"

    freeze_step: Period
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Annotated[float, Field(ge=0)] = 1e-8
    bias_correction: bool = True
    scale: Literal["rms", "mean"] = "rms"

    def _signs(self, model: Tensors, workers: int, period: int = 1, **phase: Any) -> list[Exchange]:
        """Return the exchange of signs and a scale of every chunk to its owner, and back."""
        encoded = FP32_BYTES * elements(tensors_of(model))
        owned = [packed_bytes(chunk, 1) + SCALE_BYTES for chunk in chunks(model, workers)]
        return [
            Exchange(workers * sum(owned), period, "worker signs", "all_to_all", encoded_bytes=encoded, **phase),
            Exchange(sum(owned), period, "owner signs", "all_gather", encoded_bytes=encoded, **phase),
        ]

    @override
    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of a worker's error, and of its error as the owner of chunks."""
        return elements(tensors_of(model)) + sum(chunks(model, workers))

    def _gradient(self, model: Tensors, period: int = 1, **phase: Any) -> Exchange:
        return self._plain(elements(tensors_of(model)), period, "gradient", **phase)

    def _options(self, comm: Communicator | None, worker_axis: bool) -> dict[str, Any]:
        names = ("beta1", "beta2", "eps", "bias_correction", "scale")
        return {name: getattr(self, name) for name in names} | self.common_options(comm, worker_axis)


@register
class OneBitAdamSpec(OneBitBase):
    """1-bit Adam: Adam until ``freeze_step``, then signs of momenta in a scaling that stays.

        m_i = beta1 m + (1 - beta1) g_i;   m <- OneBitMean(m_i);   x <- x - lr m^ / (sqrt(v^) + eps)

    Bias correction goes on, so that the direction does not jump at the freeze: ``m^ = m / (1 - beta1^(t+1))``, and
    ``v^ = v / (1 - beta2^freeze_step)`` stays as it is. The public code has none. Where v is 0, no worker has seen a
    gradient: the signs, which know no zero, would move x by ``lr m / eps`` there, so it stays, and so does m = 0.

    What travels: ``4 N`` bytes per step, later about ``N / 8`` twice (see ``OneBitMean``).

    Args:
        freeze_step: number of first steps, which are Adam's, at least 1; then the second moment stays constant.
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        bias_correction: whether m and v are corrected as above; the public code has no correction.
        scale: magnitude of the signs: the root mean square (``rms``) or the mean magnitude (``mean``) of the tensor.

    Source: Tang et al. (2021), Algorithm 1.
    """

    source: ClassVar[str] = "1-bit Adam (Tang et al., 2021)"

    presets: ClassVar[Presets] = {
        "one-bit-adam": {"lr": 0.003, "eps": 0.001},
    }

    kind: Literal["one-bit-adam"] = "one-bit-adam"
    freeze_step: Period = 100

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return gradients until the freeze, then signs."""
        return [self._gradient(model, stop=self.freeze_step), *self._signs(model, workers, start=self.freeze_step)]

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the traffic after the freeze."""
        return signs_formula(workers)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of both moments, a worker's error, and its error as the owner of chunks."""
        return 3 * elements(tensors_of(model)) + sum(chunks(model, workers))

    @override
    def build(self, params: Iterable[Any], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        return optim.OneBitAdamMethod(params, self.lr, freeze_step=self.freeze_step, **self._options(comm, worker_axis))


def chunks(model: Tensors, workers: int) -> list[int]:
    """Return the number of elements that one worker averages for all, ``ceil(n / M)`` of each tensor."""
    return [-(-tensor.elements // workers) for tensor in tensors_of(model)]


OneBitAdam = constructor(OneBitAdamSpec)


def signs_formula(workers: int) -> str:
    """Return the bytes that a worker sends: a chunk to each owner, then its own chunk, as packed signs and a scale."""
    return f"Σ {workers + 1} (4 + ⌈n / {8 * workers}⌉)"
