"""Specs of compressors, and the base of methods that can send through a compressor."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from syncline import optim
from syncline.costmodel import Exchange, TensorShape
from syncline.costmodel.compute.operations import Operation
from syncline.costmodel.compute.update_work import ElementwiseWork, UpdateWork, block_messages, largest_numbers
from syncline.costmodel.traffic.packing import (
    SCALE_BYTES,
    VALUE_BYTES,
    block_pairs_bytes,
    kept_entries,
    packed_bytes,
    pairs_bytes,
    sum_levels,
    whole_word_bytes,
)
from syncline.fields import ByKind, Spec, refusal
from syncline.methods.parts.method_spec import FP32_BYTES, MethodBase, Tensors, elements, or_object, tensors_of

TENSORS = "tensors"
"""Label of the calls of a compressor that send the tensors; their exchanges get the label of what is averaged."""


class CompressorBase(Spec):
    """The base of the specs of compressors.

    Args:
        error_feedback: whether each worker keeps what the compressor left out, and adds it to the next tensor.
    """

    source: ClassVar[str]
    """The paper that describes the compressor."""

    elementwise: ClassVar[ElementwiseWork] = ElementwiseWork()
    """Elementwise operations on the GPU, per number, that encode and decode a tensor and update its error."""

    kind: str
    error_feedback: bool = True

    @property
    def name(self) -> str:
        """Return the name of the compressor within a method's name, by default its kind."""
        return self.kind

    @abstractmethod
    def calls(self, tensor: TensorShape, workers: int) -> list[tuple[str, str, int]]:
        """Return (label, collective, bytes of one worker) for each call by which workers average a tensor."""

    def operations(self, tensors: Sequence[TensorShape]) -> tuple[Operation, ...]:
        """Return the kernels that encode and decode tensors, with their errors."""
        return self.elementwise.on(tensors)

    @property
    @abstractmethod
    def formula(self) -> str:
        """Return the formula of a worker's bytes for a tensor of ``n`` numbers."""

    @abstractmethod
    def build(self) -> optim.Compressor:
        """Build the compressor from the fields of this spec."""

    def exchanges(
        self,
        tensors: Sequence[TensorShape],
        workers: int,
        period: int,
        label: str,
        *,
        offset: int = 0,
        shares_call: bool = True,
    ) -> list[Exchange]:
        """Return the exchanges, one per collective call, in which workers average tensors of these shapes."""
        bytes_of_call: dict[tuple[str, str], int] = {}  # (label, collective) -> bytes of all tensors
        for tensor in tensors:
            for call_label, collective, nbytes in self.calls(tensor, workers):
                call = (call_label, collective)
                bytes_of_call[call] = bytes_of_call.get(call, 0) + nbytes
        exchanges = []
        for (call_label, collective), nbytes in bytes_of_call.items():
            sends_tensors = call_label == TENSORS  # other calls send scales, which are not encoded
            exchanges.append(Exchange(
                nbytes, period, label if sends_tensors else call_label, collective=collective, offset=offset,
                shares_call=shares_call, encoded_bytes=FP32_BYTES * elements(tensors) if sends_tensors else 0,
            ))  # fmt: skip
        return exchanges


class TopKCompressor(CompressorBase):
    """A compressor that sends the largest entries of each tensor, see `optim.TopK`.

    Args:
        fraction: share of the entries that are sent, in (0, 1].
        index_bits: bits of an index; 0 for as few bits as the tensor's size needs.
        value_format: number format of a value.
    """

    source = "top-k (Stich et al., 2018)"
    elementwise = ElementwiseWork(kernel_bytes=53, kernels=16)

    kind: Literal["top-k"] = "top-k"
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.01
    index_bits: Literal[0, 16, 32, 64] = 32
    value_format: Literal["fp32", "bf16", "fp16"] = "fp32"

    @override
    def operations(self, tensors: Sequence[TensorShape]) -> tuple[Operation, ...]:
        """Return the kernels that encode and decode tensors, with the choice of the largest entries."""
        return self.elementwise.on(tensors) + tuple(largest_numbers(tensor.elements) for tensor in tensors)

    @override
    def calls(self, tensor: TensorShape, workers: int) -> list[tuple[str, str, int]]:
        """Return one all-gather: k indices packed, then k values.

        Raises:
            SpecError: the index cannot tell a tensor's entries apart.
        """
        count = kept_entries(self.fraction, tensor.elements)
        nbytes = pairs_bytes(count, tensor.elements, self.index_bits, self.value_format, path="compressor.index_bits")
        return [(TENSORS, "all_gather", nbytes)]

    @property
    @override
    def formula(self) -> str:
        if not self.index_bits:
            return f"⌈{self.fraction:g} n⌉ (⌈log₂ n⌉ / 8 + {VALUE_BYTES[self.value_format]})"
        return f"{self.index_bits // 8 + VALUE_BYTES[self.value_format]} ⌈{self.fraction:g} n⌉"

    @override
    def build(self) -> optim.Compressor:
        return optim.TopK(self.fraction, _pair_encoding(self))


class LpCompressor(CompressorBase):
    """A compressor to integers that an all-reduce adds up; a tensor has one scale. See `optim.LpMean`.

    Args:
        bits: bits of a sum of integers, 2 to 31.
        p: exponent of the power mean of magnitudes that gives the scale; ``inf`` for their maximum.
    """

    source = "Lion Cub, equation 1"
    elementwise = ElementwiseWork(kernel_bytes=148, kernels=35)

    kind: Literal["lp"] = "lp"
    bits: int = Field(default=8, ge=2, le=31)
    p: Annotated[float, Field(gt=0, allow_inf_nan=True)] = 1.0

    @property
    @override
    def name(self) -> str:
        return f"l{self.p:g}"

    @override
    def calls(self, tensor: TensorShape, workers: int) -> list[tuple[str, str, int]]:
        """Return an all-gather of the scale, then an all-reduce of packed integers.

        Raises:
            SpecError: the sum of so many workers needs more bits, which the error names.
        """
        sum_levels(self.bits, workers, "compressor.bits")  # raises the error
        nbytes = whole_word_bytes(tensor.elements, self.bits)
        return [("scales", "all_gather", SCALE_BYTES), (TENSORS, "all_reduce", nbytes)]

    @property
    @override
    def formula(self) -> str:
        if self.bits == 8:
            return f"({SCALE_BYTES} + n)"
        if 8 % self.bits == 0:  # several integers in a byte
            return f"({SCALE_BYTES} + ⌈n / {8 // self.bits}⌉)"
        # Otherwise 32-bit words contain the integers.
        return f"({SCALE_BYTES} + 4 ⌈n / {32 // self.bits}⌉)"

    @override
    def build(self) -> optim.Compressor:
        return optim.LpMean(self.bits, self.p)


class QSGDCompressor(CompressorBase):
    """A compressor to multiples of a fraction of each tensor's norm, see `optim.QSGD`.

    Args:
        error_feedback: must be false, because the rounding noise can be larger than the tensor.
        bits: bits of an integer with its sign, 2 to 16.
    """

    source = "QSGD (Alistarh et al., 2017)"
    elementwise = ElementwiseWork(kernel_bytes=466, kernels=62)

    kind: Literal["qsgd"] = "qsgd"
    error_feedback: bool = False
    bits: int = Field(default=4, ge=2, le=16)

    @override
    def calls(self, tensor: TensorShape, workers: int) -> list[tuple[str, str, int]]:
        """Return the collective calls of an average: an all-gather of the norm and the integers."""
        return [(TENSORS, "all_gather", SCALE_BYTES + packed_bytes(tensor.elements, self.bits))]

    @property
    @override
    def formula(self) -> str:
        return f"({SCALE_BYTES} + ⌈{self.bits} n / 8⌉)"

    @override
    def build(self) -> optim.Compressor:
        return optim.QSGD(self.bits)


class BlockTopKCompressor(CompressorBase):
    """A compressor that sends the largest coefficients of blocks in an orthonormal basis, see `optim.BlockTopK`.

    Args:
        k: number of coefficients that are sent per block.
        chunk: largest length of a block along each dimension, in elements.
        basis: ``dct``; ``random``, which changes in each step; or ``identity``, which sends elements.
        index_bits: bits of an index; 0 for as few bits as the block's size needs.
        value_format: number format of a value.
    """

    source = "DeMo, section 2.1"

    kind: Literal["block-top-k"] = "block-top-k"
    k: int = Field(default=32, ge=1)
    chunk: int = Field(default=64, ge=1)
    basis: Literal["dct", "random", "identity"] = "dct"
    index_bits: Literal[0, 16, 32, 64] = 32
    value_format: Literal["fp32", "bf16", "fp16"] = "fp32"

    @override
    def operations(self, tensors: Sequence[TensorShape]) -> tuple[Operation, ...]:
        """Return the kernels that transform and choose the coefficients of blocks, as DeMo does."""
        return block_messages(tensors, self.k, self.chunk, has_basis=self.basis != "identity")

    @override
    def calls(self, tensor: TensorShape, workers: int) -> list[tuple[str, str, int]]:
        """Return one all-gather: the indices of all blocks packed, then their values.

        Raises:
            SpecError: the index cannot tell a block's entries apart.
        """
        nbytes = block_pairs_bytes(
            tensor.shape, self.k, self.chunk, self.index_bits, self.value_format, path="compressor.index_bits"
        )
        return [(TENSORS, "all_gather", nbytes)]

    @property
    @override
    def formula(self) -> str:
        """Return the formula of the bytes of a matrix of n numbers whose sides are multiples of ``chunk``."""
        block_shape = (self.chunk, self.chunk)
        num_pairs = min(self.k, self.chunk**2)
        block_bytes = block_pairs_bytes(block_shape, self.k, self.chunk, self.index_bits, self.value_format)
        return f"{block_bytes / num_pairs:g} × {num_pairs} n / {self.chunk}²"  # bytes per pair × pairs in all blocks

    @override
    def build(self) -> optim.Compressor:
        return optim.BlockTopK(self.k, self.chunk, self.basis, _pair_encoding(self))


def _pair_encoding(compressor: TopKCompressor | BlockTopKCompressor) -> Any:
    """Return the encoding of a compressor's pairs of index and value."""
    from syncline.comm import SparsePairs

    return SparsePairs(compressor.index_bits, compressor.value_format)


class OneBitCompressor(CompressorBase):
    """A compressor to signs and one scale per tensor, see `optim.OneBit`."""

    source = "EF-SignSGD (Karimireddy et al., 2019)"
    elementwise = ElementwiseWork(kernel_bytes=110, kernels=35)

    kind: Literal["one-bit"] = "one-bit"

    @override
    def calls(self, tensor: TensorShape, workers: int) -> list[tuple[str, str, int]]:
        """Return one all-gather of scale and packed signs."""
        return [(TENSORS, "all_gather", SCALE_BYTES + packed_bytes(tensor.elements, bits=1))]

    @property
    @override
    def formula(self) -> str:
        return f"({SCALE_BYTES} + ⌈n / 8⌉)"

    @override
    def build(self) -> optim.Compressor:
        return optim.OneBit()


CompressorSpec = Annotated[
    TopKCompressor | LpCompressor | QSGDCompressor | BlockTopKCompressor | OneBitCompressor,
    ByKind(),
    or_object("syncline.optim:Compressor"),
]


class CompressibleBase(MethodBase):
    """The base of methods that can send through a ``compressor``.

    Args:
        compressor: compressor of the tensors that are sent, see `syncline.optim.Compressor`; by default none.
    """

    compressor: CompressorSpec | None = None

    @model_validator(mode="after")
    def _check_compressor(self) -> Self:
        """Raise an error for a compressor with a wire format, or for QSGD with error feedback, whose error can grow."""
        if self.compressor and self.wire_format != "dense":
            raise refusal("wire", self.wire_format, "'dense' with a compressor, which has its own format")
        if self.compressor and self.compressor.kind == "qsgd" and self.compressor.error_feedback:
            expected = "false for qsgd, whose noise can be larger than the values that it rounds, and which has no bias"
            raise refusal("compressor.error_feedback", True, expected)
        return self

    @property
    @override
    def same_for_any_group(self) -> bool:
        """Return whether traffic is the same for any number of workers: not if a compressor sums integers."""
        return self.compressor is None or self.compressor.kind != "lp"

    @property
    def _suffix(self) -> str:
        """Return the end of the method's name that tells the compressor, such as ``-top-k``, or an empty text."""
        return f"-{self.compressor.name}" if self.compressor else ""

    def _average_exchanges(
        self, tensors: Sequence[TensorShape], workers: int, period: int, label: str, offset: int = 0
    ) -> list[Exchange]:
        """Return the exchanges that average tensors of these shapes every ``period`` steps, compressed or not."""
        if self.compressor:
            return self.compressor.exchanges(tensors, workers, period, label, offset=offset)
        return [self._plain_exchange(elements(tensors), period, label, offset=offset)]

    @override
    def traffic_formula(self, workers: int) -> str:
        """Return the formula of the bytes per step; with a compressor, it sums over tensors of n numbers each."""
        if not self.compressor:
            return super().traffic_formula(workers)
        texts = []
        for period, count in Counter(self._sent_periods()).items():  # workers send ``count`` states with this period
            factor = f"{count} " if count > 1 else ""
            divisor = f" / {period}" if period > 1 else ""
            texts.append(f"{factor}Σ {self.compressor.formula}{divisor}")
        return " + ".join(texts)

    @override
    def _step_work(self, tensors: Sequence[TensorShape]) -> UpdateWork:
        """Return the operations of the step, and those that compress what workers send, once per period."""
        work = super()._step_work(tensors)
        if self.compressor:
            compression = UpdateWork(messages=self.compressor.operations(self._compressed_tensors(tensors)))
            for period in self._sent_periods():
                work += compression.every(period)
        return work

    @abstractmethod
    def _sent_periods(self) -> Iterable[int]:
        """Return the period, in steps, of each state that is sent."""

    def _compressor_elements(self, tensors: Sequence[TensorShape], *, reference: bool) -> int:
        """Return how many numbers a worker stores to send these tensors through the compressor.

        They are the errors of error feedback and, with ``reference``, the references of `optim.CompressedAverages`.
        """
        if not self.compressor:
            return 0
        tensors_stored = int(self.compressor.error_feedback) + int(reference)
        return tensors_stored * elements(tensors)

    @override
    def error_feedback_elements(self, model: Tensors, workers: int) -> int:
        """Return the number of errors that a worker stores for error feedback: one per compressed element."""
        return self._compressor_elements(self._compressed_tensors(tensors_of(model)), reference=False)

    def _compressed_tensors(self, tensors: Sequence[TensorShape]) -> Sequence[TensorShape]:
        """Return the shapes of the tensors that are sent through the compressor, by default those of all parameters."""
        return tensors

    def _compressor_options(self) -> dict[str, Any]:
        """Return the arguments of `optim.Method` for averages through the compressor, by name."""
        if not self.compressor:
            return {}
        return {"compressor": self.compressor.build(), "error_feedback": self.compressor.error_feedback}
