"""What methods share that average the gradient in every step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from syncline.costmodel import Exchange
from syncline.methods.base import Tensors, tensors_of
from syncline.methods.compressors import CompressibleBase

if TYPE_CHECKING:
    from syncline.comm import Communicator
    from syncline.optim import Method
    from syncline.optim.base import UpdateRule


class DataParallelBase(CompressibleBase):
    """The gradient is averaged in every step, through a compressor if there is one."""

    family: ClassVar[str] = "data parallel"

    @property
    def sends_in_backward(self) -> bool:
        """A gradient, unless it is compressed."""
        return not self.compressor

    def exchanges(self, model: Tensors, workers: int) -> list[Exchange]:
        """One gradient per step, which is ready tensor by tensor during the backward pass unless it is compressed."""
        exchanges = self._exchange(tensors_of(model), workers, 1, "gradient")
        return [replace(exchange, in_backward=self.sends_in_backward) for exchange in exchanges]

    def _sent_periods(self) -> Iterable[int]:
        return [1]

    def _with_rule(self, params: Iterable[Any], rule: UpdateRule, comm: Communicator, worker_axis: bool) -> Method:
        from syncline.optim import DDP

        reducer = {"reducer": self.compressor.reducer()} if self.compressor else {}
        return DDP(params, self.lr, rule, **reducer, **self._common(comm, worker_axis))
