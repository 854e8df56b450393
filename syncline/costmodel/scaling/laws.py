"""Functional forms of losses: a power law, and a floor plus a term for parameters and a term for tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from syncline.errors import SpecError

Setting: TypeAlias = Mapping[str, float]
"""Numbers by field: ``parameters``, ``tokens``, ``replicas``, ``period``."""


@dataclass(frozen=True)
class PowerLaw:
    """A product of powers: ``scale * product of value^exponent``.

    Args:
        scale: A, in the unit of the fitted quantity.
        exponents: exponents by field.
    """

    scale: float
    exponents: Mapping[str, float] = field(default_factory=dict)

    def value(self, setting: Setting) -> float:
        """Return the value of the law in a setting."""
        powers = [setting[name] ** exponent for name, exponent in self.exponents.items()]
        return self.scale * float(np.prod(powers))


@dataclass(frozen=True)
class AdditiveLaw:
    """A floor and two terms: ``floor + a N^-alpha + b D^-beta``, of N parameters and D tokens.

    Args:
        floor: E, the limit of the loss for infinite N and D.
        a: coefficient of the parameters' term.
        alpha: exponent of the parameters' term; positive.
        b: coefficient of the tokens' term.
        beta: exponent of the tokens' term; positive.

    Source: J. Hoffmann et al., "Training Compute-Optimal Large Language Models" (2022), equation 2.
    """

    floor: float
    a: float
    alpha: float
    b: float
    beta: float

    def value(self, setting: Setting) -> float:
        """Return the value of the law in a setting."""
        return self.floor + self.a * setting["parameters"] ** -self.alpha + self.b * setting["tokens"] ** -self.beta


def fitted_power_law(settings: Sequence[Setting], values: Sequence[float], names: Sequence[str]) -> PowerLaw:
    """Return the power law with the least squared error of logarithms.

    Args:
        settings: setting of each value.
        values: values to fit; positive.
        names: fields with an exponent.

    Raises:
        SpecError: fewer values than unknowns, or fields that do not vary independently.

    >>> law = fitted_power_law([{"parameters": 1e8}, {"parameters": 1e9}], [3.0, 2.4], ["parameters"])
    >>> round(law.value({"parameters": 1e9}), 3)
    2.4
    """
    columns = [np.ones(len(settings)), *(np.log([setting[name] for setting in settings]) for name in names)]
    matrix = np.column_stack(columns)
    solution, _, rank, _ = np.linalg.lstsq(matrix, np.log(values), rcond=None)
    if rank < len(columns):
        raise SpecError("settings", len(settings), f"settings that tell {', '.join(names)} apart")
    return PowerLaw(float(np.exp(solution[0])), dict(zip(names, map(float, solution[1:]), strict=True)))
