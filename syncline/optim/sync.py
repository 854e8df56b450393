"""Sync policies: when which state is averaged over the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from syncline.errors import SpecError, one_of
from syncline.optim.base import SyncPolicy
from syncline.seeds import seed64


def _check_names(names: Mapping[str, int] | tuple[str, ...], available: tuple[str, ...]) -> None:
    for name in names:
        if name not in available:
            raise SpecError("sync", name, one_of(available, name))


@dataclass(frozen=True)
class EveryStep(SyncPolicy):
    """The gradient is averaged in every step: data parallelism."""

    def due(self, t: int) -> tuple[str, ...]:
        """Return the gradient in every step."""
        return ("gradient",)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(("gradient",), available)


@dataclass(frozen=True)
class Periodic(SyncPolicy):
    """Each state has its own period: state ``s`` is averaged after step ``t`` when ``(t + 1 - offset_s) % K_s == 0``.

    ``t`` counts from 0. With the default offset 0 each state is due at the end of its period, so that states with equal
    periods travel together. MT-DAO's Algorithms 2 and 3 average parameters when ``(t + 1) % K_x == 0`` but momenta when
    ``t % K_j == 0``: offset 1 for the momenta.

    Args:
        periods: K per state name (``params`` or a state of the update rule), number of steps between averages.
        offsets: offset per state name, in steps; by default 0.

    Raises:
        SpecError: for a period below 1 or a state that does not exist.
    """

    periods: Mapping[str, int]
    offsets: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        for name, period in self.periods.items():
            if period < 1:
                raise SpecError(f"periods.{name}", period, "an integer >= 1")

    def due(self, t: int) -> tuple[str, ...]:
        """Return states whose period ends with step ``t``."""
        offsets = self.offsets or {}
        return tuple(s for s, period in self.periods.items() if (t + 1 - offsets.get(s, 0)) % period == 0)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(self.periods, available)
        _check_names(self.offsets or {}, tuple(self.periods))


@dataclass(frozen=True)
class Random(SyncPolicy):
    """Each state is averaged with probability ``1 / K_s`` after every step, whatever happens to the others.

    Draws are functions of state and step, the same on all workers and for every seed of a training.

    Args:
        periods: K per state name, the mean number of steps from one average to the next.

    Raises:
        SpecError: for a period below 1 or a state that does not exist.

    Source: MT-DAO, Algorithm 4.
    """

    periods: Mapping[str, int]

    def __post_init__(self) -> None:
        Periodic(self.periods)

    def due(self, t: int) -> tuple[str, ...]:
        """Return states whose draw of step ``t`` is below ``1 / K_s``."""
        return tuple(s for s, period in self.periods.items() if seed64(0, "average", s, t) * period < 2**63)

    @override
    def check(self, available: tuple[str, ...]) -> None:
        _check_names(self.periods, available)
