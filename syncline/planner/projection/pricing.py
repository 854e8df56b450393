"""Shared parts of pricing: arrays over the settings of a projection, and caches of prices.

A *setting* is a number of workers on some hardware. Arrays have settings along the first axis, and links along the
second if the network is a link whose fields are arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Exchange, Link, Network, StepTime
from syncline.costmodel.collectives.prices import CLOSED_FORM, CollectivePrices
from syncline.costmodel.network.link import NUMBERS, stacked_links
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
    """Priced collectives on one network by the key of `ProjectionPlan.call_cost`, for all plans that send the same.

    Attributes:
        has_closed_forms: whether all of them have a closed form.
    """

    has_closed_forms = True

    def __setitem__(self, key: Any, prices: CollectivePrices) -> None:
        """Add the prices of a collective."""
        self.has_closed_forms &= prices.sources == (CLOSED_FORM,)
        super().__setitem__(key, prices)


simulated_s = lazy_function("syncline.sim.clocks.single_collective:simulated_s")
"""Return the seconds of a collective without a closed form, and the evaluator that simulated it.

The simulation is imported when a projection first needs it.
"""


class PricedSettings(NamedTuple):
    """The settings of a plan that are priced together on a network.

    Attributes:
        settings: index of each setting in the plan.
        traffic_rows: index of each setting in the arrays of its traffic.
        network: the network, or a link whose fields are arrays.
        ndim: number of axes of the prices, see `price_ndim`.
        cache: the calls that are priced already.
        factors: factors of computing and of communication for these settings.
    """

    settings: Indices
    traffic_rows: Indices
    network: Network
    ndim: int
    cache: PriceCache
    factors: Factors = AS_PREDICTED

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
    return network.with_numbers(numbers, same_links=True)


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


def factor_of_rows(factor: Any, rows: Indices | list[int], count: int, ndim: int) -> Any:
    """Return the rows of a factor that has an entry for each of ``count`` settings; return any other factor unchanged.

    A factor with such entries is an array of ``ndim`` axes, the first for the settings.
    """
    has_setting_axis = isinstance(factor, np.ndarray) and factor.ndim == ndim and len(factor) == count
    return factor[rows] if has_setting_axis else factor


def joined_rows(parts: Sequence[tuple[Indices, StepTime]], count: int, ndim: int) -> StepTime:
    """Merge the step times of parts of ``count`` settings, given with their indices; settings in no part have 0 s."""
    columns = {}
    for field in fields(StepTime):
        rows_and_values = [(rows, np.asarray(getattr(step, field.name), dtype=np.float64)) for rows, step in parts]
        columns[field.name] = joined_arrays(rows_and_values, count, ndim)
    return StepTime(**columns)


def joined_arrays(parts: Sequence[tuple[Any, NDArray[np.float64]]], count: int, ndim: int) -> NDArray[np.float64]:
    """Merge arrays into one of ``count`` rows, from the row indices and values of each; other rows are 0.

    An array may have fewer than ``ndim`` axes, as a number or if all its rows are equal, and one link or several.
    """
    # Give all arrays ``ndim`` axes, with new axes of length 1 in front.
    aligned = [(rows, values.reshape((1,) * (ndim - values.ndim) + values.shape)) for rows, values in parts]
    row_shape = np.broadcast_shapes((1,) * (ndim - 1), *(values.shape[1:] for _, values in aligned))
    joined_values = np.zeros((count, *row_shape))
    for rows, values in aligned:
        joined_values[rows] = values
    return joined_values


class StepTimeCache:
    """A cache of step times with exchanges in every step, by the costs of their calls.

    The key has the costs but not the network, because methods of one layout and similar networks share costs.

    Args:
        steps: T, the number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._patterns: dict[Any, tuple[Sequence[Exchange], list[CallPattern], list[Call]]] = {}
        self._step_times: dict[Any, StepTime] = {}

    def step_time(
        self,
        buckets: tuple[Bucket, ...],
        step_s: FloatOrArray,
        exchanges: Sequence[Exchange],
        price_call: Price,
        trigger_s: FloatOrArray = 0.0,
        optimizer_s: FloatOrArray = 0.0,
    ) -> StepTime:
        """Return the step time that `priced_step` gives, from the cache if possible.

        Args:
            buckets: buckets in which gradients travel.
            step_s: seconds of computing in a step.
            exchanges: exchanges of every step.
            price_call: function that prices a call; calls with equal `cost_key` have equal prices.
            trigger_s: seconds of the decision whether to send, see `syncline.costmodel.traffic.step_time.mean_step`.
            optimizer_s: seconds of the optimizer's update.
        """
        pattern_key = buckets, *map(id, exchanges)  # the cache keeps the exchanges, so that their ids stay unique
        if pattern_key not in self._patterns:
            patterns = calls_by_step(exchanges, self.steps)
            calls = {cost_key(call): call for pattern in patterns for call in pattern.calls}
            self._patterns[pattern_key] = exchanges, patterns, list(calls.values())
        _, patterns, different_calls = self._patterns[pattern_key]
        parts = [part for call in different_calls for part in price_call(call)]
        compute_step_time = partial(
            priced_step, step_s, exchanges, patterns, self.steps, price=price_call, trigger_s=trigger_s,
            optimizer_s=optimizer_s,
        )  # fmt: skip
        if any(part.after_idling is not None for part in parts):  # such times depend on the order of the calls, too
            return compute_step_time()
        numbers = [step_s, trigger_s, optimizer_s]
        for part in parts:
            numbers += [part.cost_s, part.encode_s]
        key = pattern_key, *(np.asarray(number, dtype=np.float64).tobytes() for number in numbers)
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
