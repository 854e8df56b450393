"""What is varied until a target is met: the bandwidth or the latency of a link, a period, a number of workers.

Each is a list of values that are tried first, far apart, and a rule for those between two of them.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import ValidationError

from syncline.costmodel import ModelShape, Network
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.sites import Sites
from syncline.costmodel.network.two_level import TwoLevel
from syncline.errors import SpecError
from syncline.experiments.projection.projections import refusal_of
from syncline.experiments.projection.thresholds import HIGHEST, LOWEST, PER_DECADE, at_bandwidth
from syncline.experiments.solving.places import LinkPlace, link_places, with_level
from syncline.methods import MethodBase
from syncline.specs import ProjectSpec
from syncline.units import format_bandwidth, format_seconds

LATENCIES_S = 1e-9, 1e3
"""The shortest and the longest latency that is tried, beside none at all."""

CLOSE = 1e-6
"""Ends are found to this part of themselves."""

TRIED_COUNTS = 48
"""Whole numbers that are tried first, at most."""

MOST_PERIOD = 10_000

TIMES_AS_MANY = 16
"""Workers that are tried at most, over those that there are."""

Sense = Literal["least", "most", "fewest", "longest"]


class TriedSetting(NamedTuple):
    """What is projected at a value: settings of neighbours that differ in networks alone are priced at once.

    Attributes:
        spec: its networks but for the one.
        network: the one.
        method: of the spec.
    """

    spec: ProjectSpec
    network: Network
    method: MethodBase


@dataclass(frozen=True)
class Sought:
    """A variable.

    Args:
        name: bandwidth, latency, period or workers.
        sense: which of the values that meet a target is asked for.
        unit: of the values.
        of: what has it, for people.
        grid: values that are tried first, ascending.
        whole: all values that there are, ascending, where they are whole numbers; else None.
        at: what is projected at a value.
        text: a value for people.
        now: its value in the question as it stands.
        place: the link that has it, if one does.
    """

    name: str
    sense: Sense
    unit: str
    of: str
    grid: tuple[float, ...]
    whole: Sequence[int] | None
    at: Callable[[float], TriedSetting]
    text: Callable[[float], str]
    now: float | None
    place: LinkPlace | None = None

    def between(self, low: float, high: float, margin_low: float, margin_high: float) -> list[float]:
        """Values to be tried between two, of which one meets a target and the other does not; none if they are close.

        Near where a line through both margins crosses 0, and in the middle, so that half is gone in any case.
        """
        if self.whole is not None:
            first, last = bisect.bisect_right(self.whole, low), bisect.bisect_left(self.whole, high)
            picks = {first + (last - first) * part // 4 for part in (1, 2, 3)} if last > first else set()
            return [float(self.whole[one]) for one in sorted(picks)]
        if low <= 0:
            return [high / 2] if high > LATENCIES_S[0] / 1e3 else []
        a, b = np.log(low), np.log(high)
        if b - a <= CLOSE:
            return []
        middle, near = (a + b) / 2, max((b - a) / 64, CLOSE / 4)
        picks_at = [middle]
        if np.isfinite([margin_low, margin_high]).all() and margin_low != margin_high:
            crossing = a - (b - a) * margin_low / (margin_high - margin_low)
            picks_at += [crossing - near, crossing + near]
        inside = sorted(one for one in picks_at if a < one < b)
        return list(dict.fromkeys(value for one in inside if low < (value := float(np.exp(one))) < high))


def sought_bandwidth(spec: ProjectSpec, network: Network, method: MethodBase, place: LinkPlace) -> Sought:
    """The bandwidth of a link; an upload keeps its proportion."""
    count = round(np.log10(HIGHEST / LOWEST) * PER_DECADE) + 1
    grid = tuple(np.geomspace(LOWEST, HIGHEST, count).tolist())

    def at(value: float) -> TriedSetting:
        return TriedSetting(spec, place.with_link(at_bandwidth(place.link, value)), method)

    now = float(place.link.bandwidth_bytes_per_s)
    return Sought("bandwidth", "least", "B/s", place.describe(), grid, None, at, format_bandwidth, now, place)


def sought_latency(spec: ProjectSpec, network: Network, method: MethodBase, place: LinkPlace) -> Sought:
    """The latency of a link, one way."""
    count = round(np.log10(LATENCIES_S[1] / LATENCIES_S[0]) * PER_DECADE) + 1
    grid = (0.0, *np.geomspace(*LATENCIES_S, count).tolist())

    def at(value: float) -> TriedSetting:
        return TriedSetting(spec, place.with_link(replace(place.link, latency_s=value)), method)

    now = float(place.link.latency_s)
    return Sought("latency", "most", "s", place.describe(), grid, None, at, format_seconds, now, place)


def sought_period(spec: ProjectSpec, network: Network, method: MethodBase) -> Sought:
    """The period of a method.

    Raises:
        SpecError: a method that has none, or takes no other.
    """
    if "period" not in type(method).model_fields:
        raise SpecError("methods", method.name, "methods with a period")
    given: Any = method
    able = [one for one in range(1, min(MOST_PERIOD, spec.steps) + 1) if _with_period(given, one) is not None]
    if not able:
        raise SpecError("methods", method.name, f"a method whose period can be one of 1 to {spec.steps}")

    def at(value: float) -> TriedSetting:
        changed = _with_period(given, int(value))
        assert changed is not None
        return TriedSetting(spec, network, changed)

    def text(value: float) -> str:
        return f"{int(value):,} step{'s' if value > 1 else ''}"

    return Sought("period", "longest", "steps", method.name, _thin(able), able, at, text, float(given.period))


def _with_period(method: Any, period: int) -> MethodBase | None:
    """The method with another period; None where it cannot have that."""
    try:
        changed: MethodBase = type(method).model_validate(dict(method) | {"period": period})
    except ValidationError:
        return None
    return changed


def sought_workers(
    spec: ProjectSpec,
    network: Network,
    method: MethodBase,
    level: int | None = None,
    most: int | None = None,
    batch_tokens: float | None = None,
) -> Sought:
    """The number of workers, as the levels of a network allow: units are filled from the inside out.

    Args:
        spec: whose workers.
        network: that joins them.
        method: that serves them.
        level: of whose units there are more or fewer, while all others are full; unless given any level is filled in
            turn, and the outermost grows.
        most: workers.
        batch_tokens: of a step of all workers, kept whatever their number; unless given each keeps its own.

    Raises:
        SpecError: nothing that can be more or fewer.
    """
    limit = most or max(TIMES_AS_MANY * spec.workers, TIMES_AS_MANY)
    joined = dict(_of_levels(network, level, limit) if level is not None else _fillings(network, limit))
    specs: dict[int, ProjectSpec] = {}
    for count in sorted(joined):
        made = _with_workers(spec, count, batch_tokens)
        if made is not None and refusal_of(method, count) is None:
            specs[count] = made
    able = list(specs)
    if not able:
        expected = f"a network, a layout and a batch that some number of workers up to {limit:,} can share"
        raise SpecError("workers", spec.workers, expected)

    def at(value: float) -> TriedSetting:
        return TriedSetting(specs[int(value)], joined[int(value)], method)

    def text(value: float) -> str:
        return f"{int(value):,}"

    now = float(spec.workers) if spec.workers in specs else None
    return Sought("workers", "fewest", "", network.name, _thin(able), able, at, text, now)


def _with_workers(spec: ProjectSpec, count: int, batch_tokens: float | None) -> ProjectSpec | None:
    """The spec of so many; None where a layout or a batch cannot be shared out over them."""
    layout = spec.layout.made()
    if count % layout.workers:
        return None
    changed: dict[str, Any] = {"workers": count}
    if batch_tokens is not None:
        sequence = spec.model.sequence if isinstance(spec.model, ModelShape) else 1
        tokens = int(batch_tokens)
        if tokens % (sequence * (count // layout.workers)) or tokens % count:
            return None
        changed["tokens_per_worker"] = tokens // count
    return spec.model_copy(update=changed)


def _fillings(network: Network, limit: int) -> list[tuple[int, Network]]:
    """Numbers of workers that fill the units of a network in turn; the outermost has as many as are wanted."""
    if isinstance(network, MultiLevel):
        *inner, last = network.levels
        sizes = [level.units for level in inner]
        if None in sizes:
            number = sizes.index(None)
            return _of_levels(network, number, limit)
        opened = with_level(network, len(inner), replace(last, units=None))
        return [(count, opened) for count in _filled([one or 1 for one in sizes], limit)]
    if isinstance(network, TwoLevel):
        return [(count, network) for count in _filled([network.per_node], limit)]
    if isinstance(network, Sites):
        if not isinstance(network.sites, int):
            raise SpecError("network", network.name, "sites by their number, whose sizes are not fixed")
        return [(count, network) for count in range(network.sites, limit + 1, network.sites)]
    link_places(network)  # refuses what is neither
    return [(count, network) for count in range(1, limit + 1)]


def _filled(sizes: Sequence[int], limit: int) -> list[int]:
    """Whole units of each level, and then of the outermost: 1 to 8 of a node, 16, 24, 32 of a site, 64, 96, ..."""
    counts: list[int] = []
    capacity = 1
    for size in sizes:
        counts += [capacity * one for one in range(1, size + 1)]
        capacity *= size
    counts += range(capacity, limit + 1, capacity)
    return [one for one in dict.fromkeys(counts) if one <= limit]


def _of_levels(network: Network, level: int, limit: int) -> list[tuple[int, Network]]:
    """More or fewer units of one level."""
    if isinstance(network, MultiLevel):
        others = [one.units or 1 for number, one in enumerate(network.levels) if number != level]
        around = int(np.prod(others))
        own = network.levels[level]
        return [
            (around * units, with_level(network, level, replace(own, units=units)))
            for units in range(1, limit // around + 1)
        ]
    if isinstance(network, TwoLevel) and level == 1:
        return [(count, network) for count in range(network.per_node, limit + 1, network.per_node)]
    if isinstance(network, Sites) and level == 1 and isinstance(network.sites, int):
        raise SpecError("level", "uplink", "none: a cluster of levels says how many workers a site has")
    return _fillings(network, limit)


def _thin(values: Sequence[int]) -> tuple[float, ...]:
    """Some of many, from the first to the last, as far apart as their logarithms; small ones all."""
    if len(values) <= TRIED_COUNTS:
        return tuple(map(float, values))
    wanted = np.geomspace(max(values[0], 1), values[-1], TRIED_COUNTS)
    picks = {min(bisect.bisect_left(values, one - 0.5), len(values) - 1) for one in wanted.tolist()}
    picks |= {0, len(values) - 1}
    return tuple(float(values[one]) for one in sorted(picks))


def neighbours(settings: Sequence[TriedSetting]) -> list[tuple[ProjectSpec, MethodBase, list[Network]]]:
    """Settings one after another, with those of the same spec and method together."""
    return [
        (group[0].spec, group[0].method, [one.network for one in group])
        for _, several in itertools.groupby(settings, key=lambda one: (id(one.spec), id(one.method)))
        for group in [list(several)]
    ]
