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
    """A correction for delayed gradients, in addition to the method's usual step.

    Args:
        kind: ``discount`` multiplies the learning rate by ``tau^-(1 - t / anneal_steps)`` in step t, for a delay of tau
            steps, until step ``anneal_steps``. ``compensation`` adds ``strength * g * g * (x - x_stale)`` to the
            gradient g. ``look-ahead`` computes forward passes at predicted weights.
        anneal_steps: number of steps until the discount has ended; only for ``discount``, which needs it.
        strength: coefficient of the compensation; only for ``compensation``, which needs it.
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

    def check_weights(self, backward_weights: BackwardWeights, path: str) -> None:
        """Refuse backward weights for which the correction is not defined.

        Compensation and look-ahead need stashed weights, because only a stash keeps the weights of each forward pass.

        Raises:
            PydanticCustomError: the weights do not suit the correction; the error names ``path``.
        """
        if self.kind != "discount" and backward_weights != "stashed":
            raise refusal(path, self.kind, f"none, or a discount, where backward_weights are {backward_weights}")


RemedyField = Annotated[RemedySpec | None, BeforeValidator(from_name)]
"""A remedy, or the name of one without knobs; none: late gradients are taken as they are."""


def remedy_of(method: Any) -> RemedySpec | None:
    """Return a method's correction for delayed gradients, or None."""
    remedy: RemedySpec | None = getattr(method, "remedy", None)
    return remedy


def check_punctual(method: MethodBase, path: str) -> None:
    """Refuse a correction for delayed gradients in a training that has no delayed gradients.

    Raises:
        SpecError: the method has such a correction; the error names the field below ``path``.
    """
    remedy = remedy_of(method)
    if remedy is not None:
        expected = "none: only trainings of a pipeline's stages have late gradients"
        raise SpecError(f"{path}.remedy" if path else "remedy", remedy.kind, expected)
