"""Bytes of packed payloads: small integers, and (index, value) pairs."""

from __future__ import annotations

import math

from syncline.costmodel.compute.tensors import largest_divisor
from syncline.errors import SpecError

VALUE_BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a value by the name of its number format."""

WORD_BITS = 32
"""Bits of the word into which integers are packed if their width does not divide a byte."""

SCALE_BYTES = 4
"""Bytes of a scale or a norm, which travels as one fp32 value."""


def kept_entries(fraction: float, count: int) -> int:
    """Return the number of entries that top-k keeps of ``count``: ``ceil(fraction count)``, at least 1."""
    return max(1, math.ceil(fraction * count - 1e-9))  # a rounding error of the product adds no entry


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of ``count`` integers of ``bits`` bits, packed end to end: ``ceil(count bits / 8)``."""
    return -(-count * bits // 8)  # minus signs round up


def e3m0_bytes(count: int) -> int:
    """Return the bytes of ``count`` numbers of one sign bit and three exponent bits each, with their fp32 scale.

    >>> e3m0_bytes(1001)
    505
    """
    return SCALE_BYTES + packed_bytes(count, 4)


def whole_word_bytes(count: int, bits: int) -> int:
    """Return the bytes of ``count`` integers of ``bits`` bits, packed into words so that no word splits an integer.

    Such words can be added as a whole. A word has 8 bits if ``bits`` divides 8, else 32 bits.

    >>> whole_word_bytes(5, 4), whole_word_bytes(7, 5)
    (3, 8)
    """
    word_bits = 8 if 8 % bits == 0 else WORD_BITS
    num_words = -(-count // (word_bits // bits))  # rounded up
    return num_words * (word_bits // 8)


def sum_levels(bits: int, workers: int, path: str = "bits") -> int:
    """Return the largest ``s`` for which a sum of P workers' integers in ``[-s, s]`` fits into ``bits`` bits.

    ``s = floor((2^bits - 1) / (2 P))``, because each worker sends its integer plus ``s``, from 0 to ``2 s``.
    An error names the setting at ``path``.

    >>> sum_levels(8, 8), sum_levels(8, 127), sum_levels(4, 4)
    (15, 1, 1)
    """
    levels = (2**bits - 1) // (2 * workers)
    if levels < 1:
        raise SpecError(path, bits, f"at least {(2 * workers).bit_length()} for sums over {workers} workers")
    return levels


def bits_of_index(bits: int, entries: int, path: str = "index_bits") -> int:
    """Return the bits of an index into ``entries`` entries: ``bits``, or ``ceil(log2(entries))`` if ``bits`` is 0.

    An error names the setting at ``path``.
    """
    min_bits = max(1, (entries - 1).bit_length())
    if bits and bits < min_bits:
        raise SpecError(path, bits, f"at least {min_bits} bits for chunks of {entries} entries")
    return bits or min_bits


def pairs_bytes(pairs: int, entries: int, index_bits: int, value: str, path: str = "index_bits") -> int:
    """Return the bytes of ``pairs`` pairs, each a packed index into ``entries`` entries and a value.

    ``index_bits`` is as in `bits_of_index`, and ``value`` is a name of `VALUE_BYTES`.

    >>> pairs_bytes(32, 4096, 64, "fp32"), pairs_bytes(32, 4096, 0, "bf16")  # pairs of 12 bytes; of 28 bits
    (384, 112)
    """
    return packed_bytes(pairs, bits_of_index(index_bits, entries, path)) + pairs * VALUE_BYTES[value]


def block_pairs_bytes(
    shape: tuple[int, ...], k: int, chunk: int, index_bits: int, value: str, path: str = "index_bits"
) -> int:
    """Return the bytes of the k (index, value) pairs that top-k sends for each block of a tensor.

    A block's side is the largest divisor, up to ``chunk``, of the tensor's. Other arguments are those of `pairs_bytes`.

    >>> block_pairs_bytes((768, 64), 32, 64, 64, "fp32")  # twelve blocks
    4608
    """
    block_entries = math.prod(largest_divisor(length, chunk) for length in shape)
    num_blocks = math.prod(shape) // block_entries
    return pairs_bytes(num_blocks * min(k, block_entries), block_entries, index_bits, value, path)
