"""LDAdam: data parallelism with Adam in a low-dimensional subspace of each matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Hardware, TensorShape, dion_rank
from syncline.costmodel.compute.layers import matches_patterns
from syncline.costmodel.compute.update_work import QR_FLOPS, UpdateWork
from syncline.fields import Positive, Rate
from syncline.methods.constructor import constructor
from syncline.methods.ddp import DataParallelBase
from syncline.methods.parts.method_spec import Presets, Tensors, elements, tensors_of
from syncline.methods.registry import register

if TYPE_CHECKING:
    from syncline.comm import Communicator


@register
class LDAdamSpec(DataParallelBase):
    """LDAdam: Adam's moments in a subspace of each matrix that moves in every step.

    What travels: one all-reduce of the gradient per step, ``4 N`` bytes in fp32. What is kept of a matrix m by n at
    rank r: ``2 r max(m, n) + r min(m, n)``, and ``m n`` with error feedback; of everything else Adam's moments.

    Args:
        rank_fraction: rank of the subspace as a share of the matrix's smaller side.
        rho: share of the momentum in the power iteration that moves the subspace.
        error_feedback: whether the parts of gradients and moments outside the subspace are added to the next gradient.
        layers: patterns of parameter names; only matching matrices are projected. By default, all matrices are.

    Source: LDAdam (Robert et al., 2025), Algorithms 1 and 2.
    """

    source: ClassVar[str] = "LDAdam (Robert et al., 2025)"

    presets: ClassVar[Presets] = {
        "ldadam": {"lr": 0.003},
    }

    kind: Literal["ldadam"] = "ldadam"
    rank_fraction: Annotated[float, Field(gt=0, le=1)] = 0.25
    rho: Rate = 0.908
    beta1: Rate = 0.908
    beta2: Rate = 0.99
    eps: Positive = 1e-8
    error_feedback: bool = True
    layers: tuple[str, ...] = ()

    @property
    @override
    def name(self) -> str:
        return self.label or f"ldadam{self._suffix}"

    def _projected(self, model: Tensors) -> list[TensorShape]:
        return [t for t in tensors_of(model) if t.is_matrix and matches_patterns(t.name, self.layers)]

    def _rank(self, tensor: TensorShape) -> int:
        return dion_rank(*tensor.sides, self.rank_fraction)

    @override
    def kept_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of moments, projections and errors.

        Projected matrices have low-rank moments, a projection and an error; other parameters have Adam's moments.
        """
        tensors, projected = tensors_of(model), self._projected(model)
        low = sum(self._rank(t) * (2 * max(t.sides) + min(t.sides)) for t in projected)
        owed = elements(projected) * self.error_feedback
        others = elements(tensors) - elements(projected)
        return low + owed + 2 * others + self._kept_errors(tensors, reference=False)

    @override
    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of the projections' remainders and of a compressor's errors."""
        return super().error_feedback_elements(model, workers) + elements(self._projected(model)) * self.error_feedback

    @override
    def added_update_s(self, model: Tensors, hardware: Hardware, delay: int = 0, stages: int = 1) -> float:
        """Return the seconds of a step's products and decomposition.

        A step has nine products of m n r (seven without error feedback), three products of the moments, and a QR.
        """
        work = UpdateWork()
        for tensor in self._projected(model):
            (m, n), r = sorted(tensor.sides), self._rank(tensor)
            products = (9 if self.error_feedback else 7) * 2.0 * m * n * r
            moments = 2.0 * r * r * (m + 2 * n)
            work += UpdateWork(products + moments, 0.0, QR_FLOPS * m * r * r)
        return work.seconds(hardware, 1)

    @override
    def build(self, params: Iterable[object], comm: Communicator | None, worker_axis: bool = True) -> optim.Method:
        rates = {"rho": self.rho, "beta1": self.beta1, "beta2": self.beta2, "eps": self.eps}
        rule = optim.ldadam(self.rank_fraction, **rates, error_feedback=self.error_feedback, layers=self.layers)
        return self._with_rule(params, rule, comm, worker_axis)


LDAdam = constructor(LDAdamSpec)
