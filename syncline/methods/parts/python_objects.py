"""Parts that are given as objects of Python where others are given by their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ValidatorFunctionWrapHandler, WrapValidator

from syncline import optim
from syncline.costmodel import TensorShape

PLAIN = (str, int, float, bool, list, tuple, dict, BaseModel, type(None))
"""Types of values in a spec file, or of values that were read from a spec file."""


@dataclass(frozen=True)
class ObjectPart:
    """A rule, an outer optimizer or a compressor that the user passes as a Python object.

    Args:
        part: the Python object.
        error_feedback: whether the part that a compressor leaves out is sent later.
    """

    part: Any
    error_feedback: bool = True

    @property
    def kind(self) -> str:
        """Return the part's kind in specs, or else the name of its class."""
        return str(getattr(self.part, "kind", type(self.part).__name__))

    @property
    def name(self) -> str:
        """Return the part's share of a method's name."""
        return self.kind

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements in the states that the user's object makes of these parameters."""
        import torch

        total = 0
        for tensor in tensors:
            rule, x = self.part, torch.empty(1, *tensor.shape, device="meta")
            while isinstance(rule, optim.MatrixSplit):
                rule = rule.matrix if tensor.is_matrix else rule.other_rule
            state = rule.init(x, 0) if hasattr(rule, "direction") else rule.init(x)
            total += sum(tensor.numel() for tensor in state.values())
        return total

    def build(self) -> Any:
        """Return the Python object itself."""
        return self.part


def or_object(protocol: str) -> WrapValidator:
    """Return a validator that also takes an object that has the methods of ``module:Protocol``."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, ObjectPart):
            return value
        if not isinstance(value, PLAIN):
            module, _, name = protocol.partition(":")
            if isinstance(value, getattr(import_module(module), name)):
                return ObjectPart(value)
        return handler(value)

    return WrapValidator(validate)
