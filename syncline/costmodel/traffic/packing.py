"""Bytes of what is packed for the wire: small integers, and pairs of an index and a value."""

from __future__ import annotations

import math

from syncline.costmodel.compute.tensors import largest_divisor
from syncline.errors import SpecError

VALUE_BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
"""A value's bytes by the name of its type."""

WORD_BITS = 32
"""Fields that do not fill a byte share a word of so many bits."""


SCALE_BYTES = 4
"""A scale or a norm travels as one fp32."""


def kept_entries(fraction: float, count: int) -> int:
    """How many of so many entries top-k keeps: ``ceil(fraction n)``, at least 1.

    What rounding adds to the product is no entry.
    """
    return max(1, math.ceil(fraction * count - 1e-9))


def packed_bytes(count: int, bits: int) -> int:
    """Bytes that ``count`` integers of ``bits`` bits take, end to end: ``ceil(count bits / 8)``."""
    return -(-count * bits // 8)


def field_bytes(count: int, bits: int) -> int:
    """Bytes of integers in fields that no word splits, so that words can be added.

    Bytes are the words where the width divides 8, else 32 bits.

    >>> field_bytes(5, 4), field_bytes(7, 5)
    (3, 8)
    """
    word = 8 if 8 % bits == 0 else WORD_BITS
    return -(-count // (word // bits)) * (word // 8)


def sum_levels(bits: int, workers: int, path: str = "bits") -> int:
    """The largest ``s`` such that the sum of all workers' integers in ``[-s, s]`` fits into so many bits.

    ``s = floor((2^bits - 1) / (2 P))``: each worker adds ``s``, so a sum is from 0 to ``2 P s``.

    Raises:
        SpecError: at ``path``; names the width that would do, if not even signs fit.

    >>> sum_levels(8, 8), sum_levels(8, 127), sum_levels(4, 4)
    (15, 1, 1)
    """
    levels = (2**bits - 1) // (2 * workers)
    if levels < 1:
        raise SpecError(path, bits, f"at least {(2 * workers).bit_length()} for sums over {workers} workers")
    return levels


def index_width(bits: int, entries: int, path: str = "index_bits") -> int:
    """Bits of an index that tells so many entries apart: ``bits``, or with 0 just enough, ``ceil(log2(entries))``.

    Raises:
        SpecError: at ``path``, if the width cannot tell them apart.
    """
    enough = max(1, (entries - 1).bit_length())
    if bits and bits < enough:
        raise SpecError(path, bits, f"at least {enough} bits for chunks of {entries} entries")
    return bits or enough


def pairs_bytes(pairs: int, entries: int, index_bits: int, value: str, path: str = "index_bits") -> int:
    """Bytes of so many (index, value) pairs out of ``entries``: all indices packed, then all values.

    Raises:
        SpecError: as for ``index_width``.

    >>> pairs_bytes(32, 4096, 64, "fp32"), pairs_bytes(32, 4096, 0, "bf16")  # DeMo's 12 bytes; 12 bits and 2 bytes
    (384, 112)
    """
    return packed_bytes(pairs, index_width(index_bits, entries, path)) + pairs * VALUE_BYTES[value]


def block_pairs_bytes(
    shape: tuple[int, ...], k: int, chunk: int, index_bits: int, value: str, path: str = "index_bits"
) -> int:
    """Bytes of k pairs of each block of a tensor: each dimension is cut by its largest divisor up to ``chunk``.

    Raises:
        SpecError: as for ``index_width``.

    >>> block_pairs_bytes((768, 64), 32, 64, 64, "fp32")  # twelve blocks
    4608
    """
    block = math.prod(largest_divisor(length, chunk) for length in shape)
    return pairs_bytes(math.prod(shape) // block * min(k, block), block, index_bits, value, path)
