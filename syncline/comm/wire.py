"""Wire formats: how a tensor becomes bytes, and back.

A format has three functions: ``encode`` (the tensor on the wire), ``decode`` (the tensor that arrives) and ``nbytes``
(its bytes on the wire). The first dimension of an encoded tensor is never split or merged, so that encoding keeps the
worker axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class WireFormat(Protocol):
    """The protocol of wire formats, which encode tensors as they are sent and count the bytes."""

    @property
    def name(self) -> str:
        """Return the name with which specs choose the wire format."""

    @property
    def exact_dtype(self) -> bool:
        """Return whether the format sends the tensor unchanged, so that collectives may add encoded values directly."""

    def encode(self, x: Tensor) -> Tensor:
        """Return the tensor that is sent in the place of ``x``."""

    def decode(self, encoded: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the tensor that arrives, in the receiver's ``dtype``."""

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """Return the bytes on the wire of ``elements`` numbers of type ``dtype``."""


@dataclass(frozen=True)
class Dense:
    """Numbers sent in their own type: 4 bytes each in fp32, 8 in fp64."""

    name: str = "dense"
    exact_dtype: bool = True

    def encode(self, x: Tensor) -> Tensor:
        """Return the tensor unchanged, because this format sends tensors as they are."""
        return x

    def decode(self, encoded: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the tensor itself, in the receiver's ``dtype``."""
        return encoded.to(dtype)

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """Return ``elements * itemsize``, the bytes on the wire."""
        return elements * dtype.itemsize


@dataclass(frozen=True)
class Cast:
    """Numbers rounded to a narrower floating-point type on the wire; a receiver adds them in its own type.

    ``decode(encode(x))`` rounds to nearest, ties to even: for bfloat16 the relative error is at most 2**-8.
    """

    name: str
    wire_dtype: torch.dtype
    exact_dtype: bool = False

    def encode(self, x: Tensor) -> Tensor:
        """Round ``x`` to the type on the wire."""
        return x.to(self.wire_dtype)

    def decode(self, encoded: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert numbers from the type on the wire to ``dtype``, the receiver's; this is exact."""
        return encoded.to(dtype)

    def nbytes(self, elements: int, dtype: torch.dtype) -> int:
        """Return ``elements`` times the bytes of the type on the wire."""
        return elements * self.wire_dtype.itemsize


DENSE = Dense()
BF16 = Cast("bf16", torch.bfloat16)
FP16 = Cast("fp16", torch.float16)

WIRE_FORMATS: dict[str, WireFormat] = {"dense": DENSE, "bf16": BF16, "fp16": FP16}
