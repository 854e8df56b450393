"""Numbers packed into bytes for sending: integers of any width, summable integers, signs, sparse vectors, floats."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.costmodel.traffic.packing import (
    SCALE_BYTES,
    bits_of_index,
    e3m0_bytes,
    packed_bytes,
    pairs_bytes,
    whole_word_bytes,
)
from syncline.errors import SpecError, require_one_of

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by their number of bytes."""


def pack(values: Tensor, bits: int) -> Tensor:
    """Pack integers in ``[0, 2**bits)``, the least significant bit first: ``(..., n) -> (..., ceil(n bits / 8))``.

    Values are not checked, because that would wait for the device.

    Args:
        values: integers ``(..., n)``, or bool for one bit; floats that hold integers for up to 8 bits.
        bits: 1 to 64; at 64 the integers are int64's own bits, sign included.
    """
    _check_width(bits)
    if 8 % bits == 0:  # no integer crosses the border of a byte
        one_byte_values = values.view(torch.uint8) if values.dtype == torch.bool else values.to(torch.uint8)
        return _join_fields(one_byte_values, bits)
    if _is_machine_type(bits):
        return values.to(WORDS[bits // 8]).contiguous().view(torch.uint8)
    shifts = torch.arange(bits, device=values.device)
    single_bits = ((values.unsqueeze(-1) >> shifts) & 1).to(torch.uint8).flatten(-2)
    return _join_fields(single_bits, bits=1)


def unpack(packed: Tensor, bits: int, count: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Unpack the bytes that ``pack`` returns to integers ``(..., count)`` of type ``dtype``."""
    _check_width(bits)
    if 8 % bits == 0:  # no integer crosses the border of a byte
        return look_up(packed, fields_of_bytes(bits, packed.device), count).to(dtype)
    if _is_machine_type(bits):
        # Copied, because a view as wider numbers must start at a multiple of their size.
        payload = packed[..., : count * bits // 8].clone(memory_format=torch.contiguous_format)
        words = payload.view(WORDS[bits // 8]).long()
        if bits < 64:  # a mask removes the copies of the highest bit, which `long` takes for a sign
            words &= 2**bits - 1
        return words.to(dtype)
    single_bits = look_up(packed, fields_of_bytes(1, packed.device), count * bits)
    weights = 1 << torch.arange(bits, device=packed.device)
    return (single_bits.unflatten(-1, (count, bits)).long() * weights).sum(-1).to(dtype)


def multiplier(bits: int, byteorder: str = sys.byteorder) -> int:
    """Return the factor by which a word is multiplied to move all its fields into its most significant byte.

    A word has f = ``8 // bits`` bytes, with one field of ``bits`` bits in each. Field i must move from bit ``8 i``
    (counted from the other end on big-endian machines) to bit ``8 (f - 1) + bits i``. The product holds each field at
    f positions that do not overlap, so nothing is carried into the most significant byte.
    """
    per_byte = 8 // bits
    if byteorder == "little":
        shifts = [8 * (per_byte - 1) - (8 - bits) * i for i in range(per_byte)]
    else:
        shifts = [(8 + bits) * i for i in range(per_byte)]
    factor = sum(1 << shift for shift in shifts)
    word_bits = 8 * per_byte
    is_negative = factor >= 1 << (word_bits - 1)  # torch's words are signed
    return factor - (1 << word_bits) if is_negative else factor


def padded_to(values: Tensor, multiple: int) -> Tensor:
    """Return ``(..., n)`` padded with zeros to the next multiple; the tensor itself if no padding is needed."""
    num_zeros = -values.shape[-1] % multiple
    return torch.nn.functional.pad(values, (0, num_zeros)) if num_zeros else values


def _join_fields(fields: Tensor, bits: int) -> Tensor:
    """Pack numbers of ``bits`` bits, one per byte ``(..., n)``, so that each byte has ``8 // bits`` of them.

    ``bits`` divides 8. A multiplication moves all fields of a word of ``8 // bits`` bytes into its most significant
    byte, see `multiplier`.
    """
    per_byte = 8 // bits
    if per_byte == 1:
        return fields
    fields = padded_to(fields, per_byte)
    one_byte_fields = fields.reshape(-1)
    if one_byte_fields.storage_offset() % per_byte:  # a view as wider words must start at a multiple of their size
        one_byte_fields = one_byte_fields.clone()
    words = one_byte_fields.view(WORDS[per_byte]) * multiplier(bits)
    most_significant = per_byte - 1 if sys.byteorder == "little" else 0
    joined_bytes = words.view(torch.uint8)[most_significant::per_byte].contiguous()
    return joined_bytes.view(*fields.shape[:-1], fields.shape[-1] // per_byte)


@functools.cache
def fields_of_bytes(bits: int, device: torch.device) -> Tensor:
    """Return the fields of every byte value, ``(256, 8 // bits)`` uint8, with ``bits`` dividing 8."""
    shifts = torch.arange(0, 8, bits, device=device)
    return ((torch.arange(256, device=device).unsqueeze(1) >> shifts) & (2**bits - 1)).to(torch.uint8)


def look_up(packed: Tensor, table: Tensor, count: int) -> Tensor:
    """Decode b bytes by a table that has f numbers for each byte value: ``(..., b)`` to the first ``count`` numbers.

    Args:
        packed: bytes, ``(..., b)``.
        table: numbers of one byte for each byte value, ``(256, f)``.
        count: number of numbers to return, at most ``b f``.

    Returns:
        Numbers ``(..., count)``, a view of all ``b f`` numbers.
    """
    if table.shape[1] == 1:  # a field of 8 bits is the byte itself
        return packed.view(table.dtype)[..., :count]
    whole_rows = table.view(WORDS[table.shape[1]]).view(256)  # a row is moved as one word
    fields = whole_rows.index_select(0, packed.reshape(-1).int()).view(table.dtype)
    return fields.view(*packed.shape[:-1], packed.shape[-1] * table.shape[1])[..., :count]


def _is_machine_type(bits: int) -> bool:
    """Return whether packed integers of this width lie in memory as an integer type of torch."""
    return bits % 8 == 0 and bits // 8 in WORDS and sys.byteorder == "little"


def _check_width(bits: int) -> None:
    """Raise a SpecError if a width of integers is not from 1 to 64 bits."""
    if not 1 <= bits <= 64:
        raise SpecError("bits", bits, "a width from 1 to 64")


@dataclass(frozen=True)
class PackedIntegers:
    """Integers in ``[0, 2**bits)``, several to a word; adding words adds their fields, as long as no sum overflows.

    Words are bytes if the width divides 8, else 32-bit words, the lowest field first; spare bits of a word stay zero.
    The width ``bits`` of a field is from 1 to 31.

    >>> PackedIntegers(4).nbytes(5), PackedIntegers(5).nbytes(7)
    (3, 8)
    """

    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 31:
            raise SpecError("bits", self.bits, "a width from 1 to 31")

    @property
    def word(self) -> torch.dtype:
        """Return the integer type of a word."""
        return torch.uint8 if 8 % self.bits == 0 else torch.int32

    @property
    def fields(self) -> int:
        """Return how many integers one word holds."""
        return 8 * self.word.itemsize // self.bits

    def nbytes(self, count: int) -> int:
        """Return the bytes of the words that hold ``count`` integers."""
        return whole_word_bytes(count, self.bits)

    def check_sum(self, largest: int, workers: int) -> None:
        """Raise a SpecError if the sum over ``workers`` of integers up to ``largest`` may overflow a field."""
        needed_bits = (largest * workers).bit_length()
        if needed_bits > self.bits:
            expected = f"at least {needed_bits} for sums of {workers} workers' integers up to {largest}"
            raise SpecError("bits", self.bits, expected)

    def encode(self, values: Tensor) -> Tensor:
        """Encode integers ``(..., n)`` of any type as words ``(..., ceil(n / fields))``; values are not checked."""
        if self.word == torch.uint8:
            return pack(values, self.bits)
        # In 32-bit words, ``padded_values[..., i]`` is field i of every word.
        padded_values = padded_to(values.to(self._field_dtype), self.fields).unflatten(-1, (-1, self.fields))
        words = padded_values[..., -1].to(torch.int32)
        for field in range(self.fields - 2, -1, -1):  # Horner's rule for sum_i field_i 2^(bits i)
            words = torch.add(padded_values[..., field], words, alpha=2**self.bits)
        return words

    def decode(self, words: Tensor, count: int, dtype: torch.dtype = torch.int64, out: Tensor | None = None) -> Tensor:
        """Decode words ``(..., ceil(count / fields))``, or sums of words, to integers ``(..., count)``.

        With ``out``, a tensor of the result's shape, the result is written there in the type of ``out``, whatever
        ``dtype`` is: a large tensor takes longer to allocate than to decode.
        """
        if self.word == torch.uint8:
            fields = look_up(words, fields_of_bytes(self.bits, words.device), count)
        else:
            unpacked = torch.empty(*words.shape, self.fields, dtype=self._field_dtype, device=words.device)
            for field in range(self.fields):
                unpacked[..., field] = (words >> self.bits * field).bitwise_and_(2**self.bits - 1)
            fields = unpacked.flatten(-2)[..., :count]
        return fields.to(dtype) if out is None else out.copy_(fields)

    @property
    def _field_dtype(self) -> torch.dtype:
        """Return the smallest integer type that holds a field."""
        if self.bits <= 8:
            return torch.uint8
        return torch.int16 if self.bits <= 15 else torch.int32  # signed types, whose highest bit is the sign


@dataclass(frozen=True)
class PackedSigns:
    """Values of plus or minus one, one bit each; there is no zero, so the sender decides the sign of a zero.

    >>> PackedSigns().nbytes(9)
    2
    """

    def nbytes(self, count: int) -> int:
        """Return ``ceil(count / 8)``, the bytes of ``count`` signs."""
        return packed_bytes(count, 1)

    def encode(self, positive: Tensor) -> Tensor:
        """Encode a mask of positive entries, ``(..., n)`` bool, as bytes ``(..., nbytes(n))``."""
        return pack(positive, bits=1)

    def decode(self, encoded: Tensor, count: int, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """Decode bytes ``(..., nbytes(count))`` to plus and minus one ``(..., count)`` of type ``dtype``.

        With ``out``, a tensor of the result's shape, the result is written there in the type of ``out``, whatever
        ``dtype`` is: a large tensor takes longer to allocate than to decode.
        """
        signs = look_up(encoded, _signs_of_bytes(encoded.device), count)
        return signs.to(dtype) if out is None else out.copy_(signs)


@functools.cache
def _signs_of_bytes(device: torch.device) -> Tensor:
    """Return a table of the eight signs that each byte value stands for, ``(256, 8)`` int8 of plus and minus one."""
    return fields_of_bytes(1, device).view(torch.int8) * 2 - 1


VALUE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


@dataclass(frozen=True)
class SparsePairs:
    """Pairs of an index and a value, as bytes: first all indices, then all values.

    Args:
        index_bits: 64, 32 or 16; 0 for the smallest width that indexes a chunk, ``ceil(log2(chunk))``.
        value_format: ``fp32``, ``bf16`` or ``fp16`` (``fp64`` for tests in double precision).

    >>> SparsePairs(64, "fp32").nbytes(pairs=32, chunk=4096)  # DeMo's 12 bytes per coefficient
    384
    >>> SparsePairs(0, "bf16").nbytes(pairs=32, chunk=4096)  # 12 bits and 2 bytes
    112
    """

    index_bits: int = 64
    value_format: str = "fp32"

    def __post_init__(self) -> None:
        if self.index_bits not in (0, 16, 32, 64):
            raise SpecError("index_bits", self.index_bits, "64, 32, 16, or 0 for the fewest that suffice")
        require_one_of("value_format", self.value_format, VALUE_DTYPES)

    def nbytes(self, pairs: int, chunk: int) -> int:
        """Return the bytes of ``pairs`` pairs whose indices are within chunks of ``chunk`` entries."""
        return pairs_bytes(pairs, chunk, self.index_bits, self.value_format)

    def encode(self, index: Tensor, value: Tensor, chunk: int) -> Tensor:
        """Encode indices ``(..., n)`` and values ``(..., n)`` as bytes ``(..., nbytes(n))``."""
        rounded = value.to(VALUE_DTYPES[self.value_format]).contiguous()
        packed_index = pack(index, bits_of_index(self.index_bits, chunk))
        return torch.cat([packed_index, rounded.view(torch.uint8).flatten(-1)], dim=-1)

    def rounded(self, value: Tensor) -> Tensor:
        """Return the values that the receiver decodes: rounded to the type on the wire, in their own type."""
        return value.to(VALUE_DTYPES[self.value_format]).to(value.dtype)

    def decode(self, encoded: Tensor, pairs: int, chunk: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the indices into ``chunk`` entries, and the values in ``dtype``, ``(..., pairs)`` each, from bytes."""
        bits = bits_of_index(self.index_bits, chunk)
        index_bytes = packed_bytes(pairs, bits)
        # Copied, because a view as wider numbers must start at a multiple of their size.
        packed_values = encoded[..., index_bytes:].clone(memory_format=torch.contiguous_format)
        value = packed_values.view(VALUE_DTYPES[self.value_format])
        return unpack(encoded[..., :index_bytes], bits, pairs), value.to(dtype)


E3M0_BITS = 4
E3M0_SIGN_BIT = 8
"""The sign bit of a code; the three lower bits are the exponent field."""

E3M0_LEAST = 2.0**-6
"""The smallest magnitude in units of the largest: exponent fields 1 to 7 are 2^-6 to 1, and 0 is zero."""

E3M0_MIDDLES = (E3M0_LEAST / 2, *(1.5 * E3M0_LEAST * 2.0**power for power in range(6)))
"""Magnitudes, in units of the largest, above which the next exponent field is nearer."""


@dataclass(frozen=True)
class E3M0:
    """Numbers of one sign bit, three exponent bits and no mantissa, with one scale for each tensor.

    A number is 0 or ``+- 2^(e - 7) s`` with e from 1 to 7; the scale ``s`` is the power of two nearest to the tensor's
    largest magnitude, and travels as fp32. Each number is rounded to the nearest such number, a tie away from zero.

    Source: Streaming DiLoCo (Douillard et al., 2025), section 2.4, which names the format and averages in fp32. It
    states no scale; the scale for each tensor is ours.

    >>> x = torch.tensor([[8.0, -3.1, 0.1, 0.01]])
    >>> E3M0().decode(E3M0().encode(x), 4, x.dtype)
    tensor([[ 8.0000, -4.0000,  0.1250,  0.0000]])
    >>> E3M0().nbytes(4)
    6
    """

    def nbytes(self, count: int) -> int:
        """Return the bytes of ``count`` numbers with their scale: ``ceil(count / 2) + 4``."""
        return e3m0_bytes(count)

    def encode(self, x: Tensor) -> Tensor:
        """Encode the tensors of workers, ``(R, n)``, as bytes ``(R, nbytes(n))``, each row with its own scale."""
        largest = x.abs().amax(1, keepdim=True).to(torch.float32)
        # largest = mantissa 2^exponent, with the mantissa in [0.5, 1): below 0.75, half of 2^exponent is nearer.
        mantissa, exponent = torch.frexp(largest)
        nearest_exponent = exponent - (mantissa < 0.75).to(exponent.dtype)
        scale = torch.ldexp(torch.ones_like(largest), nearest_exponent)
        scale = torch.where(largest > 0, scale, torch.ones_like(scale))  # a row of zeros must not divide by 0
        middles = torch.tensor(E3M0_MIDDLES, dtype=x.dtype, device=x.device)
        exponent_fields = torch.bucketize(x.abs() / scale.to(x.dtype), middles, right=True)  # a tie goes up
        codes = exponent_fields + E3M0_SIGN_BIT * (x < 0)
        return torch.cat([scale.contiguous().view(torch.uint8), pack(codes, E3M0_BITS)], 1)

    def decode(self, encoded: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Decode bytes ``(..., nbytes(count))`` to numbers ``(..., count)`` in ``dtype``."""
        # Copied, because a view as wider numbers must start at a multiple of their size.
        scale = encoded[..., :SCALE_BYTES].clone(memory_format=torch.contiguous_format).view(torch.float32).to(dtype)
        codes = look_up(encoded[..., SCALE_BYTES:], fields_of_bytes(E3M0_BITS, encoded.device), count).long()
        magnitudes = [0.0, *(E3M0_LEAST * 2.0**power for power in range(7))]  # of each code, over the scale
        values = torch.tensor(
            [*magnitudes, *(-magnitude for magnitude in magnitudes)], dtype=dtype, device=scale.device
        )
        return values[codes] * scale
