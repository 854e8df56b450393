"""The shape of a user's module: only its parameters and its work per token are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.compute.tensors import TensorShape


@dataclass(frozen=True)
class ModuleShape:
    """The numbers of any model. If a batch holds samples such as images or rows, a token is a sample.

    Args:
        name: display name.
        tensors: trainable parameters, in order.
        flops_per_token: FLOPs of a token, forward and backward.
        sequence: T, tokens in a sample.
        source: origin of the numbers.
        reference: reference in a spec: a name, ``module:name``, or ``{kind: python, target: module:name, ...}``.
    """

    name: str
    tensors: tuple[TensorShape, ...]
    flops_per_token: float
    sequence: int = 1
    source: str = ""
    reference: str | Mapping[str, Any] = field(default="", compare=False)

    @property
    def parameters(self) -> int:
        """Return the number of trainable parameters."""
        return sum(tensor.elements for tensor in self.tensors)

    def parameter_bytes(self, bytes_per_parameter: int = 4) -> int:
        """Return the bytes of the parameters, a gradient, or one optimizer state, with 4 bytes per number in fp32."""
        return self.parameters * bytes_per_parameter


Model = ModelShape | ModuleShape
"""A model that a projection accepts."""
