"""Signs on the wire: eight to a byte."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.comm.bits import pack, packed_bytes, unpack


@dataclass(frozen=True)
class PackedSigns:
    """Plus or minus one, a bit each. There is no zero: what becomes of one is for the sender to say.

    >>> PackedSigns().nbytes(9)
    2
    """

    def nbytes(self, count: int) -> int:
        """``ceil(count / 8)``."""
        return packed_bytes(count, 1)

    def encode(self, positive: Tensor) -> Tensor:
        """Whether each is plus, ``(..., n)`` bool, to bytes ``(..., nbytes(n))``."""
        return pack(positive.to(torch.uint8), 1)

    def decode(self, encoded: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Bytes ``(..., b)`` to plus and minus one ``(..., n)``."""
        return (2 * unpack(encoded, 1, count) - 1).to(dtype)
