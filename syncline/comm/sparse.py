"""Sparse vectors packed for sending: pairs of an index within a chunk and a value."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from syncline.comm.bits import pack, unpack
from syncline.costmodel.traffic.packing import index_width, packed_bytes, pairs_bytes
from syncline.errors import SpecError, one_of

VALUE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


@dataclass(frozen=True)
class SparsePairs:
    """Pairs of an index and a value, as bytes: first all indices, then all values.

    Args:
        index_bits: 64, 32 or 16; 0 for the smallest width that indexes a chunk, ``ceil(log2(chunk))``.
        value_format: ``fp32``, ``bf16`` or ``fp16`` (``fp64`` for tests in double precision).

    Raises:
        SpecError: another width or value type.

    >>> SparsePairs(64, "fp32").nbytes(pairs=32, chunk=4096)  # DeMo's 12 bytes per coefficient
    384
    >>> SparsePairs(0, "bf16").nbytes(pairs=32, chunk=4096)  # 12 bits and 2 bytes
    112
    """

    index_bits: int = 64
    value_format: str = "fp32"

    def __post_init__(self) -> None:
        if self.index_bits not in (0, 16, 32, 64):
            raise SpecError("index_bits", self.index_bits, "64, 32, 16, or 0 for just enough")
        if self.value_format not in VALUE_DTYPES:
            raise SpecError("value_format", self.value_format, one_of(VALUE_DTYPES, self.value_format))

    def bits(self, chunk: int) -> int:
        """Return the bits of an index into a chunk of ``chunk`` entries.

        Raises:
            SpecError: if the width is too small for the chunk.
        """
        return index_width(self.index_bits, chunk)

    def nbytes(self, pairs: int, chunk: int) -> int:
        """Return the bytes of ``pairs`` pairs whose indices are within chunks of ``chunk`` entries."""
        return pairs_bytes(pairs, chunk, self.index_bits, self.value_format)

    def encode(self, index: Tensor, value: Tensor, chunk: int) -> Tensor:
        """Encode indices ``(..., n)`` and values ``(..., n)`` as bytes ``(..., nbytes(n))``."""
        rounded = value.to(VALUE_DTYPES[self.value_format]).contiguous()
        return torch.cat([pack(index, self.bits(chunk)), rounded.view(torch.uint8).flatten(-1)], dim=-1)

    def rounded(self, value: Tensor) -> Tensor:
        """Return the values that the receiver decodes: rounded to the type on the wire, in their own type."""
        return value.to(VALUE_DTYPES[self.value_format]).to(value.dtype)

    def decode(self, encoded: Tensor, pairs: int, chunk: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Decode bytes ``(..., nbytes(pairs))`` to indices and values in ``dtype``, both ``(..., pairs)``."""
        bits = self.bits(chunk)
        index_bytes = packed_bytes(pairs, bits)
        # Copied, because a view as wider numbers must start at a multiple of their size.
        packed_values = encoded[..., index_bytes:].clone(memory_format=torch.contiguous_format)
        value = packed_values.view(VALUE_DTYPES[self.value_format])
        return unpack(encoded[..., :index_bytes], bits, pairs), value.to(dtype)
