"""A model of which only its parameters and its work are known: a module of somebody's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.tensors import TensorShape


@dataclass(frozen=True)
class ModuleShape:
    """Any model, as numbers. Where batches are of samples (images, rows), a token is a sample.

    Args:
        name: for people.
        tensors: what is learned, in order.
        flops_per_token: of forward and backward.
        sequence: T, tokens in a sample.
        source: where the numbers come from.
        reference: how a spec names it: a name, ``module:name``, or ``{kind: python, target: module:name, ...}``.
    """

    name: str
    tensors: tuple[TensorShape, ...]
    flops_per_token: float
    sequence: int = 1
    source: str = ""
    reference: str | Mapping[str, Any] = field(default="", compare=False)

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(tensor.elements for tensor in self.tensors)

    def parameter_bytes(self, bytes_per_parameter: int = 4) -> int:
        """Bytes of one copy of the parameters; also of a gradient, or of one optimizer state (4: fp32)."""
        return self.parameters * bytes_per_parameter


Model = ModelShape | ModuleShape
"""What can be projected."""
