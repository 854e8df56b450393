"""Rules that decide a claim from the verdicts on its evidence; the register names one per claim."""

from __future__ import annotations

from collections.abc import Sequence

from replication.claims import FAILS, HOLDS, HOLDS_UNDER, UNKNOWN
from replication.scoreboard.verdicts import AGREE, DIFFER, TREND

Verdicts = Sequence[str]


def every(rows: Verdicts, runs: Verdicts, otherwise: Verdicts) -> str:
    """Return fails if a row or run differs, holds if all confirm the claim, and unknown if some are open."""
    verdicts = [*rows, *runs, *otherwise]
    if DIFFER in verdicts:
        return FAILS
    return HOLDS if verdicts and set(verdicts) <= {AGREE, TREND} else UNKNOWN


def trained(rows: Verdicts, runs: Verdicts, otherwise: Verdicts) -> str:
    """Return the state in which more than half of the runs agree and which no run contradicts; otherwise unknown."""
    for verdict, opposite, state in ((TREND, DIFFER, HOLDS), (DIFFER, TREND, FAILS)):
        if 2 * runs.count(verdict) > len(runs) and opposite not in runs:
            return state
    return UNKNOWN


def under(rows: Verdicts, runs: Verdicts, otherwise: Verdicts) -> str:
    """Return holds under the condition that the rows meet, if they confirm the claim and other evidence does not."""
    state = every(rows, (), ())
    return HOLDS_UNDER if state == HOLDS and every((), runs, otherwise) != HOLDS else state


def indicative(rows: Verdicts, runs: Verdicts, otherwise: Verdicts) -> str:
    """Return unknown: the rows are from a setting that cannot decide the claim."""
    return UNKNOWN


RULES = {rule.__name__: rule for rule in (every, trained, under, indicative)}
