"""Floating-point numbers of four bits, two to a byte."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.comm.bits import fields_of_bytes, look_up, pack
from syncline.costmodel.traffic.packing import SCALE_BYTES, e3m0_bytes

BITS = 4
SIGN = 8
"""Code of the sign bit; the three lower bits are the exponent field."""

LEAST = 2.0**-6
"""The smallest magnitude in units of the largest: exponent fields 1 to 7 are 2^-6 to 1, and 0 is zero."""

MIDDLES = (LEAST / 2, *(1.5 * LEAST * 2.0**power for power in range(6)))
"""Magnitudes, in units of the largest, above which the next exponent field is nearer."""


@dataclass(frozen=True)
class E3M0:
    """Numbers of one sign bit, three exponent bits and no mantissa, with one scale for each tensor.

    A number is 0 or ``+- 2^(e - 7) s`` with e from 1 to 7; the scale ``s`` is the power of two nearest to the tensor's
    largest magnitude, and travels as fp32. Each number is rounded to the nearest such number, a tie away from zero.

    Source: Streaming DiLoCo (Douillard et al., 2025), section 2.4, which names the format and averages in fp32. It
    states no scale, neither for a tensor nor for a block: the scale is ours, because seven powers of two need one.

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
        """Encode numbers ``(R, n)`` as bytes ``(R, nbytes(n))``, each row with its own scale."""
        largest = x.abs().amax(1, keepdim=True).to(torch.float32)
        mantissa, exponent = torch.frexp(largest)
        scale = torch.ldexp(torch.ones_like(largest), exponent - (mantissa < 0.75).to(exponent.dtype))
        scale = torch.where(largest > 0, scale, torch.ones_like(scale))
        middles = torch.tensor(MIDDLES, dtype=x.dtype, device=x.device)
        codes = torch.bucketize(x.abs() / scale.to(x.dtype), middles, right=True) + SIGN * (x < 0)
        return torch.cat([scale.contiguous().view(torch.uint8), pack(codes, BITS)], 1)

    def decode(self, encoded: Tensor, count: int, dtype: torch.dtype) -> Tensor:
        """Decode bytes ``(..., nbytes(count))`` to numbers ``(..., count)`` in ``dtype``."""
        scale = encoded[..., :SCALE_BYTES].clone(memory_format=torch.contiguous_format).view(torch.float32).to(dtype)
        codes = look_up(encoded[..., SCALE_BYTES:], fields_of_bytes(BITS, encoded.device), count).long()
        return code_values(dtype, encoded.device)[codes] * scale


def code_values(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the value of each of the 16 codes, in units of the largest magnitude."""
    magnitudes = [0.0, *(LEAST * 2.0**power for power in range(7))]
    return torch.tensor([*magnitudes, *(-magnitude for magnitude in magnitudes)], dtype=dtype, device=device)
