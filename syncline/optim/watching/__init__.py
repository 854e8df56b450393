"""Measures of every worker during a training: before a step, before an average, after a step.

``base`` says what a measure is and collects; each other file is one. `MEASURES` is the door: what specs call ``watch``.
"""

from collections.abc import Callable, Mapping

from syncline.optim.watch import Measure, MeasuredValue, Watch, WatchedValue
from syncline.optim.watching.lion import MomentumSpread, UpdateVectors
from syncline.optim.watching.rounds import Rounds

MEASURES: Mapping[str, Callable[[], Measure]] = {
    "rounds": Rounds, "update-vectors": UpdateVectors, "momentum-spread": MomentumSpread,
}  # fmt: skip
"""By the names that specs call them."""

__all__ = ["MEASURES", "Measure", "MeasuredValue", "MomentumSpread", "Rounds", "UpdateVectors", "Watch", "WatchedValue"]
