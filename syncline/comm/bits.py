"""Integers of any width packed into bytes, vectorised and on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from syncline.errors import SpecError


def packed_bytes(count: int, bits: int) -> int:
    """Bytes that ``count`` integers of ``bits`` bits take: ``ceil(count bits / 8)``."""
    return -(-count * bits // 8)


def pack(values: Tensor, bits: int) -> Tensor:
    """Integers in ``[0, 2**bits)``, the least significant bit first: ``(..., n) -> (..., ceil(n bits / 8))``.

    Args:
        values: integers ``(..., n)``.
        bits: 1 to 64; at 64 the integers are int64's own bits, sign included.

    Raises:
        SpecError: a width that is out of range. Values are not looked at: that would wait for the device.
    """
    _check(bits)
    count = values.shape[-1]
    if bits % 8 == 0:  # whole bytes: no need to take the bits apart
        shifts = torch.arange(0, bits, 8, device=values.device)
        return ((values.unsqueeze(-1) >> shifts) & 0xFF).to(torch.uint8).flatten(-2)
    shifts = torch.arange(bits, device=values.device)
    stream = ((values.unsqueeze(-1) >> shifts) & 1).to(torch.uint8).flatten(-2)
    stream = torch.nn.functional.pad(stream, (0, packed_bytes(count, bits) * 8 - count * bits))
    weights = (1 << torch.arange(8, device=values.device)).to(torch.uint8)
    return (stream.unflatten(-1, (-1, 8)) * weights).sum(-1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """What ``pack`` packed: bytes ``(..., b)`` to int64 ``(..., count)``."""
    _check(bits)
    if bits % 8 == 0:
        shifts = torch.arange(0, bits, 8, device=packed.device)
        return (packed.unflatten(-1, (count, bits // 8)).long() << shifts).sum(-1)
    stream = (packed.unsqueeze(-1) >> torch.arange(8, device=packed.device)).flatten(-2) & 1
    weights = 1 << torch.arange(bits, device=packed.device)
    return (stream[..., : count * bits].unflatten(-1, (count, bits)).long() * weights).sum(-1)


def _check(bits: int) -> None:
    if not 1 <= bits <= 64:
        raise SpecError("bits", bits, "a width from 1 to 64")
