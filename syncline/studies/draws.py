"""Distributions of a spec as draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.specs.studies import DistributionSpec

if TYPE_CHECKING:
    from syncline.problems.streams import Draw


def draw_of(distribution: DistributionSpec) -> Draw:
    """The distribution's draws; scales are 1, as no sign depends on them."""
    from syncline.problems.heavy_tails import gaussian, laplace, log_normal, stable

    if distribution.kind == "stable":
        assert distribution.alpha is not None
        return stable(distribution.alpha)
    if distribution.kind == "log-normal":
        return log_normal(1.0 if distribution.sigma is None else distribution.sigma)
    return {"gaussian": gaussian, "laplace": laplace}[distribution.kind](1.0)
