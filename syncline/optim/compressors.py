"""Compressors, which average tensors over the workers in fewer bytes: top-k, QSGD, Lp integers, DeMo's, one bit.

A tensor can be a gradient, a momentum, a difference of parameters or a factor. `syncline.optim.error_feedback` handles
the part of a tensor that a compressor leaves out.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import (
    Communicator,
    PackedIntegers,
    PackedSigns,
    SparsePairs,
    encoding_details,
    first_row_per_replica,
    flatten_rows,
    repeat_for_workers,
)
from syncline.comm.packed import pack, unpack
from syncline.costmodel.traffic.packing import SCALE_BYTES, kept_entries, sum_levels
from syncline.errors import SpecError
from syncline.optim.demo import Basis, Coefficients
from syncline.optim.largest import largest_indices
from syncline.optim.quantisers import mean_of_levels, most_levels, power_means, qsgd_levels

PAIRS = SparsePairs(index_bits=32, value_format="fp32")
"""Pairs of index and value of 8 bytes, for tensors of up to 2^32 entries."""

SIGNS = PackedSigns()


class CompressedMeans(NamedTuple):
    """The result of a compressed average of several tensors ``(R, *s)``.

    Attributes:
        means: mean over the workers of the compressed tensors.
        sent: the compressed tensor of each worker, from which error feedback computes the worker's error.
    """

    means: list[Tensor]
    sent: Sequence[Tensor]


class LazyTensors(Sequence[Tensor]):
    """A sequence of tensors that is computed at the first access."""

    def __init__(self, compute: Callable[[], list[Tensor]]) -> None:
        self._tensors = cache(compute)

    @override
    def __len__(self) -> int:
        return len(self._tensors())

    @override
    def __getitem__(self, index: Any) -> Any:
        return self._tensors()[index]


@runtime_checkable
class Compressor(Protocol):
    """A way to average tensors in fewer bytes than they have."""

    def check(self, workers: int) -> None:
        """Raise a SpecError if the compressor does not support so many workers; by default it supports any number."""
        return

    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        """Average tensors over the workers in compressed form, in as many calls as for a single tensor.

        Args:
            xs: tensors ``(R, *s)``.
            names: name of each tensor; tensors with different names get different random numbers.
            label: description of the tensors in the ledger.
        """
        ...


class EncodedTensor(NamedTuple):
    """A tensor ``(R, *s)`` as each worker sends it.

    Attributes:
        message: bytes ``(R, b)``.
        decode: function that returns the tensor ``(R, *s)`` that the bytes stand for.
    """

    message: Tensor
    decode: Callable[[], Tensor]


class GatheringCompressor(Compressor):
    """The base of compressors by which each worker gathers, decodes and averages the tensors of all workers."""

    @abstractmethod
    def encode(self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int) -> list[EncodedTensor]:
        """Return the messages by which workers send the tensors; the arguments are those of `mean`."""

    @abstractmethod
    def decode_mean(self, messages: Tensor, like: Tensor, t: int) -> Tensor:
        """Return the mean over M workers, ``(S, n)`` or ``(S, *s)``, of the tensors in their messages ``(S, M, b)``.

        Args:
            messages: messages of all workers of each of S replicas.
            like: a tensor with the shape ``(R, *s)``, dtype and device of the tensors.
        """

    @override
    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        encoded = self.encode(xs, names, comm, t)
        all_messages = torch.cat([message for message, _ in encoded], 1)
        gathered = comm.all_gather(all_messages, label=label, details=encoding_details(*xs))
        # All workers of a replica receive the same messages, so that one of them decodes for all.
        parts = first_row_per_replica(gathered, comm).split([message.shape[1] for message, _ in encoded], -1)
        means = []
        for part, x in zip(parts, xs, strict=True):
            means.append(_expand_to_workers(self.decode_mean(part, x, t), like=x))
        return CompressedMeans(means, LazyTensors(lambda: [decode() for _, decode in encoded]))


@dataclass(frozen=True)
class TopK(GatheringCompressor):
    """A compressor that sends the ``k = ceil(fraction n)`` largest entries by magnitude of a tensor of n entries.

    Workers send k pairs of index and value per tensor by an all-gather. Entries that a worker does not send count as 0
    in the mean.

    Args:
        fraction: share of the entries that are sent, in (0, 1].
        pairs: encoding of the pairs of index and value.

    Raises:
        SpecError: the fraction is out of range, or a tensor has more entries than an index can count.
    """

    kind: ClassVar[str] = "top-k"
    fraction: float = 0.01
    pairs: SparsePairs = PAIRS

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise SpecError("fraction", self.fraction, "a number in (0, 1]")

    @override
    def encode(self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int) -> list[EncodedTensor]:
        def decode(x: Tensor, index: Tensor, value: Tensor) -> Tensor:
            zeros = flatten_rows(torch.zeros_like(x))
            return zeros.scatter_(1, index, self.pairs.rounded(value)).view_as(x)

        encoded = []
        for x in xs:
            entries, n = flatten_rows(x), _entries_per_worker(x)
            index = largest_indices(entries, kept_entries(self.fraction, n))
            value = entries.gather(1, index)
            encoded.append(EncodedTensor(self.pairs.encode(index, value, n), partial(decode, x, index, value)))
        return encoded

    @override
    def decode_mean(self, messages: Tensor, like: Tensor, t: int) -> Tensor:
        replicas, workers = messages.shape[:2]
        n = _entries_per_worker(like)
        index, value = self.pairs.decode(messages, kept_entries(self.fraction, n), n, like.dtype)
        total = value.new_zeros(replicas, n).scatter_add_(1, index.flatten(1), value.flatten(1))
        return total.div_(workers)


@dataclass(frozen=True)
class LpMean(Compressor):
    """A compressor that rounds tensors to integers with a scale for all workers, so that an all-reduce can add them.

        S = max over the workers of M_p(x);   q = clamp(round(x s / (2 S)), -s, s);   mean = (sum of q) 2 S / (s P)

    M_p is the power mean of the magnitudes of a worker's tensor x, and P the number of workers.
    ``s = floor((2^bits - 1) / (2 P))``, so that no sum overflows, or less if the type of x cannot represent s. Workers
    send one fp32 number per tensor by an all-gather, then ``bits`` per entry by an all-reduce. Entries above 2 S are
    cut off. Sums of integers do not depend on their order.

    Args:
        bits: bits of a sum of integers, 2 to 31. Sums are packed into bytes if the number of bits divides 8, else into
            words of four bytes.
        p: exponent of the power mean that gives the scale, above 0; ``math.inf`` for the maximum. With 0, the geometric
            mean, large entries would be cut off where most entries are tiny.

    Raises:
        SpecError: a value is out of range, or there are too many workers for the bits.

    Source: Lion Cub, equation 1, with one scale for all workers.
    """

    kind: ClassVar[str] = "lp"
    bits: int = 8
    p: float = 1.0

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 31:
            raise SpecError("bits", self.bits, "a width from 2 to 31")
        if not self.p > 0:
            raise SpecError("p", self.p, "a number > 0; inf for the maximum")

    def check(self, workers: int) -> None:
        """Raise a SpecError if the sum of the workers' integers does not fit into ``bits``."""
        sum_levels(self.bits, workers)  # raises the error

    @override
    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        workers, packed = comm.world_size, PackedIntegers(self.bits)
        levels = [min(sum_levels(self.bits, workers), most_levels(x.dtype)) for x in xs]  # s of each tensor
        scales = power_means(xs, self.p).to(torch.float32)
        shared_scales = comm.all_gather(scales, label="scales").amax(1)  # S of each tensor, (R, number of tensors)

        # Round to multiples of the unit 2 S / s. Tensors with equal s and dtype share the computation of units.
        unit_columns: dict[tuple[int, torch.dtype], Tensor] = {}
        units, integers, words = [], [], []
        words_are_bytes = 8 % self.bits == 0  # only packing into longer words needs integers
        for i, (x, s) in enumerate(zip(xs, levels, strict=True)):
            key = (s, x.dtype)
            if key not in unit_columns:
                unit_columns[key] = (shared_scales * (2 / s)).to(x.dtype)
            unit = unit_columns[key][:, i : i + 1]
            q = (flatten_rows(x) / unit).round_().clamp_(-s, s)
            if x.device.type != "cpu" or not (unit > 0).all():  # on a GPU this check would wait for the device
                q = torch.where(unit > 0, q, 0.0)
            units.append(unit)
            integers.append(q)
            words.append(packed.encode((q if words_are_bytes else q.long()) + s))  # from 0 to 2 s

        summed = comm.all_reduce(torch.cat(words, 1), op="sum", label=label, details=encoding_details(*xs))
        parts = first_row_per_replica(summed, comm).split([w.shape[1] for w in words], -1)
        means = []
        for part, x, unit, s in zip(parts, xs, units, levels, strict=True):
            sum_dtype = torch.promote_types(x.dtype, torch.float32)  # half precision cannot represent a sum
            integer_dtype = sum_dtype if self.bits <= FP32_INTEGER_BITS else torch.int64
            total = packed.decode(part, _entries_per_worker(x), integer_dtype).sub_(s * workers).to(sum_dtype)
            mean = total.mul_(first_row_per_replica(unit, comm)).div_(workers).to(x.dtype)
            means.append(_expand_to_workers(mean, like=x))

        def sent_tensors() -> list[Tensor]:
            return [(q * unit).view_as(x) for q, unit, x in zip(integers, units, xs, strict=True)]

        return CompressedMeans(means, LazyTensors(sent_tensors))


FP32_INTEGER_BITS = 24
"""Bits of the largest integers that single precision represents exactly."""


@dataclass(frozen=True)
class QSGD(GatheringCompressor):
    """QSGD: entries are rounded at random, without bias, to multiples of a fraction of the tensor's norm ``|x|``.

        q = floor(s x / |x| + u), u uniform in [0, 1);   decoded: q |x| / s;   s = 2^(bits - 1) - 1

    Workers send one fp32 number and n integers per tensor by an all-gather, without the paper's entropy coding.
    The random numbers do not depend on how workers are distributed over processes. The variance of the rounding
    is up to ``min(n / s^2, sqrt(n) / s) |x|^2``; if it is above ``|x|^2``, error feedback would amplify it.

    Args:
        bits: bits of an integer with its sign, 2 to 16.

    Raises:
        SpecError: the number of bits is out of range.

    Source: QSGD (Alistarh et al., 2017), section 3.1 and Lemma 3.1.
    """

    kind: ClassVar[str] = "qsgd"
    bits: int = 4

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise SpecError("bits", self.bits, "a width from 2 to 16")

    @property
    def levels(self) -> int:
        """Return s, the number of levels on one side of zero."""
        return int(2 ** (self.bits - 1) - 1)

    @override
    def encode(self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int) -> list[EncodedTensor]:
        def decode(x: Tensor, q: Tensor, unit: Tensor) -> Tensor:
            # The mean over a group of one worker, (R, 1, n), is this worker's tensor.
            return mean_of_levels(q.unsqueeze(1), unit.unsqueeze(1), self.levels).view_as(x)

        encoded = []
        for x, name in zip(xs, names, strict=True):
            q, norm = qsgd_levels(flatten_rows(x), self.levels, comm.local_workers, "qsgd", name, t)
            norm = norm.to(torch.float32)
            message = torch.cat([norm.contiguous().view(torch.uint8), pack(q, self.bits)], 1)
            encoded.append(EncodedTensor(message, partial(decode, x, q, self._unit(norm, x))))
        return encoded

    @override
    def decode_mean(self, messages: Tensor, like: Tensor, t: int) -> Tensor:
        norm = view_as_numbers(messages[..., :SCALE_BYTES], torch.float32)
        dtype = torch.uint8 if self.bits <= 8 else torch.int64
        q = unpack(messages[..., SCALE_BYTES:], self.bits, count=_entries_per_worker(like), dtype=dtype)
        return mean_of_levels(q, self._unit(norm, like), self.levels)

    def _unit(self, norm: Tensor, like: Tensor) -> Tensor:
        """Return ``|x| / s``, the value of one level, in the dtype of ``like``."""
        return norm.to(like.dtype) / self.levels


@dataclass(frozen=True)
class BlockTopK(GatheringCompressor):
    """A compressor that sends, as DeMo does, the k largest coefficients of each block in an orthonormal basis.

        c = top-k per block of T(x);   decoded: T^-1(c)

    T is the change of basis. Workers send k pairs of index and value per block by an all-gather. Coefficients that a
    worker does not send count as 0 in the mean.

    Args:
        k, chunk, basis, pairs: selection and encoding of the coefficients, see ``Coefficients``.

    Raises:
        SpecError: a value is out of range, or a block has more entries than an index can count.

    Source: DeMo, section 2.1.
    """

    kind: ClassVar[str] = "block-top-k"
    k: int = 32
    chunk: int = 64
    basis: Basis = "dct"
    pairs: SparsePairs = PAIRS

    def __post_init__(self) -> None:
        _ = self.coefficients  # raises an error for a value out of range

    @property
    def coefficients(self) -> Coefficients:
        """Return the selection of the coefficients of each tensor that are sent."""
        return Coefficients(self.k, self.chunk, self.basis, self.pairs)

    @override
    def encode(self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int) -> list[EncodedTensor]:
        return [EncodedTensor(*self.coefficients.encode(x, t)) for x in xs]

    @override
    def decode_mean(self, messages: Tensor, like: Tensor, t: int) -> Tensor:
        return self.coefficients.decode_mean(messages, like, t, average="all")


@dataclass(frozen=True)
class OneBit(GatheringCompressor):
    """A compressor to signs and one scale per tensor: ``sign(x) ||x||_1 / n`` for n entries, with ``sign(0) = +1``.

    It is the tensor of one magnitude that is nearest to x, so that the error is shorter than x.
    Workers send ``4 + ceil(n / 8)`` bytes per tensor by an all-gather.

    Source: Karimireddy et al., "Error Feedback Fixes SignSGD" (2019), Algorithm 1; Seide et al. (2014).
    """

    kind: ClassVar[str] = "one-bit"

    @override
    def encode(self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int) -> list[EncodedTensor]:
        def decode(x: Tensor, message: Tensor) -> Tensor:
            return self._decode(message, like=x).view_as(x)

        scales = power_means(xs, p=1.0).to(torch.float32).split(1, 1)
        encoded = []
        for x, scale in zip(xs, scales, strict=True):
            signs = SIGNS.encode(flatten_rows(x) >= 0)
            message = torch.cat([scale.contiguous().view(torch.uint8), signs], 1)
            encoded.append(EncodedTensor(message, partial(decode, x, message)))
        return encoded

    @override
    def decode_mean(self, messages: Tensor, like: Tensor, t: int) -> Tensor:
        return self._decode(messages, like).mean(1)

    def _decode(self, messages: Tensor, like: Tensor) -> Tensor:
        """Return the numbers ``(..., n)`` that bytes ``(..., b)`` encode, in the dtype of ``like (R, *s)``."""
        scale = view_as_numbers(messages[..., :SCALE_BYTES], torch.float32).to(like.dtype)
        signs = SIGNS.decode(messages[..., SCALE_BYTES:], count=_entries_per_worker(like), dtype=like.dtype)
        return signs * scale


def view_as_numbers(encoded: Tensor, dtype: torch.dtype) -> Tensor:
    """Return numbers of this type from their bytes ``(..., b)``, after a copy to an aligned address."""
    return encoded.clone(memory_format=torch.contiguous_format).view(dtype)


def _entries_per_worker(x: Tensor) -> int:
    """Return the number of entries of one worker's tensor in ``x (R, *s)``."""
    return math.prod(x.shape[1:])


def _expand_to_workers(x: Tensor, like: Tensor) -> Tensor:
    """Return a tensor per replica, ``(S, n)`` or ``(S, *s)``, for all workers in the shape of ``like (R, *s)``.

    The result is a read-only view.
    """
    return repeat_for_workers(x, like.shape[0]).view(like.shape)
