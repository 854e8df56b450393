"""Wire formats: how a tensor becomes bytes, and back.

A format knows three things: ``encode`` (what travels), ``decode`` (what arrives) and ``nbytes`` (how much that is).
The first dimension of an encoded tensor is never split or merged, so a worker axis survives the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class WireFormat(Protocol):
    """What every wire format can do."""

    @property
    def name(self) -> str:
        """How specs call it."""
        ...

    @property
    def exact_dtype(self) -> bool:
        """Whether the format sends the tensor as it is, so that collectives may add encoded values directly."""
        ...

    def encode(self, x: Tensor) -> Tensor:
        """The tensor that travels."""
        ...

    def decode(self, encoded: Tensor, dtype: torch.dtype) -> Tensor:
        """The tensor that arrives, in the receiver's ``dtype``."""
        ...

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """Bytes on the wire for ``elements`` numbers held as ``dtype``."""
        ...


@dataclass(frozen=True)
class Dense:
    """Numbers as they are held: 4 bytes each in fp32, 8 in fp64."""

    name: str = "dense"
    exact_dtype: bool = True

    def encode(self, x: Tensor) -> Tensor:
        """The tensor itself."""
        return x

    def decode(self, encoded: Tensor, dtype: torch.dtype) -> Tensor:
        """The tensor itself."""
        return encoded.to(dtype)

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """``elements * itemsize``."""
        return elements * dtype.itemsize


@dataclass(frozen=True)
class Cast:
    """Numbers rounded to a narrower floating-point type on the wire; sums are taken in the receiver's own type.

    ``decode(encode(x))`` rounds to nearest, ties to even: for bfloat16 the relative error is at most 2**-8.
    """

    name: str
    wire_dtype: torch.dtype
    exact_dtype: bool = False

    def encode(self, x: Tensor) -> Tensor:
        """``x`` rounded to the wire's type."""
        return x.to(self.wire_dtype)

    def decode(self, encoded: Tensor, dtype: torch.dtype) -> Tensor:
        """Back to the receiver's type; exact."""
        return encoded.to(dtype)

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """``elements`` times the wire type's size."""
        return elements * self.wire_dtype.itemsize


DENSE = Dense()
BF16 = Cast("bf16", torch.bfloat16)
FP16 = Cast("fp16", torch.float16)

WIRE_FORMATS: dict[str, WireFormat] = {"dense": DENSE, "bf16": BF16, "fp16": FP16}
