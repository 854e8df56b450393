"""1-bit Adam and 0/1 Adam, whose workers average signs instead of gradients after some steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.compute.update_work import ElementwiseWork, UpdateWork
from syncline.costmodel.traffic.exchanges import refresh_intervals
from syncline.costmodel.traffic.packing import SCALE_BYTES, packed_bytes
from syncline.fields import Period, Rate
from syncline.methods.parts.method_spec import (
    FP32_BYTES,
    MethodBase,
    Presets,
    Tensors,
    elements,
    per_step_formula,
    tensors_of,
)
from syncline.methods.registry import register


class OneBitBase(MethodBase):
    """The base of methods whose workers average signs.

    Args:
        beta1: decay rate of the momentum.
        beta2: decay rate of the second moment.
        eps: number added to the root of the second moment.
        scale: magnitude of the signs: the root mean square (``rms``) or the mean magnitude (``mean``) of the tensor.
    """

    family = "one bit"

    freeze_step: Period
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    eps: Annotated[float, Field(ge=0)] = 1e-8
    bias_correction: bool = True
    scale: Literal["rms", "mean"] = "rms"

    def _sign_exchanges(self, model: Tensors, workers: int, period: int = 1, **phase: Any) -> list[Exchange]:
        """Return the exchanges of signs and scales every ``period`` steps: chunks to their owners, results to all.

        ``phase`` has the fields ``offset``, ``start`` and ``stop`` of an `Exchange`.
        """
        encoded = FP32_BYTES * elements(tensors_of(model))
        owner_bytes = sum(packed_bytes(chunk, bits=1) + SCALE_BYTES for chunk in chunk_lengths(model, workers))
        return [
            Exchange(workers * owner_bytes, period, "worker signs", "all_to_all", encoded_bytes=encoded, **phase),
            Exchange(owner_bytes, period, "owner signs", "all_gather", encoded_bytes=encoded, **phase),
        ]

    @override
    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of a worker's error, and of its error as the owner of chunks."""
        return elements(tensors_of(model)) + sum(chunk_lengths(model, workers))

    def _gradient_exchange(self, model: Tensors, period: int = 1, **phase: Any) -> Exchange:
        """Return the exchange of uncompressed gradients every ``period`` steps."""
        return self._plain_exchange(elements(tensors_of(model)), period, "gradient", **phase)

    @property
    def _adam_arguments(self) -> dict[str, Any]:
        """Return the arguments of the optimizer that 1-bit and 0/1 Adam share, by name."""
        names = ("beta1", "beta2", "eps", "bias_correction", "scale")
        return {name: getattr(self, name) for name in names}


@register
class OneBitAdamSpec(OneBitBase):
    """1-bit Adam: Adam until ``freeze_step``; then workers average signs of momenta, with a constant second moment v.

        m_i = beta1 m + (1 - beta1) g_i;   m <- OneBitMean(m_i);   x <- x - lr m^ / (sqrt(v^) + eps)

    g_i and m_i are gradient and momentum of worker i. Bias correction continues, so that the direction does not jump:
    ``m^ = m / (1 - beta1^(t+1))``, and ``v^ = v / (1 - beta2^freeze_step)`` is constant. (The public code has none.)
    Where v is 0, no worker has had a gradient: parameter and momentum stay, because signs have no zero.

    Workers send ``4 N`` bytes per step, and later about ``N / 8`` bytes twice (see ``OneBitMean``).

    Args:
        freeze_step: number of Adam's steps at the start, at least 1; then the second moment stays constant.
        bias_correction: whether m and v are corrected as above; the public code has no correction.

    Source: Tang et al. (2021), Algorithm 1.
    """

    source = "1-bit Adam (Tang et al., 2021)"

    presets: ClassVar[Presets] = {"one-bit-adam": {"lr": 0.003, "eps": 0.001}}

    kind: Literal["one-bit-adam"] = "one-bit-adam"
    freeze_step: Period = 100

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchange of gradients until ``freeze_step``, and the exchanges of signs after it."""
        gradient = self._gradient_exchange(model, stop=self.freeze_step)
        return [gradient, *self._sign_exchanges(model, workers, start=self.freeze_step)]

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return, as text, the formula of the bytes that a worker sends per step after ``freeze_step``."""
        return signs_formula(workers)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return how many numbers a worker stores: two moments, its error, and its error as owner of a chunk."""
        return 3 * elements(tensors_of(model)) + sum(chunk_lengths(model, workers))

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the steps after ``freeze_step``."""
        step, signs = ElementwiseWork(kernel_bytes=56, kernels=6), ElementwiseWork(kernel_bytes=211, kernels=51)
        return UpdateWork(step.on(tensors), messages=signs.on(tensors)) + self._step_work(tensors)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        return optim.OneBitAdamMethod(params, self.lr, freeze_step=self.freeze_step, **self._adam_arguments, **options)


def chunk_lengths(model: Tensors, workers: int) -> list[int]:
    """Return the number of elements of each tensor that one worker averages for all, ``ceil(n / M)``."""
    return [math.ceil(tensor.elements / workers) for tensor in tensors_of(model)]


def signs_formula(workers: int) -> str:
    """Return the formula of the bytes that a worker sends to average tensors of n numbers by signs.

    A worker sends a message to each of the M owners of chunks, and as an owner one message to all workers.
    """
    return f"Σ {workers + 1} ({SCALE_BYTES} + ⌈n / {8 * workers}⌉)"


@register
class ZeroOneAdamSpec(OneBitBase):
    """0/1 Adam: local Adam steps with equal second moments v; workers average them by signs at growing intervals.

        m_i <- beta1 m_i + (1 - beta1) g_i;   x_i <- x_i - lr m_i / (sqrt(v) + eps);   u_i <- u_i + lr m_i

    When workers average, ``s`` is the sum of the learning rates since the last average, and ``a`` are the parameters
    after the last average:

        m <- OneBitMean(u_i / s);   x <- a <- a - s m / (sqrt(v) + eps);   u <- 0;   s <- 0

    The second moment is updated ("refreshed") at growing intervals, too: ``v <- beta2 v + (1 - beta2) (mean g)^2``.

    Error feedback acts on ``u / s`` instead of ``u``, so that a change of the learning rate or of the interval does not
    magnify the errors; if both are constant, there is no difference. Momentum and second moment include the step's
    gradient when x moves, as in the public code. Bias correction divides each learning rate by ``1 - beta1^(t+1)`` and
    v by ``1 - beta2^refreshes``. Weight decay shrinks x, a, u and s alike, so that averaging stays exact. Where v is 0
    nothing moves, as for ``OneBitAdam``.

    Args:
        freeze_step: step from which the second moment is constant and the intervals between averages grow.
        kappa: number of refreshes of the second moment after which the number of steps between refreshes doubles.
        double_every: number of steps after which the number of steps between averages doubles.
        max_interval: H, the largest number of steps between averages.
        variant: ``paper``: workers average signs in every step until ``freeze_step``. ``merged``: a step that averages
            gradients for the second moment uses them for the momentum too, and sends no signs. ``code``, as DeepSpeed:
            until ``freeze_step`` (DeepSpeed's ``var_freeze_step + 1``), momenta use the mean gradient in steps that
            refresh the second moment, and the ``OneBitMean`` of gradients in other steps. Step 0 does not move the
            parameters. At ``freeze_step`` all errors are set to 0. Then workers average their change of the parameters
            since the last average, with weight decay, times ``sqrt(v) + eps``. There is no bias correction.
        bias_correction: whether learning rate and second moment are corrected as above; the paper has no correction.

    Source: Lu et al. (2023), Algorithm 1 and section 5.
    """

    source = "0/1 Adam (Lu et al., 2023)"

    presets: ClassVar[Presets] = {"zero-one-adam": {"lr": 0.003, "eps": 0.001}}

    kind: Literal["zero-one-adam"] = "zero-one-adam"
    freeze_step: Period = 100
    kappa: Period = 16
    double_every: Period = 50
    max_interval: Period = 16
    variant: Literal["paper", "merged", "code"] = "merged"

    @override
    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchanges of gradients and of signs.

        Until ``freeze_step`` workers send gradients at growing intervals, and signs in all other steps; with the
        variant ``paper``, signs in all steps. Later they send signs at growing intervals.
        """
        if self.variant == "code":
            return self._exchanges_of_code(model, workers)
        gradients, signs = [], []
        phase, begin = 0, 0
        while begin < self.freeze_step:  # in phase i, kappa refreshes follow each other every 2^i steps
            end = begin + self.kappa * 2**phase
            # The first refresh of a phase is in its first step.
            steps = {"start": begin, "stop": min(end, self.freeze_step)}
            gradients.append(self._gradient_exchange(model, 2**phase, offset=begin + 1, **steps))
            if self.variant == "merged":
                # The steps between refreshes: the odd multiples of 1, 2, 4, ..., counted from the first refresh.
                for k in range(phase):
                    offset = begin + 1 + 2**k
                    signs += self._sign_exchanges(model, workers, 2 ** (k + 1), offset=offset, **steps)
            phase, begin = phase + 1, end
        if self.variant == "paper":
            signs = self._sign_exchanges(model, workers, stop=self.freeze_step)
        for period, begin, stop in self._average_phases():
            signs += self._sign_exchanges(model, workers, period, start=begin, stop=stop)
        return [*gradients, *signs]

    def _exchanges_of_code(self, model: Tensors, workers: int) -> list[Exchange]:
        """Return the exchanges of the variant ``code``: gradients in step 0 and at refreshes, signs in other steps."""
        all_exchanges = [self._gradient_exchange(model, stop=1)]
        for interval, begin, end in refresh_intervals(self.kappa):
            if begin >= self.freeze_step:
                break
            phase = {"start": begin, "stop": min(end, self.freeze_step)}
            all_exchanges.append(self._gradient_exchange(model, interval, **phase))
            half_period = 1
            while half_period < interval:  # signs at the odd multiples of 1, 2, 4, ..., half the interval
                all_exchanges += self._sign_exchanges(model, workers, 2 * half_period, offset=half_period, **phase)
                half_period *= 2
        for period, begin, stop in self._average_phases():
            all_exchanges += self._sign_exchanges(model, workers, period, start=begin, stop=stop)
        return all_exchanges

    def _average_phases(self) -> Iterable[tuple[int, int, int | None]]:
        """Yield (steps between averages, first step, end) of each phase after ``freeze_step``; the last has no end."""
        interval, begin = 1, self.freeze_step
        while interval < self.max_interval:
            yield interval, begin, begin + self.double_every
            interval, begin = 2 * interval, begin + self.double_every
        yield self.max_interval, begin, None

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of the bytes per step with the longest interval between averages, the last one."""
        return per_step_formula(signs_formula(workers), self.max_interval)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return how many numbers a worker stores: moments, last averaged parameters, sums of steps, and two errors."""
        # The variant ``code`` computes the sum of the steps since the last average from the parameters.
        states_per_parameter = 4 if self.variant == "code" else 5
        return states_per_parameter * elements(tensors_of(model)) + sum(chunk_lengths(model, workers))

    @override
    def _update_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the moments and of the step; averages become rare and are left out."""
        return UpdateWork(ElementwiseWork(kernel_bytes=134, kernels=15).on(tensors)) + self._step_work(tensors)

    @override
    def optimizer(self, params: Iterable[Any], **options: Any) -> optim.Method:
        make_schedule = optim.CodeSchedule if self.variant == "code" else optim.ZeroOneSchedule
        names = ("freeze_step", "kappa", "double_every", "max_interval", "variant")
        schedule = make_schedule(**{name: getattr(self, name) for name in names})
        return optim.ZeroOneAdamMethod(params, self.lr, schedule=schedule, **self._adam_arguments, **options)
