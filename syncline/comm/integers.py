"""Small integers packed into words for sending: adding words adds the integers field by field."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.comm.bits import fields_of_bytes, look_up, pack, padded_to
from syncline.costmodel.traffic.packing import field_bytes
from syncline.errors import SpecError


@dataclass(frozen=True)
class PackedIntegers:
    """Integers in ``[0, 2**bits)``, several to a word; adding words adds their fields, as long as no sum overflows.

    Words are bytes if the width divides 8, else 32-bit words, the lowest field first; spare bits of a
    word stay zero.

    Args:
        bits: width of a field, 1 to 31.

    Raises:
        SpecError: another width.

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
        """Return the number of integers in a word."""
        return 8 * self.word.itemsize // self.bits

    def nbytes(self, count: int) -> int:
        """Return the bytes of the words that hold ``count`` integers."""
        return field_bytes(count, self.bits)

    def check_sum(self, largest: int, workers: int) -> None:
        """Raise an error if the sum over ``workers`` of integers up to ``largest`` may overflow a field.

        Raises:
            SpecError: the width is too small; the message names a sufficient width.
        """
        needed = (largest * workers).bit_length()
        if needed > self.bits:
            expected = f"at least {needed} for sums of {workers} workers' integers up to {largest}"
            raise SpecError("bits", self.bits, expected)

    def encode(self, values: Tensor) -> Tensor:
        """Encode integers ``(..., n)`` of any type as words ``(..., ceil(n / fields))``; values are not checked."""
        if self.word == torch.uint8:
            return pack(values, self.bits)
        fields = padded_to(values.to(self._field_dtype), self.fields).unflatten(-1, (-1, self.fields))
        words = fields[..., -1].to(torch.int32)
        for field in range(self.fields - 2, -1, -1):  # Horner's rule
            words = torch.add(fields[..., field], words, alpha=2**self.bits)
        return words

    def decode(self, words: Tensor, count: int, dtype: torch.dtype = torch.int64, out: Tensor | None = None) -> Tensor:
        """Decode words ``(..., ceil(count / fields))`` to integers ``(..., count)``.

        Args:
            words: words from ``encode``, or a sum of such words.
            count: number of integers.
            dtype: type of the result.
            out: memory of any type to fill instead; large tensors cost more to allocate than to decode.
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
        return torch.int16 if self.bits <= 15 else torch.int32
