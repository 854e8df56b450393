"""Compressors: the mean of the workers' tensors, of which only a part travels.

A compressor knows nothing of what it compresses: gradients, momenta, differences of parameters, factors. What becomes
of the part that did not travel is for its user to say (``error_feedback``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import (
    Communicator,
    PackedIntegers,
    PackedSigns,
    SparsePairs,
    encoded_from,
    first_rows,
    flat,
    for_all,
)
from syncline.comm.packed import pack, unpack
from syncline.costmodel.traffic.packing import SCALE_BYTES, kept_entries, packed_bytes, sum_levels
from syncline.errors import SpecError
from syncline.optim.demo import Basis, Coefficients
from syncline.optim.largest import largest
from syncline.optim.quantisers import drawn, mean_of, most_levels, power_means

PAIRS = SparsePairs(32, "fp32")
"""8 bytes per entry, of tensors of up to 2^32."""

SIGNS = PackedSigns()


class CompressedMeans(NamedTuple):
    """The mean of the workers' compressed tensors, and each row's own, for each tensor ``(R, *s)``."""

    means: list[Tensor]
    own: Sequence[Tensor]


class LazyTensors(Sequence[Tensor]):
    """Tensors that are made at the first access; without error feedback they are never made."""

    def __init__(self, compute: Callable[[], list[Tensor]]) -> None:
        self._made = cache(compute)

    @override
    def __len__(self) -> int:
        return len(self._made())

    @override
    def __getitem__(self, place: Any) -> Any:
        return self._made()[place]


@runtime_checkable
class Compressor(Protocol):
    """A way to average tensors in fewer bytes than they have."""

    def check(self, workers: int) -> None:
        """Refuse a group that is too large for the compressor; by default none is."""
        return

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes that one worker sends for a tensor of this shape."""
        ...

    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        """Average all tensors in the calls of one tensor.

        Args:
            xs: tensors ``(R, *s)``.
            names: name of each tensor; tensors with different names get different random numbers.
            comm: the group of workers.
            t: number of the step.
            label: description of the tensors in the ledger.
        """
        ...


@dataclass(frozen=True)
class TopK(Compressor):
    """Selection of the ``k = ceil(fraction n)`` largest entries of each tensor by magnitude, as (index, value) pairs.

    What travels: an all-gather of ``k`` pairs per tensor. The mean is over all workers, senders or not.

    Args:
        fraction: share of the entries that are sent, in (0, 1].
        pairs: encoding of the pairs of index and value.

    Raises:
        SpecError: for a fraction out of range; in use, for tensors whose indices are too wide.
    """

    kind: ClassVar[str] = "top-k"
    fraction: float = 0.01
    pairs: SparsePairs = PAIRS

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise SpecError("fraction", self.fraction, "a number in (0, 1]")

    def num_kept(self, count: int) -> int:
        """Return k, the number of entries sent; see ``kept_entries``.

        >>> TopK(0.07).num_kept(100), TopK(0.01).num_kept(3)
        (7, 1)
        """
        return kept_entries(self.fraction, count)

    @override
    def nbytes(self, shape: tuple[int, ...]) -> int:
        count = math.prod(shape)
        return self.pairs.nbytes(self.num_kept(count), count)

    @override
    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        chosen = [
            largest(flat(x), self.num_kept(_count(x))) for x in xs
        ]  # in order, so that equal sets are equal bytes
        values = [flat(x).gather(1, index) for x, index in zip(xs, chosen, strict=True)]
        encoded = [self.pairs.encode(i, v, _count(x)) for i, v, x in zip(chosen, values, xs, strict=True)]
        parts = _gathered(encoded, xs, comm, label)
        means = [_to_rows(self._sum(part, x).div_(comm.world_size), x) for part, x in zip(parts, xs, strict=True)]
        sent = LazyTensors(
            lambda: [
                flat(torch.zeros_like(x)).scatter_(1, index, self.pairs.rounded(value)).view_as(x)
                for x, index, value in zip(xs, chosen, values, strict=True)
            ]
        )
        return CompressedMeans(means, sent)

    def _sum(self, encoded: Tensor, like: Tensor) -> Tensor:
        """Return the bytes ``(S, M, b)`` to the sum over M of the sparse tensors, ``(S, n)``."""
        count = _count(like)
        index, value = self.pairs.decode(encoded, self.num_kept(count), count, like.dtype)
        return value.new_zeros(encoded.shape[0], count).scatter_add_(1, index.flatten(1), value.flatten(1))


@dataclass(frozen=True)
class LpMean(Compressor):
    """Integers in one scale per tensor that all workers share, so that they can be added on the way.

        S = max over the workers of M_p(x);   q = clamp(round(x s / (2 S)), -s, s);   mean = (sum of q) 2 S / (s P)

    with ``s = floor((2^bits - 1) / (2 P))``, or less where the tensor's type cannot count so far, so that no sum
    overflows. What travels: an all-gather of one fp32 per
    tensor (a maximum, at half the latencies of an all-reduce), then one all-reduce of ``bits`` per number. An entry
    above twice the scale is cut off. Nothing is summed in floating point: the mean has the same bits in every order.

    Args:
        bits: bits of a sum of integers, 2 to 31. Sums are packed into bytes if the number of bits divides 8, else into
            words of four bytes.
        p: exponent of the power mean that gives the scale, above 0; ``math.inf`` for the maximum. It is not 0, because
            large entries would be cut off if most entries are tiny.

    Raises:
        SpecError: for a value out of range; in use, for too many workers.

    Source: Lion Cub, equation 1, there on one worker's own scale.
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
        """Refuse a group whose sum of one level per worker has no room in ``bits``."""
        sum_levels(self.bits, workers)

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of scale and integers, see ``Compressor.nbytes``."""
        return SCALE_BYTES + PackedIntegers(self.bits).nbytes(math.prod(shape))

    @override
    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        workers, packed = comm.world_size, PackedIntegers(self.bits)
        counted = [min(sum_levels(self.bits, workers), most_levels(x.dtype)) for x in xs]
        scales = power_means(xs, self.p).to(torch.float32)
        shared = comm.all_gather(scales, label="scales").amax(1)
        kinds = list(zip(counted, (x.dtype for x in xs), strict=True))
        of_kinds = {(n, dtype): (shared * (2 / n)).to(dtype) for n, dtype in kinds}
        units = [of_kinds[kind][:, i : i + 1] for i, kind in enumerate(kinds)]
        integers = [_rounded(flat(x), unit, n) for x, unit, n in zip(xs, units, counted, strict=True)]
        words = [packed.encode(_counting(q, self.bits) + n) for q, n in zip(integers, counted, strict=True)]
        summed = comm.all_reduce(torch.cat(words, 1), op="sum", label=label, details=encoded_from(*xs))
        means = []
        parts = first_rows(summed, comm).split([w.shape[1] for w in words], -1)
        for part, x, unit, n in zip(parts, xs, units, counted, strict=True):
            # A sum can be more than half precision holds, though the mean is not.
            wide = torch.promote_types(x.dtype, torch.float32)
            exact = wide if self.bits <= COUNTED_BITS else torch.int64
            total = (packed.decode(part, _count(x), exact).sub_(n * workers)).to(wide)
            means.append(_to_rows(total.mul_(first_rows(unit, comm)).div_(workers).to(x.dtype), x))
        sent = LazyTensors(lambda: [(q * u).view_as(x) for q, u, x in zip(integers, units, xs, strict=True)])
        return CompressedMeans(means, sent)


COUNTED_BITS = 24
"""Of integers that single precision holds."""


@dataclass(frozen=True)
class QSGD(Compressor):
    """Levels of a tensor's Euclidean norm, rounded at random so that the expectation is exact.

        q = floor(s x / |x| + u), u uniform in [0, 1);   what arrives is q |x| / s, with s = 2^(bits - 1) - 1

    What travels: an all-gather of one fp32 and n integers of ``bits`` per tensor, without the paper's entropy coding.
    The noise is the same in every world. Its variance is up to ``min(n / s^2, sqrt(n) / s) |x|^2``: where that is above
    1, error feedback would only let it grow.

    Args:
        bits: bits of an integer with its sign, 2 to 16.

    Raises:
        SpecError: for another width.

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

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of norm and integers, see ``Compressor.nbytes``."""
        return SCALE_BYTES + packed_bytes(math.prod(shape), self.bits)

    @override
    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        integers, units, encoded = [], [], []
        for x, name in zip(xs, names, strict=True):
            q, norm = drawn(flat(x), self.levels, comm.local_workers, "qsgd", name, t)
            norm = norm.to(torch.float32)
            encoded.append(torch.cat([norm.contiguous().view(torch.uint8), pack(q, self.bits)], 1))
            integers.append(q)
            units.append(self._unit(norm, x))
        parts = _gathered(encoded, xs, comm, label)
        means = [_to_rows(self._mean(part, x), x) for part, x in zip(parts, xs, strict=True)]
        alone = zip(integers, units, xs, strict=True)
        sent = LazyTensors(
            lambda: [mean_of(q.unsqueeze(1), u.unsqueeze(1), self.levels).view_as(x) for q, u, x in alone]
        )
        return CompressedMeans(means, sent)

    def _mean(self, encoded: Tensor, like: Tensor) -> Tensor:
        """Return the bytes ``(S, M, b)`` to the mean over M of what they say, ``(S, n)``."""
        norm = encoded[..., :SCALE_BYTES].clone(memory_format=torch.contiguous_format).view(torch.float32)
        q = unpack(encoded[..., SCALE_BYTES:], self.bits, _count(like), torch.uint8 if self.bits <= 8 else torch.int64)
        return mean_of(q, self._unit(norm, like), self.levels)

    def _unit(self, norm: Tensor, like: Tensor) -> Tensor:
        """Return the value of one level."""
        return norm.to(like.dtype) / self.levels


@dataclass(frozen=True)
class BlockTopK(Compressor):
    """DeMo's components of any tensor: of each block the k largest coefficients in an orthonormal basis.

        c = top-k per block of T(x);   what arrives is T^-1(c), and the mean is over all workers, senders or not

    What travels: an all-gather of k (index, value) pairs per block. With error feedback the error is what DeMo leaves
    in a momentum whose sent part is taken out in full.

    Args:
        k: number of coefficients that are sent per block.
        chunk: largest length of a block along a dimension, see ``Coefficients``.
        basis: ``dct``, ``random`` or ``identity``, see ``Coefficients``.
        pairs: encoding of the pairs of index and value.

    Raises:
        SpecError: for a value out of range; in use, for blocks whose indices are too wide.

    Source: DeMo, section 2.1.
    """

    kind: ClassVar[str] = "block-top-k"
    k: int = 32
    chunk: int = 64
    basis: Basis = "dct"
    pairs: SparsePairs = PAIRS

    def __post_init__(self) -> None:
        Coefficients(self.k, self.chunk, self.basis, self.pairs)

    @property
    def coefficients(self) -> Coefficients:
        """Return the selection of coefficients to send of each tensor."""
        return Coefficients(self.k, self.chunk, self.basis, self.pairs)

    @override
    def nbytes(self, shape: tuple[int, ...]) -> int:
        return self.coefficients.nbytes(shape)

    @override
    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        blocks = self.coefficients
        extracted = [blocks.extract(x, t) for x in xs]
        parts = _gathered([encoded for encoded, _ in extracted], xs, comm, label)
        means = [for_all(blocks.assemble(part, x, t, "all"), len(x)) for part, x in zip(parts, xs, strict=True)]
        return CompressedMeans(means, LazyTensors(lambda: [arrived() for _, arrived in extracted]))


@dataclass(frozen=True)
class OneBit(Compressor):
    """Signs and one scale per tensor, the mean of its magnitudes: ``sign(x) ||x||_1 / n``, with ``sign(0) = +1``.

    The nearest to x that has one magnitude: what is left of x is shorter than x, so that error feedback stays bounded.
    What travels: an all-gather of ``4 + ceil(n / 8)`` bytes per tensor.

    Source: Karimireddy et al., "Error Feedback Fixes SignSGD" (2019), Algorithm 1; Seide et al. (2014).
    """

    kind: ClassVar[str] = "one-bit"

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of scale and signs, see ``Compressor.nbytes``."""
        return SCALE_BYTES + SIGNS.nbytes(math.prod(shape))

    @override
    def mean(
        self, xs: Sequence[Tensor], names: Sequence[str], comm: Communicator, t: int, label: str
    ) -> CompressedMeans:
        positive = [flat(x) >= 0 for x in xs]
        scales = power_means(xs, 1.0).to(torch.float32).split(1, 1)
        encoded = [
            torch.cat([scale.contiguous().view(torch.uint8), SIGNS.encode(positive_row)], 1)
            for scale, positive_row in zip(scales, positive, strict=True)
        ]
        parts = _gathered(encoded, xs, comm, label)
        means = [_to_rows(self._numbers(part, x).mean(1), x) for part, x in zip(parts, xs, strict=True)]
        sent = LazyTensors(lambda: [self._numbers(part, x).view_as(x) for part, x in zip(encoded, xs, strict=True)])
        return CompressedMeans(means, sent)

    def _numbers(self, encoded: Tensor, like: Tensor) -> Tensor:
        """Return the bytes ``(..., b)`` to what they say, ``(..., n)``."""
        scale = encoded[..., :SCALE_BYTES].clone(memory_format=torch.contiguous_format).view(torch.float32)
        return SIGNS.decode(encoded[..., SCALE_BYTES:], _count(like), like.dtype) * scale.to(like.dtype)


def _counting(integers: Tensor, bits: int) -> Tensor:
    """Convert integers to a type that is packed in ``bits`` bits each."""
    return integers if 8 % bits == 0 else integers.long()


def _rounded(x: Tensor, unit: Tensor, levels: int) -> Tensor:
    """Return the nearest integers in units of ``unit (R, 1)``; nothing has a unit of zero and stays nothing."""
    q = (x / unit).round_().clamp_(-levels, levels)
    return q if x.device.type == "cpu" and (unit > 0).all() else torch.where(unit > 0, q, 0.0)


def _gathered(encoded: Sequence[Tensor], xs: Sequence[Tensor], comm: Communicator, label: str) -> Sequence[Tensor]:
    """Return the bytes of all workers for each tensor, ``(S, M, b)``, in one call."""
    everyone = comm.all_gather(torch.cat([*encoded], 1), label=label, details=encoded_from(*xs))
    return first_rows(everyone, comm).split([part.shape[1] for part in encoded], -1)


def _count(x: Tensor) -> int:
    return math.prod(x.shape[1:])


def _to_rows(x: Tensor, like: Tensor) -> Tensor:
    """Return ``(S, n)`` for every row, in the shape of ``like (R, *s)``. May be a read-only view."""
    return for_all(x, like.shape[0]).view(like.shape)
