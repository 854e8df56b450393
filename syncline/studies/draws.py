"""Distributions: as a spec names them, and as draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.fields import Positive, Spec, from_name, refusal

if TYPE_CHECKING:
    from syncline.problems.streams import Draw


class DistributionSpec(Spec):
    """What the entries of a vector are drawn from; a bare name stands for its defaults.

    Log-normal has a fair sign and a magnitude whose logarithm has the standard deviation ``sigma``.
    """

    kind: Literal["gaussian", "laplace", "log-normal", "stable"]
    sigma: Positive | None = None
    alpha: Annotated[float, Field(gt=0, le=2)] | None = None

    @model_validator(mode="after")
    def _own_knobs(self) -> DistributionSpec:
        for knob, kind in (("sigma", "log-normal"), ("alpha", "stable")):
            if getattr(self, knob) is not None and self.kind != kind:
                raise refusal(knob, getattr(self, knob), f"none for {self.kind}, but for {kind}")
        if self.kind == "stable" and self.alpha is None:
            raise refusal("alpha", None, "a number above 0 (heaviest tails) and at most 2 (gaussian)")
        return self

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        knob = self.sigma if self.kind == "log-normal" else self.alpha
        return self.kind if knob is None else f"{self.kind} {knob:g}"


DistributionField = Annotated[DistributionSpec, BeforeValidator(from_name)]


def draw_of(distribution: DistributionSpec) -> Draw:
    """The distribution's draws; scales are 1, as no sign depends on them."""
    from syncline.problems.heavy_tails import gaussian, laplace, log_normal, stable

    if distribution.kind == "stable":
        assert distribution.alpha is not None
        return stable(distribution.alpha)
    if distribution.kind == "log-normal":
        return log_normal(1.0 if distribution.sigma is None else distribution.sigma)
    return {"gaussian": gaussian, "laplace": laplace}[distribution.kind](1.0)
