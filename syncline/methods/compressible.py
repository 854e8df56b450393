"""The base of methods that can send through a compressor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator
from typing_extensions import override

from syncline.costmodel import Exchange, TensorShape
from syncline.methods.parts.compressors import CompressorSpec, check_compressor, compressed_formula
from syncline.methods.parts.method_spec import MethodBase, Tensors, elements, tensors_of

if TYPE_CHECKING:
    pass


class CompressibleBase(MethodBase):
    """A method that can send through a ``compressor``."""

    compressor: CompressorSpec | None = None

    @model_validator(mode="after")
    def _one_format(self) -> Self:
        check_compressor(self.compressor, self.travels_as)
        return self

    @property
    @override
    def same_for_any_group(self) -> bool:
        """Return whether traffic is the same for any number of workers: not if a compressor sums integers."""
        return self.compressor is None or self.compressor.kind != "lp"

    @property
    def _suffix(self) -> str:
        return f"-{self.compressor.name}" if self.compressor else ""

    def _exchange(
        self, tensors: Sequence[TensorShape], workers: int, period: int, label: str, offset: int = 0
    ) -> list[Exchange]:
        """Return the exchanges that average tensors of these shapes."""
        if self.compressor:
            return self.compressor.exchanges(tensors, workers, period, label, offset=offset)
        return [self._plain(elements(tensors), period, label, offset=offset)]

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of bytes per step; with a compressor, it has sums over the tensors of n numbers each."""
        if not self.compressor:
            return super().traffic_formula(workers)
        return compressed_formula((self.compressor, period) for period in self._sent_periods())

    @abstractmethod
    def _sent_periods(self) -> Iterable[int]:
        """Return the period of each copy of the parameters' shapes that is sent."""

    def _kept_errors(self, tensors: Sequence[TensorShape], *, reference: bool) -> int:
        """Return the number of elements that a compressor keeps: errors, and references if it sends differences."""
        if not self.compressor:
            return 0
        return elements(tensors) * (self.compressor.error_feedback + reference)

    @override
    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of elements of error feedback: one error per compressed element."""
        return self._kept_errors(self._compressed(tensors_of(model)), reference=False)

    def _compressed(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """Return the parameters, or states, that go through a compressor."""
        return tensors

    def _averaging(self) -> dict[str, Any]:
        """Return the options from which compressed averages are built."""
        if not self.compressor:
            return {}
        return {"compressor": self.compressor.build(), "error_feedback": self.compressor.error_feedback}
