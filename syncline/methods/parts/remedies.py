"""Specs of corrections for delayed gradients, besides a method's usual steps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.errors import SpecError
from syncline.fields import Spec, from_name, refusal
from syncline.methods.parts.method_spec import MethodBase

BackwardWeights = Literal["stashed", "current", "corrected"]
"""Which weights a backward pass uses: those of its forward pass, those there are by then, or PipeMare's estimate."""


class RemedySpec(Spec):
    """A correction for delayed gradients, besides the method's usual step.

    ``discount``: a smaller rate, ``tau^-(1 - t / anneal_steps)``, until ``anneal_steps``. ``compensation``: the
    gradient moved by ``strength * g * g * (x - x_stale)``. ``look-ahead``: forward passes at predicted weights.
    """

    kind: Literal["discount", "compensation", "look-ahead"]
    anneal_steps: int | None = Field(default=None, ge=1)
    strength: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _own_knobs(self) -> RemedySpec:
        for knob, kind in (("anneal_steps", "discount"), ("strength", "compensation")):
            value = getattr(self, knob)
            if self.kind == kind and value is None:
                raise refusal(knob, None, f"a value, as {kind} needs one")
            if self.kind != kind and value is not None:
                raise refusal(knob, value, f"none for {self.kind}, but for {kind}")
        return self

    def check_weights(self, weights: BackwardWeights, path: str) -> None:
        """Refuse weights beside which it cannot be: only a stash tells at which weights a gradient was taken.

        Raises:
            PydanticCustomError: for ``path``.
        """
        if self.kind != "discount" and weights != "stashed":
            raise refusal(path, self.kind, f"none, or a discount, where weights are {weights}")


RemedyField = Annotated[RemedySpec | None, BeforeValidator(from_name)]
"""A remedy, or the name of one without knobs; none: late gradients are taken as they are."""


def remedy_of(method: Any) -> RemedySpec | None:
    """Return a method's correction for delayed gradients, or None."""
    remedy: RemedySpec | None = getattr(method, "remedy", None)
    return remedy


def check_punctual(method: MethodBase, path: str) -> None:
    """Refuse a remedy where no gradient is late.

    Raises:
        SpecError: below ``path``.
    """
    remedy = remedy_of(method)
    if remedy is not None:
        expected = "none: only trainings of a pipeline's stages have late gradients"
        raise SpecError(f"{path}.remedy" if path else "remedy", remedy.kind, expected)
