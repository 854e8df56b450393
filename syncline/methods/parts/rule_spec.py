"""The base of the specs of update rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from syncline import optim
from syncline.costmodel import TensorShape
from syncline.fields import Spec
from syncline.methods.parts.method_spec import elements


class RuleBase(Spec, defer_build=False):
    """The spec of an update rule, whose fields are the arguments of a function of `syncline.optim`."""

    builder: ClassVar[str]
    """Name of the function."""

    num_states: ClassVar[int] = 2
    """Number of states of a parameter, each of the parameter's size."""

    kind: str

    def state_elements(self, tensors: Sequence[TensorShape]) -> int:
        """Return the number of elements that the states of these parameters hold."""
        return self.num_states * elements(tensors)

    def build(self) -> optim.UpdateRule:
        """Build the update rule."""
        arguments = {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}
        rule: optim.UpdateRule = getattr(optim, self.builder)(**arguments)
        return rule
