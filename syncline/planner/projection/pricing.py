"""Shared parts of pricing: arrays over the settings of a projection, and caches of prices.

A *setting* is a number of workers on some hardware. Arrays have settings along the first axis, and links along the
second if the network is a link whose fields are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from syncline.costmodel import Exchange, Link, Network, StepTime
from syncline.costmodel.collectives.prices import CLOSED_FORM, CollectivePrices
from syncline.costmodel.network.link import NUMBERS, stacked_links
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices, IntOrArray
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import CallPattern, calls_by_step
from syncline.costmodel.traffic.overlap import Bucket
from syncline.costmodel.traffic.step_time import Price, priced_step
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.registry import lazy_function
from syncline.specs import ProjectSpec

A = TypeVar("A")


class PriceCache(dict[Any, CollectivePrices]):
    """Prices of collectives on one network, shared by several plans; a key holds all that decides a price on it.

    Attributes:
        has_closed_forms: whether all prices have a closed form.
    """

    has_closed_forms = True

    def __setitem__(self, key: Any, prices: CollectivePrices) -> None:
        self.has_closed_forms &= prices.sources == (CLOSED_FORM,)
        super().__setitem__(key, prices)


simulated_s = lazy_function("syncline.sim.clocks.single_collective:simulated_s")
"""Return the seconds of a collective without a closed form, and the evaluator that simulated it.

The simulation is imported when a projection first needs it.
"""


@dataclass(frozen=True, eq=False)
class PricedSettings:
    """The settings of a plan that are priced together on a network.

    Args:
        settings: index of each setting in the plan.
        traffic_rows: index of each setting in the arrays of its traffic.
        network: the network, or a link whose fields are arrays.
        cache: the calls that are priced already.
        factors: factors of computing and of communication for these settings.
    """

    settings: Indices
    traffic_rows: Indices
    network: Network
    cache: PriceCache
    factors: Factors = AS_PREDICTED

    @cached_property
    def ndim(self) -> int:
        """Return the number of axes of the prices."""
        return price_ndim(self.network)

    def at_rows(self, rows: Indices) -> PricedSettings:
        """Return some of these settings, by their indices ``rows``, with their links and factors and the same cache."""
        count, (computing, communication) = len(self.settings), self.factors
        if isinstance(computing, np.ndarray):
            computing = computing[rows]
        if isinstance(communication, np.ndarray) and communication.ndim == self.ndim and len(communication) == count:
            communication = communication[rows]  # other factors have no axis of settings
        network = self.network if len(rows) == count else links_of_rows(self.network, rows)
        settings, traffic_rows = self.settings[rows], self.traffic_rows[rows]
        factors = Factors(computing, communication)
        return replace(self, settings=settings, traffic_rows=traffic_rows, network=network, factors=factors)

    def select_settings(self, values: Any) -> Any:
        """Return the entries of these settings in an array of all settings of the plan; return a number unchanged."""
        return _select_rows(values, self.settings, self.ndim)

    def select_traffic_rows(self, values: Any) -> Any:
        """Return the entries of these settings in an array of their traffic; return a number unchanged."""
        return _select_rows(values, self.traffic_rows, self.ndim)

    @property
    def computing_factor(self) -> Any:
        """Return the factor on the seconds of computing: a number, or an array that broadcasts with the prices."""
        return _select_rows(self.factors.computing, np.arange(len(self.settings)), self.ndim)


def _select_rows(values: Any, rows: Indices, ndim: int) -> Any:
    """Return a number unchanged, or the rows of an array, with axes of length 1 appended up to ``ndim`` axes."""
    if not isinstance(values, np.ndarray):
        return values
    return values[rows].reshape(-1, *(1,) * (ndim - 1))


def value_per_spec(specs: Sequence[ProjectSpec], value_of: Callable[[ProjectSpec], A]) -> list[A]:
    """Return ``value_of(spec)`` for each spec, computed once for specs of the same model, computing and batch."""
    cache: dict[tuple[int, int, int], A] = {}
    values = []
    for spec in specs:
        key = id(spec.model), id(spec.compute), spec.worker_tokens
        if key not in cache:
            cache[key] = value_of(spec)
        values.append(cache[key])
    return values


def price_ndim(network: Network) -> int:
    """Return the number of axes of arrays of prices on a network: as many as a link's fields have, at least 1."""
    if not isinstance(network, Link):
        return 1
    return max([1, *map(np.ndim, network.arrays.values())])


def links_of_rows(network: Network, rows: Indices) -> Network:
    """Return the rows of a link whose fields have an entry for each setting; return any other network unchanged."""
    if not isinstance(network, Link):
        return network
    # A field with a single entry is the same for all settings.
    numbers = {name: value[rows] for name, value in network.arrays.items() if len(value) > 1}
    return network.with_numbers(numbers, same_links=True)  # so that measured times still hold


class NetworkGroup(NamedTuple):
    """Networks that are priced at once.

    Attributes:
        network_indices: indices of the networks among all networks.
        network: a link whose fields are arrays ``(1, n)`` for n links, or the only network of the group.
    """

    network_indices: list[int]
    network: Network


def network_groups(networks: Sequence[Network]) -> list[NetworkGroup]:
    """Group networks that can be priced at once: links that differ only in numbers; any other network is alone."""
    groups: dict[Any, list[int]] = {}
    for network_index, network in enumerate(networks):
        key: Any = network_index  # no other network has this key
        if isinstance(network, Link):
            shared_fields = [field.name for field in fields(network) if field.name not in (*NUMBERS, "name")]
            has_upload = network.upload_bytes_per_s is not None  # an array of uploads cannot mix numbers and None
            key = *(getattr(network, name) for name in shared_fields), has_upload
        groups.setdefault(key, []).append(network_index)
    result = []
    for network_indices in groups.values():
        group = [networks[index] for index in network_indices]
        links = [network for network in group if isinstance(network, Link)]
        result.append(NetworkGroup(network_indices, stacked_links(links) if links else group[0]))
    return result


def joined_rows(
    rows_and_times: Sequence[tuple[Indices, Any]], names: Iterable[str], count: int, ndim: int
) -> dict[str, Floats]:
    """Join tuples of times, such as `StepTime`, into one array for each of their fields; a row that none fills is 0.

    Args:
        rows_and_times: the rows that each of the times fills, and the times, whose fields broadcast to these rows.
    """
    columns = {}
    for name in names:
        aligned = [(rows, np.array(getattr(times, name), np.float64, ndmin=ndim)) for rows, times in rows_and_times]
        row_shape = np.broadcast_shapes((1,) * (ndim - 1), *(values.shape[1:] for _, values in aligned))
        columns[name] = np.zeros((count, *row_shape))
        for rows, values in aligned:
            columns[name][rows] = values
    return columns


def by_link(values: Any) -> Any:
    """Return values of settings and links as ``(S, n)``, from a number or an array that may lack the axis of links."""
    array = np.asarray(values)
    return array[:, None] if array.ndim == 1 else np.atleast_2d(array)


class StepTimeCache:
    """A cache of step times of exchanges that run in every step.

    A key has the costs of the calls but not the network, so that networks with equal costs share a step time.

    Args:
        steps: T, the number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._patterns: dict[Any, tuple[Sequence[Exchange], Sequence[CallPattern], list[Call]]] = {}
        self._step_times: dict[Any, StepTime] = {}

    def step_time(
        self,
        buckets: tuple[Bucket, ...],
        step_s: FloatOrArray,
        exchanges: Sequence[Exchange],
        price_call: Price,
        trigger_s: FloatOrArray = 0.0,
        optimizer_s: FloatOrArray = 0.0,
        patterns: Sequence[CallPattern] | None = None,
    ) -> StepTime:
        """Return the step time that `priced_step` gives, from the cache if possible.

        Args:
            buckets: buckets in which gradients travel.
            step_s: seconds of computing in a step.
            price_call: function that prices a call; calls with equal `cost_key` have equal prices.
            trigger_s: seconds of the decision whether to send, see `syncline.costmodel.traffic.step_time.mean_step`.
            optimizer_s: seconds of the optimizer's update.
            patterns: call patterns of the exchanges, if the caller has them.
        """
        pattern_key = buckets, *map(id, exchanges)  # the cache keeps the exchanges, so that their ids stay unique
        if pattern_key not in self._patterns:
            patterns = calls_by_step(exchanges, self.steps) if patterns is None else patterns
            calls = {cost_key(call): call for pattern in patterns for call in pattern.calls}
            self._patterns[pattern_key] = exchanges, patterns, list(calls.values())
        _, patterns, different_calls = self._patterns[pattern_key]
        parts = [part for call in different_calls for part in price_call(call)]
        compute_step_time = partial(
            priced_step, step_s, exchanges, patterns, self.steps, price=price_call, trigger_s=trigger_s,
            optimizer_s=optimizer_s,
        )  # fmt: skip
        # A call after idling takes longer: its time depends on the calls before it, which the key does not have.
        if any(part.after_idling is not None for part in parts):
            return compute_step_time()
        numbers = [step_s, trigger_s, optimizer_s]
        for part in parts:
            numbers += [part.cost_s, part.encode_s]
        arrays = [np.asarray(number, dtype=np.float64) for number in numbers]
        # Shapes are in the key, because equal numbers have more axes on a link with arrays than on another network.
        key = pattern_key, tuple(array.shape for array in arrays), *(array.tobytes() for array in arrays)
        if key not in self._step_times:
            self._step_times[key] = compute_step_time()
        return self._step_times[key]


def first_value(values: FloatOrArray) -> float:
    """Return a number as it is, or the first number of an array, such as that of the only setting."""
    return float(np.ravel(values)[0])


def size_key(nbytes: FloatOrArray | IntOrArray) -> Any:
    """Return a hashable key of a size: the number itself, or the bytes of an array."""
    return nbytes.tobytes() if isinstance(nbytes, np.ndarray) else nbytes


def cost_key(call: Call) -> Any:
    """Return the properties of a call that determine its cost, whatever the step in which the call is due."""
    return call.collective, call.group, size_key(call.payload_bytes), size_key(call.encoded_bytes)
