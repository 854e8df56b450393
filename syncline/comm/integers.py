"""Small integers on the wire, packed into words so that words can be added: sums of integers, field by field."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.errors import SpecError


@dataclass(frozen=True)
class PackedIntegers:
    """Integers in ``[0, 2**bits)``, several to a word; adding words adds their fields, as long as no sum overflows.

    Words are bytes where the width divides 8, else 32-bit words, the lowest field first; bits that are left over in a
    word stay empty.

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
        """The type of a word."""
        return torch.uint8 if 8 % self.bits == 0 else torch.int32

    @property
    def fields(self) -> int:
        """Integers in a word."""
        return 8 * self.word.itemsize // self.bits

    def nbytes(self, count: int) -> int:
        """Bytes of the words that hold so many integers."""
        return -(-count // self.fields) * self.word.itemsize

    def check_sum(self, largest: int, workers: int) -> None:
        """Refuse sums that may overflow: of so many workers' integers up to ``largest``.

        Raises:
            SpecError: names the width that would do.
        """
        needed = (largest * workers).bit_length()
        if needed > self.bits:
            expected = f"at least {needed} for sums of {workers} workers' integers up to {largest}"
            raise SpecError("bits", self.bits, expected)

    def encode(self, values: Tensor) -> Tensor:
        """Integers ``(..., n)`` to words ``(..., ceil(n / fields))``. Values are not looked at."""
        padding = -values.shape[-1] % self.fields
        padded = torch.nn.functional.pad(values.to(torch.int64), (0, padding)).unflatten(-1, (-1, self.fields))
        shifts = torch.arange(self.fields, device=values.device) * self.bits
        return (padded << shifts).sum(-1).to(self.word)

    def decode(self, words: Tensor, count: int) -> Tensor:
        """Words ``(..., w)`` to int64 ``(..., count)``."""
        shifts = torch.arange(self.fields, device=words.device) * self.bits
        return ((words.to(torch.int64).unsqueeze(-1) >> shifts) & (2**self.bits - 1)).flatten(-2)[..., :count]
