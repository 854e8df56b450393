"""The variables that meet a target: the bandwidth or latency of a link, a period, a delay, a number of workers.

Each variable has a grid of values that are tried first, far apart, and a rule for values between two of these.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from syncline.costmodel import ModelShape, Network
from syncline.costmodel.network.matrix import Matrix
from syncline.costmodel.network.multi_level import MultiLevel
from syncline.costmodel.network.two_level import Sites, TwoLevel
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.planner.periods import with_field
from syncline.planner.projection.projections import refusal_of
from syncline.planner.projection.thresholds import HIGHEST, LOWEST, PER_DECADE, at_bandwidth
from syncline.planner.solving.link_selection import LinkPlace, link_places, with_level
from syncline.specs import ProjectSpec
from syncline.units import format_bandwidth, format_seconds

LATENCIES_S = 1e-9, 1e3
"""The shortest and the longest latency to try, in seconds, in addition to 0."""

CLOSE = 1e-6
"""Relative precision of the ends of a span."""

MAX_GRID_SIZE = 48
"""Limit on the whole numbers that are tried first."""

MAX_PERIOD = 10_000
"""Limit on the periods to try, in steps."""

MAX_GROWTH = 16
"""Limit on the workers to try, as a multiple of the current number."""

Sense = Literal["least", "most", "fewest", "longest"]
"""The value that is the answer, among the values that meet a target."""


class ProjectionSetting(NamedTuple):
    """A spec, a network and a method whose step time is projected.

    Attributes:
        spec: spec of everything but the network.
    """

    spec: ProjectSpec
    network: Network
    method: MethodBase


@dataclass(frozen=True)
class DecisionVariable:
    """A variable that ``syncline solve`` varies until a target is met.

    Args:
        name: name of the variable: bandwidth, latency, period, delay or workers.
        sense: which value that meets the target is the answer: ``least``, ``most``, ``fewest`` or ``longest``.
        unit: unit of the values.
        owner: name of the variable's link, method or network, for people.
        grid: values that are tried first, ascending.
        whole_values: all possible values, ascending, if they are whole numbers; else None.
        setting_at: function from a value to the setting that is projected.
        text: function from a value to its text for people.
        current_value: the question's present value; None if it has none.
        place: the variable's link; None for other variables.
    """

    name: str
    sense: Sense
    unit: str
    owner: str
    grid: tuple[float, ...]
    whole_values: Sequence[int] | None
    setting_at: Callable[[float], ProjectionSetting]
    text: Callable[[float], str]
    current_value: float | None
    place: LinkPlace | None = None

    def values_between(self, low: float, high: float, margin_low: float, margin_high: float) -> list[float]:
        """Choose values to try between one that meets a target and one that does not; none if the two are close.

        The values lie near the point where a line through both margins crosses 0, and in the middle, so that every
        round halves the interval.
        """
        if self.whole_values is not None:
            first = bisect.bisect_right(self.whole_values, low)
            last = bisect.bisect_left(self.whole_values, high)
            if first == last:
                return []
            indices = {first + (last - first) * quarter // 4 for quarter in (1, 2, 3)}
            return [float(self.whole_values[index]) for index in sorted(indices)]
        if low <= 0:  # a latency of 0 has no logarithm; below a picosecond it makes no difference
            shortest_s, _ = LATENCIES_S
            return [high / 2] if high > shortest_s / 1e3 else []
        log_low, log_high = np.log(low), np.log(high)
        log_width = log_high - log_low
        if log_width <= CLOSE:
            return []
        log_values = [(log_low + log_high) / 2]
        if np.isfinite([margin_low, margin_high]).all() and margin_low != margin_high:
            # A value on each side of the estimated crossing makes the next interval 1/32 as wide.
            crossing = log_low - log_width * margin_low / (margin_high - margin_low)
            distance = max(log_width / 64, CLOSE / 4)
            log_values += [crossing - distance, crossing + distance]
        values = [float(np.exp(log_value)) for log_value in sorted(log_values) if log_low < log_value < log_high]
        return list(dict.fromkeys(value for value in values if low < value < high))


def bandwidth_variable(spec: ProjectSpec, method: MethodBase, place: LinkPlace) -> DecisionVariable:
    """Return the bandwidth of a link as a variable; the upload keeps its ratio to the bandwidth."""
    return DecisionVariable(
        "bandwidth", sense="least", unit="B/s", owner=place.describe(), grid=_per_decade(LOWEST, HIGHEST),
        setting_at=lambda value: ProjectionSetting(spec, place.with_link(at_bandwidth(place.link, value)), method),
        whole_values=None, text=format_bandwidth, current_value=float(place.link.bandwidth_bytes_per_s), place=place,
    )  # fmt: skip


def latency_variable(spec: ProjectSpec, method: MethodBase, place: LinkPlace) -> DecisionVariable:
    """Return the one-way latency of a link as a variable; the grid also has 0, in case only 0 meets a target."""
    return DecisionVariable(
        "latency", sense="most", unit="s", owner=place.describe(), grid=(0.0, *_per_decade(*LATENCIES_S)),
        setting_at=lambda value: ProjectionSetting(spec, place.with_link(replace(place.link, latency_s=value)), method),
        whole_values=None, text=format_seconds, current_value=float(place.link.latency_s), place=place,
    )  # fmt: skip


def _per_decade(lowest: float, highest: float) -> tuple[float, ...]:
    """Return values from the lowest to the highest, `PER_DECADE` of them per decade."""
    return tuple(np.geomspace(lowest, highest, round(np.log10(highest / lowest) * PER_DECADE) + 1).tolist())


def method_variable(spec: ProjectSpec, network: Network, method: MethodBase, name: str) -> DecisionVariable:
    """Return a number of steps of a method as a variable: its ``period``, or the ``delay`` of its fragments.

    Raises:
        SpecError: the method has no such number, or cannot have another number.
    """
    if not has_variable(method, name):
        raise SpecError("methods", method.name, f"methods with a {name}")
    original: Any = method
    sense: Sense = "longest" if name == "period" else "fewest"
    if name == "period":
        current, lowest, highest = original.period, 1, MAX_PERIOD
    else:  # a fragment is merged before its next exchange begins
        current, lowest, highest = original.stream.tau, 0, original.period - 1
    highest = min(highest, spec.steps)
    values = [value for value in range(lowest, highest + 1) if _with_steps(original, name, value) is not None]
    if not values:
        raise SpecError("methods", method.name, f"a method whose {name} can be one of {lowest} to {highest}")

    def setting_at(value: float) -> ProjectionSetting:
        changed_method = _with_steps(original, name, int(value))
        assert changed_method is not None
        return ProjectionSetting(spec, network, changed_method)

    def text(value: float) -> str:
        steps = "1 step" if value == 1 else f"{int(value):,} steps"
        return f"{steps} late" if name == "delay" else steps

    return DecisionVariable(
        name, sense, unit="steps", owner=method.name, grid=_thin_values(values), whole_values=values,
        setting_at=setting_at, text=text, current_value=float(current),
    )  # fmt: skip


def has_variable(method: MethodBase, name: str) -> bool:
    """Return whether a method has a ``period``, or fragments with a ``delay``."""
    return ("stream" if name == "delay" else name) in type(method).model_fields


def _with_steps(method: Any, name: str, steps: int) -> MethodBase | None:
    """Return the method with another period or delay, or None if it cannot have this number of steps."""
    if name == "period":
        return with_field(method, "period", steps)
    return with_field(method, "stream", method.stream.model_dump() | {"tau": steps})


def workers_variable(
    spec: ProjectSpec,
    network: Network,
    method: MethodBase,
    level: int | None = None,
    max_workers: int | None = None,
    batch_tokens: float | None = None,
) -> DecisionVariable:
    """Return the number of workers as a variable; its values are those that the levels of a network allow.

    Args:
        level: index of the level whose number of units varies while all other levels are full; by default the levels
            fill up in turn, the innermost first, and the outermost grows.
        batch_tokens: tokens of a step of all workers, fixed for any number of workers; by default the tokens of each
            worker are fixed.

    Raises:
        SpecError: no number of workers is possible.
    """
    limit = max_workers or MAX_GROWTH * spec.workers
    counts_and_networks = _counts_in_turn(network, limit) if level is None else _counts_at_level(network, level, limit)
    network_by_count = dict(counts_and_networks)
    spec_by_count: dict[int, ProjectSpec] = {}
    for count in sorted(network_by_count):
        changed_spec = _with_workers(spec, count, batch_tokens)
        if changed_spec is not None and refusal_of(method, count) is None:
            spec_by_count[count] = changed_spec
    counts = list(spec_by_count)
    if not counts:
        expected = f"a network, a layout and a batch that some number of workers up to {limit:,} can share"
        raise SpecError("workers", spec.workers, expected)

    def setting_at(value: float) -> ProjectionSetting:
        return ProjectionSetting(spec_by_count[int(value)], network_by_count[int(value)], method)

    return DecisionVariable(
        "workers", sense="fewest", unit="", owner=network.name, grid=_thin_values(counts), whole_values=counts,
        setting_at=setting_at, text="{:,.0f}".format,
        current_value=float(spec.workers) if spec.workers in spec_by_count else None,
    )  # fmt: skip


def _with_workers(spec: ProjectSpec, count: int, batch_tokens: float | None) -> ProjectSpec | None:
    """Return the spec with ``count`` workers, or None if the layout or the batch cannot be divided among them."""
    layout = spec.layout.build()
    if count % layout.workers:
        return None
    changed_fields: dict[str, Any] = {"workers": count}
    if batch_tokens is not None:
        sequence = spec.model.sequence if isinstance(spec.model, ModelShape) else 1  # a module's tokens are samples
        replicas = count // layout.workers
        tokens = int(batch_tokens)
        # A replica needs whole sequences, and a worker a whole number of tokens.
        if tokens % (sequence * replicas) or tokens % count:
            return None
        changed_fields["tokens_per_worker"] = tokens // count
    return spec.model_copy(update=changed_fields)


def _counts_in_turn(network: Network, limit: int) -> list[tuple[int, Network]]:
    """Return the numbers of workers that fill the units of a network in turn, up to a limit, and their networks.

    The outermost level grows as needed.
    """
    if isinstance(network, MultiLevel):
        *inner, outermost = network.levels
        sizes = [level.units for level in inner]
        if None in sizes:  # only the level without a number of units grows
            return _counts_at_level(network, sizes.index(None), limit)
        growing = with_level(network, len(inner), replace(outermost, units=None))
        return [(count, growing) for count in _full_counts([units for units in sizes if units], limit)]
    if isinstance(network, TwoLevel):
        return [(count, network) for count in _full_counts([network.per_node], limit)]
    if isinstance(network, Sites):
        if not isinstance(network.sites, int):
            raise SpecError("network", network.name, "sites by their number, whose sizes are not fixed")
        # All sites have equally many workers.
        return [(count, network) for count in range(network.sites, limit + 1, network.sites)]
    link_places(network)  # raises an error unless the network is a link or a matrix
    if isinstance(network, Matrix):
        limit = min(limit, network.workers)
    return [(count, network) for count in range(1, limit + 1)]


def _full_counts(sizes: Sequence[int], limit: int) -> list[int]:
    """Return the numbers of workers with full units at each level in turn.

    With sizes 8 and 4 these are 1 to 8 in a node, 16, 24 and 32 in a site, 64, 96, and so on.
    """
    counts: list[int] = []
    capacity = 1
    for size in sizes:
        counts += [capacity * units for units in range(1, size + 1)]
        capacity *= size
    counts += range(capacity, limit + 1, capacity)
    return [count for count in dict.fromkeys(counts) if count <= limit]


def _counts_at_level(network: Network, level: int, limit: int) -> list[tuple[int, Network]]:
    """Return numbers of workers, each with its network: only the number of units at one level differs."""
    if isinstance(network, MultiLevel):
        other_units = [other.units or 1 for index, other in enumerate(network.levels) if index != level]
        per_unit = int(np.prod(other_units))
        changing = network.levels[level]
        return [
            (per_unit * units, with_level(network, level, replace(changing, units=units)))
            for units in range(1, limit // per_unit + 1)
        ]
    if isinstance(network, TwoLevel) and level == 1:
        return [(count, network) for count in range(network.per_node, limit + 1, network.per_node)]
    if isinstance(network, Sites) and level == 1 and isinstance(network.sites, int):
        raise SpecError("level", "uplink", "none, as a cluster of levels fixes the workers of a site")
    return _counts_in_turn(network, limit)


def _thin_values(values: Sequence[int]) -> tuple[float, ...]:
    """Return up to `MAX_GRID_SIZE` of many values, from the first to the last, evenly spaced in their logarithms."""
    if len(values) <= MAX_GRID_SIZE:
        return tuple(map(float, values))
    points = np.geomspace(max(values[0], 1), values[-1], MAX_GRID_SIZE).tolist()
    # Of whole numbers, the first that is at least ``point - 0.5`` is the point rounded.
    indices = {min(bisect.bisect_left(values, point - 0.5), len(values) - 1) for point in points}
    indices |= {0, len(values) - 1}
    return tuple(float(values[index]) for index in sorted(indices))
