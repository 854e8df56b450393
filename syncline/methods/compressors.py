"""Compressors as specs, for methods that send through one."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.traffic.packing import (
    SCALE_BYTES,
    VALUE_BYTES,
    field_bytes,
    kept_entries,
    packed_bytes,
    pairs_bytes,
    sum_levels,
)
from syncline.fields import Spec, refusal
from syncline.methods.base import FP32_BYTES, MethodBase, Tensors, elements, from_name, tag, tensors_of

if TYPE_CHECKING:
    from syncline.optim import Compressor
    from syncline.optim.base import Reducer


class CompressorBase(Spec):
    """What every compressor has. ``error_feedback``: what is left out is sent later."""

    source: ClassVar[str]
    """The paper that it is from."""

    kind: str
    error_feedback: bool = True

    @property
    @abstractmethod
    def name(self) -> str:
        """How names of methods tell it."""

    @abstractmethod
    def calls(self, count: int, workers: int) -> list[tuple[str, str, int]]:
        """Label, collective and bytes of what one worker sends for a tensor of so many numbers, call by call.

        Labels may be empty: what is sent has a name.
        """

    @property
    @abstractmethod
    def formula(self) -> str:
        """Bytes of one tensor of ``n`` numbers."""

    @abstractmethod
    def build(self) -> Compressor:
        """The compressor."""

    def exchanges(
        self,
        tensors: Sequence[TensorShape],
        workers: int,
        period: int,
        label: str,
        *,
        offset: int = 0,
        joins: bool = True,
    ) -> list[Exchange]:
        """What the compressed tensors travel in: one exchange per call, none for no tensors."""
        per_tensor = [self.calls(tensor.elements, workers) for tensor in tensors]
        return [
            Exchange(
                sum(nbytes for *_, nbytes in calls),
                period,
                calls[0][0] or label,
                calls[0][1],
                offset,
                joins,
                encoded_bytes=0 if calls[0][0] else FP32_BYTES * elements(tensors),
            )
            for calls in zip(*per_tensor, strict=True)
        ]

    def reducer(self) -> Reducer:
        """The reducer of gradients that it makes."""
        from syncline.optim import CompressedMean

        return CompressedMean(self.build(), self.error_feedback)


class TopKCompressor(CompressorBase):
    """The largest entries of each tensor, as pairs of index and value."""

    source: ClassVar[str] = "top-k (Stich et al., 2018)"

    kind: Literal["top-k"] = "top-k"
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.01
    index_bits: Literal[0, 16, 32, 64] = 32
    value: Literal["fp32", "bf16", "fp16"] = "fp32"

    @property
    def name(self) -> str:
        """See ``CompressorBase.name``."""
        return "top-k"

    def calls(self, count: int, workers: int) -> list[tuple[str, str, int]]:
        """One all-gather: k indices packed, then k values.

        Raises:
            SpecError: if the index cannot tell a tensor's entries apart.
        """
        kept = kept_entries(self.fraction, count)
        nbytes = pairs_bytes(kept, count, self.index_bits, self.value, "compressor.index_bits")
        return [("", "all_gather", nbytes)]

    @property
    def formula(self) -> str:
        """See ``CompressorBase.formula``."""
        if not self.index_bits:
            return f"⌈{self.fraction:g} n⌉ (⌈log₂ n⌉ / 8 + {VALUE_BYTES[self.value]})"
        return f"{self.index_bits // 8 + VALUE_BYTES[self.value]} ⌈{self.fraction:g} n⌉"

    def build(self) -> Compressor:
        """See ``CompressorBase.build``."""
        from syncline.comm import SparsePairs
        from syncline.optim import TopK

        return TopK(self.fraction, SparsePairs(self.index_bits, self.value))


class LpCompressor(CompressorBase):
    """Integers in one scale per tensor that all workers share, summed on the way."""

    source: ClassVar[str] = "Lion Cub, equation 1"

    kind: Literal["lp"] = "lp"
    bits: int = Field(default=8, ge=2, le=31)
    p: Annotated[float, Field(gt=0, allow_inf_nan=True)] = 1.0

    @property
    def name(self) -> str:
        """See ``CompressorBase.name``."""
        return f"l{self.p:g}"

    def calls(self, count: int, workers: int) -> list[tuple[str, str, int]]:
        """The scale gathered, then one all-reduce of packed integers.

        Raises:
            SpecError: names the width that would do for so many workers.
        """
        sum_levels(self.bits, workers, "compressor.bits")
        return [("scales", "all_gather", SCALE_BYTES), ("", "all_reduce", field_bytes(count, self.bits))]

    @property
    def formula(self) -> str:
        """See ``CompressorBase.formula``."""
        if self.bits == 8:
            return f"({SCALE_BYTES} + n)"
        word = 1 if 8 % self.bits == 0 else 4
        return f"({SCALE_BYTES} + {'' if word == 1 else '4 '}⌈n / {8 * word // self.bits}⌉)"

    def build(self) -> Compressor:
        """See ``CompressorBase.build``."""
        from syncline.optim import LpMean

        return LpMean(self.bits, self.p)


class QSGDCompressor(CompressorBase):
    """Levels of each tensor's norm, rounded at random without bias."""

    source: ClassVar[str] = "QSGD (Alistarh et al., 2017)"

    kind: Literal["qsgd"] = "qsgd"
    error_feedback: bool = False
    bits: int = Field(default=4, ge=2, le=16)

    @property
    def name(self) -> str:
        """See ``CompressorBase.name``."""
        return "qsgd"

    def calls(self, count: int, workers: int) -> list[tuple[str, str, int]]:
        """One all-gather of norm and integers."""
        return [("", "all_gather", SCALE_BYTES + packed_bytes(count, self.bits))]

    @property
    def formula(self) -> str:
        """See ``CompressorBase.formula``."""
        return f"({SCALE_BYTES} + ⌈{self.bits} n / 8⌉)"

    def build(self) -> Compressor:
        """See ``CompressorBase.build``."""
        from syncline.optim import QSGD

        return QSGD(self.bits)


CompressorSpec = Annotated[
    Annotated[TopKCompressor, Tag("kind:top-k")]
    | Annotated[LpCompressor, Tag("kind:lp")]
    | Annotated[QSGDCompressor, Tag("kind:qsgd")],
    Discriminator(tag),
    BeforeValidator(from_name),
]


def check_compressor(compressor: CompressorSpec | None, wire: str) -> None:
    """Refuse two formats for the same thing, and a feedback that would grow."""
    if compressor is None:
        return
    if wire != "dense":
        raise refusal("wire", wire, "'dense' beside a compressor, which itself says what travels")
    if compressor.kind == "qsgd" and compressor.error_feedback:
        expected = "false for qsgd: its noise can be larger than what it rounds, and would be fed back; it has no bias"
        raise refusal("compressor.error_feedback", True, expected)


def compressed_formula(terms: Iterable[tuple[CompressorSpec, int]]) -> str:
    """Bytes per step of compressed tensors, from what each of them is sent through, and how often."""
    counts = Counter((compressor.formula, period) for compressor, period in terms)
    return " + ".join(
        (f"{n} " if n > 1 else "") + f"Σ {formula}" + (f" / {period}" if period > 1 else "")
        for (formula, period), n in counts.items()
    )


class CompressibleBase(MethodBase):
    """A method that can send through a ``compressor``."""

    compressor: CompressorSpec | None = None

    @model_validator(mode="after")
    def _one_format(self) -> Self:
        check_compressor(self.compressor, self.wire)
        return self

    @property
    def _suffix(self) -> str:
        return f"-{self.compressor.name}" if self.compressor else ""

    def _exchange(
        self, tensors: Sequence[TensorShape], workers: int, period: int, label: str, offset: int = 0
    ) -> list[Exchange]:
        """What it takes to average tensors of these shapes."""
        if self.compressor:
            return self.compressor.exchanges(tensors, workers, period, label, offset=offset)
        return [self._plain(elements(tensors), period, label, offset=offset)]

    def traffic_formula(self, workers: int) -> str:
        """See ``MethodBase.traffic_formula``; through a compressor, sums over the tensors of n numbers each."""
        if not self.compressor:
            return super().traffic_formula(workers)
        return compressed_formula((self.compressor, period) for period in self._sent_periods())

    @abstractmethod
    def _sent_periods(self) -> Iterable[int]:
        """The period of each copy of the parameters' shapes that is sent."""

    def _kept_errors(self, tensors: Sequence[TensorShape], *, reference: bool) -> int:
        """What a compressor keeps of tensors of these shapes: errors, and references if it sends differences."""
        if not self.compressor:
            return 0
        return elements(tensors) * (self.compressor.error_feedback + reference)

    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """See ``MethodBase.error_feedback_elements``: one error per number that goes through the compressor."""
        return self._kept_errors(self._compressed(tensors_of(model)), reference=False)

    def _compressed(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """What of these parameters, and of their states, goes through a compressor."""
        return tensors

    def _averaging(self) -> dict[str, Any]:
        """What compressed averages are built from."""
        if not self.compressor:
            return {}
        return {"compressor": self.compressor.build(), "error_feedback": self.compressor.error_feedback}
