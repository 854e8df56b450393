"""Software costs learned from measurements at one setting, and how well the forms with them predict others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.shaped.measure import link
from syncline.costmodel.link_fit import TimedCall, fit_costs, gloo_errors
from syncline.costmodel.network.software_costs import GLOO, GlooCosts
from syncline.errors import SpecError


class Errors(NamedTuple):
    """Of predictions of a collective.

    Attributes:
        collective: its name.
        points: how many.
        median: absolute relative error.
        ninth: the 90th percentile.
        worst: the largest.
        spread: of the measurements themselves, median of deviation over mean.
    """

    collective: str
    points: int
    median: float
    ninth: float
    worst: float
    spread: float


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of a file that `measure` has written.

    Raises:
        SpecError: no such file.
    """
    try:
        return list(json.loads(file.read_text())["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SpecError("file", str(file), "a .json that `measure --out` has written") from None


def points(rows: Iterable[dict[str, Any]]) -> list[TimedCall]:
    """Medians, as the fit takes them; collectives only."""
    return [
        TimedCall(
            row["collective"], row["hosts"], row["nbytes"], row["median_s"], link(row["bytes_per_s"], row["delay_s"])
        )
        for row in rows
        if row["collective"] in GLOO
    ]


def learn(rows: Sequence[dict[str, Any]]) -> GlooCosts:
    """The costs that these rows tell."""
    return fit_costs(points(rows))


def errors_of(rows: Sequence[dict[str, Any]], costs: GlooCosts) -> list[Errors]:
    """By collective, and of all."""
    found = []
    of_gloo = [row for row in rows if row["collective"] in GLOO]
    for kind in (*dict.fromkeys(row["collective"] for row in of_gloo), "all"):
        kept = [row for row in of_gloo if kind in ("all", row["collective"])]
        if kept:
            off = np.abs(gloo_errors(points(kept), costs))
            spread = float(np.median([row["spread"] for row in kept]))
            found.append(
                Errors(kind, len(off), float(np.median(off)), float(np.percentile(off, 90)), float(off.max()), spread)
            )
    return found
