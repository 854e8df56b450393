"""The forms that losses are fitted by: a power law, and a floor with a term for the model and one for the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from syncline.errors import SpecError

Setting: TypeAlias = Mapping[str, float]
"""Numbers by the names of fields: ``parameters``, ``tokens``, ``replicas``, ``period``."""


@dataclass(frozen=True)
class PowerLaw:
    """A product of powers: ``scale * product of value^exponent``.

    Args:
        scale: A, in the unit of what is fitted.
        exponents: by field.
    """

    scale: float
    exponents: Mapping[str, float] = field(default_factory=dict)

    def of(self, setting: Setting) -> float:
        """The value in a setting."""
        powers = [setting[name] ** exponent for name, exponent in self.exponents.items()]
        return self.scale * float(np.prod(powers))


@dataclass(frozen=True)
class AdditiveLaw:
    """A floor and two terms: ``floor + a N^-alpha + b D^-beta``, of N parameters and D tokens.

    Args:
        floor: E, the loss that no training of that kind goes below.
        a: of the model's term.
        alpha: likewise, its exponent; positive.
        b: of the tokens' term.
        beta: likewise, its exponent; positive.

    Source: J. Hoffmann et al., "Training Compute-Optimal Large Language Models" (2022), equation 2.
    """

    floor: float
    a: float
    alpha: float
    b: float
    beta: float

    def of(self, setting: Setting) -> float:
        """The value in a setting."""
        return self.floor + self.a * setting["parameters"] ** -self.alpha + self.b * setting["tokens"] ** -self.beta


def fitted_power_law(settings: Sequence[Setting], values: Sequence[float], names: Sequence[str]) -> PowerLaw:
    """The power law of least squares between logarithms.

    Args:
        settings: where the values are of.
        values: positive.
        names: the fields that it is a law of.

    Raises:
        SpecError: fewer values than unknowns, or fields that do not vary by themselves.

    >>> law = fitted_power_law([{"parameters": 1e8}, {"parameters": 1e9}], [3.0, 2.4], ["parameters"])
    >>> round(law.of({"parameters": 1e9}), 3)
    2.4
    """
    columns = [np.ones(len(settings)), *(np.log([one[name] for one in settings]) for name in names)]
    matrix = np.column_stack(columns)
    solution, _, rank, _ = np.linalg.lstsq(matrix, np.log(values), rcond=None)
    if rank < len(columns):
        raise SpecError("settings", len(settings), f"settings that tell {', '.join(names)} apart")
    return PowerLaw(float(np.exp(solution[0])), dict(zip(names, map(float, solution[1:]), strict=True)))
