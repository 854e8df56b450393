"""The options of a projection that concern the whole training."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syncline.costmodel.prices import Prices
from syncline.errors import SpecError
from syncline.specs.failures import FailuresSpec


@dataclass(frozen=True)
class WholeTraining:
    """The options of a projection that concern the whole training, from its tokens to its price.

    Args:
        tokens: D, tokens of the training; None: those of the spec's steps, or those that reach the target loss.
        target_loss: loss at which the training ends, in nats per token.
        prices: prices of machines, electricity and traffic.
        extrapolate: whether to predict losses outside the range that the fits have seen.
        failures: failure model of the machines, which affects time, money and energy; None: nothing fails.

    Raises:
        SpecError: both tokens and a target loss, or a number that is not positive.
    """

    tokens: float | None = None
    target_loss: float | None = None
    prices: Prices | None = None
    extrapolate: bool = False
    failures: FailuresSpec | None = None

    def __post_init__(self) -> None:
        """Refuse numbers out of range, and tokens together with a target loss."""
        for name in ("tokens", "target_loss"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SpecError(name, value, "a positive number")
        if self.tokens is not None and self.target_loss is not None:
            raise SpecError("tokens", self.tokens, "none with a target loss, from which the number follows")

    @property
    def is_empty(self) -> bool:
        """Return whether no option about a whole training is set."""
        return self.tokens is None and self.target_loss is None and self.prices is None and self.failures is None
