"""Probability distributions named in specs, and the functions that draw from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from syncline.fields import Positive, Spec, from_name, refusal

if TYPE_CHECKING:
    from syncline.problems.random_draws import Draw


class DistributionSpec(Spec):
    """A distribution of the entries of a vector; a spec may give its name alone, with the default parameters.

    A log-normal entry is positive or negative with equal probability; the logarithm of its magnitude is Gaussian with
    the standard deviation ``sigma``.
    """

    kind: Literal["gaussian", "laplace", "log-normal", "stable"]
    sigma: Positive | None = None
    alpha: Annotated[float, Field(gt=0, le=2)] | None = None

    @model_validator(mode="after")
    def _own_knobs(self) -> DistributionSpec:
        for parameter, kind in (("sigma", "log-normal"), ("alpha", "stable")):
            if getattr(self, parameter) is not None and self.kind != kind:
                raise refusal(parameter, getattr(self, parameter), f"none for {self.kind}, but for {kind}")
        if self.kind == "stable" and self.alpha is None:
            raise refusal("alpha", None, "a number above 0 (heaviest tails) and at most 2 (gaussian)")
        return self

    @property
    def name(self) -> str:
        """Return the name of the distribution in tables and figures, with its parameter if it has one."""
        parameter = self.sigma if self.kind == "log-normal" else self.alpha
        return self.kind if parameter is None else f"{self.kind} {parameter:g}"


DistributionField = Annotated[DistributionSpec, BeforeValidator(from_name)]


def log_normal(sigma: float, scale: float = 1.0) -> Draw:
    """Return a function that draws ``+-scale * exp(sigma z)`` with z from N(0, 1), each sign with probability 1/2.

    Args:
        sigma: standard deviation of the logarithm of the magnitude, 0 or larger.
        scale: median of the magnitude.
    """
    from syncline.problems.random_draws import gaussian, random_signs

    return lambda source, size: scale * random_signs(source, size) * gaussian(sigma)(source, size).exp_()


def draw_of(distribution: DistributionSpec) -> Draw:
    """Return the function that draws from a distribution of scale 1 (the scale changes no sign)."""
    from syncline.problems.random_draws import gaussian, laplace, stable

    if distribution.kind == "stable":
        assert distribution.alpha is not None
        return stable(distribution.alpha)
    if distribution.kind == "log-normal":
        return log_normal(1.0 if distribution.sigma is None else distribution.sigma)
    return {"gaussian": gaussian, "laplace": laplace}[distribution.kind](1.0)
