"""Signs on the wire: eight to a byte."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.comm.bits import fields_of_bytes, look_up, pack
from syncline.costmodel.traffic.packing import packed_bytes


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
        return pack(positive, 1)

    def decode(self, encoded: Tensor, count: int, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """Bytes ``(..., b)`` to plus and minus one ``(..., n)``.

        Args:
            encoded: what ``encode`` made.
            count: n.
            dtype: of the result.
            out: memory to fill instead, of any type; large tensors cost more to allocate than to decode.
        """
        signs = look_up(encoded, _signs_of_bytes(encoded.device), count)
        return signs.to(dtype) if out is None else out.copy_(signs)


@functools.cache
def _signs_of_bytes(device: torch.device) -> Tensor:
    return fields_of_bytes(1, device).view(torch.int8) * 2 - 1
