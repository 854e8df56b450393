"""Signs packed for sending, eight to a byte."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.comm.bits import fields_of_bytes, look_up, pack
from syncline.costmodel.traffic.packing import packed_bytes


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
        return pack(positive, 1)

    def decode(self, encoded: Tensor, count: int, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """Decode bytes ``(..., nbytes(count))`` to plus and minus one ``(..., count)``.

        Args:
            encoded: bytes from ``encode``.
            count: number of signs.
            dtype: type of the result.
            out: memory of any type to fill instead; large tensors cost more to allocate than to decode.
        """
        signs = look_up(encoded, _signs_of_bytes(encoded.device), count)
        return signs.to(dtype) if out is None else out.copy_(signs)


@functools.cache
def _signs_of_bytes(device: torch.device) -> Tensor:
    """Return the eight signs that every byte value encodes, ``(256, 8)`` int8 of plus and minus one."""
    return fields_of_bytes(1, device).view(torch.int8) * 2 - 1
