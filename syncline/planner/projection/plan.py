"""The plan of settings that share a model and methods, which prices them on any network at once.

A *setting* is a number of workers on some hardware. Arrays have settings along the first axis and networks along the
second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link, Network, StepTime, TensorShape
from syncline.costmodel.collectives.prices import CLOSED_FORM, TIME_SOURCES, CollectivePrices, collective_prices
from syncline.costmodel.collectives.tcp_slow_start import AfterIdling, after_idling
from syncline.costmodel.layouts.replica_step import ReplicaTimes
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices
from syncline.costmodel.numerics.slowest import slowest_factor
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import Exchange, calls_by_step
from syncline.costmodel.traffic.overlap import split_call
from syncline.costmodel.traffic.step_time import PricedCall, priced_step
from syncline.errors import within
from syncline.methods import MethodBase, tensors_of
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.planner.projection.intra_replica import IntraReplica, computing_s, flops_s, sharers_of
from syncline.planner.projection.memory_plan import MemoryPlan
from syncline.planner.projection.pricing import (
    PriceCache,
    PricedSettings,
    StepTimeCache,
    cost_key,
    factor_of_rows,
    joined_rows,
    links_of_rows,
    price_ndim,
    simulated_s,
    size_key,
    value_per_spec,
)
from syncline.planner.projection.traffic import Traffic, traffic_and_memory
from syncline.specs import ProjectSpec


class StepSchedule(NamedTuple):
    """The schedule of a worker's step.

    Attributes:
        busy_s: seconds of computing, and of waiting inside the replica.
        exchanges: exchanges of the method.
        timed: function from a call to the calls in which its bytes are sent, with their costs.
        trigger_s: seconds of the decision whether to send.
        optimizer_s: seconds of the optimizer's update.
    """

    busy_s: float
    exchanges: list[Exchange]
    timed: Callable[[Call], list[PricedCall]]
    trigger_s: float
    optimizer_s: float


class ProjectionPlan:
    """Computing, memory and traffic of every method in every setting; none of them depends on the network.

    Attributes:
        included: ``(S, M)``: whether the setting includes the method.
        traffic: the traffic of each method, in groups of settings.
        memory_plans: micro-batches, sharding and memory of each method, in all settings.
        compute_s: computing seconds of a worker's step by each method, ``(S,)`` each.
        optimizer_s: seconds of each method's update, ``(S,)`` each.
        readbacks: number of times per step that each method reads a number back from the device.

    Args:
        specs: specs of the settings; they differ in workers, in computing, and in the methods that are left out.
        methods: the methods of all settings; those of the first spec by default.

    Raises:
        SpecError: a method does not support the number of workers.
    """

    def __init__(self, specs: Sequence[ProjectSpec], methods: Sequence[MethodBase] | None = None) -> None:
        """Compute the traffic and the memory of each method; times wait for a network."""
        self.specs, self.spec = specs, specs[0]
        base_methods = tuple(methods or self.spec.methods)
        self.methods = tuple(method.in_precision(self.spec.number_format) for method in base_methods)
        self.workers: Indices = np.array([spec.workers for spec in specs], dtype=np.int64)
        self.layout = self.spec.layout.build()
        self.replicas: Indices = np.array(list(map(self.layout.replicas, self.workers.tolist())), dtype=np.int64)
        self.inside = IntraReplica(specs, self.layout)
        self.included = np.ones((len(specs), len(self.methods)), dtype=bool)
        for index, spec in enumerate(specs):
            if len(spec.methods) < len(self.methods):
                spec_methods = set(map(id, spec.methods))
                self.included[index] = [id(method) in spec_methods for method in base_methods]
        worker_tensors = self.inside.worker_tensors
        tensors = tensors_of(worker_tensors.tensors)
        self.readbacks = [method.readbacks(tensors) for method in self.methods]
        self.optimizer_s = [
            np.array(value_per_spec(specs, partial(_optimizer_s, method, tensors))) for method in self.methods
        ]
        priced = np.array(value_per_spec(specs, lambda spec: spec.compute.prices_updates))
        self.traffic: list[list[Traffic]] = []
        self.memory_plans: list[MemoryPlan] = []
        for position, method in enumerate(self.methods):
            with within(f"methods.{position}"):
                traffic, memory_plan = traffic_and_memory(
                    specs, method, worker_tensors, self.layout, self.workers, mask=self.included[:, position]
                )
            self.traffic.append(traffic)
            self.memory_plans.append(memory_plan)
            # With sharded states each worker updates the matrices whose states it has.
            self.optimizer_s[position] /= np.where(priced, sharers_of(self.layout, memory_plan, self.replicas), 1)
        self.compute_s = [
            computing_s(specs, self.layout, worker_tensors.elements, memory_plan, self.replicas)
            for memory_plan in self.memory_plans
        ]
        self._every_step = StepTimeCache(self.spec.steps)

    def step(
        self,
        method_index: int,
        network: Network,
        settings: Indices | None = None,
        cache: PriceCache | None = None,
        factors: Factors = AS_PREDICTED,
    ) -> StepTime:
        """Return the mean step of a method on networks.

        Args:
            method_index: index of the method.
            network: a link, whose fields may be arrays with the settings, or one for all, along the first axis; or
                another network.
            settings: settings along that axis, each as often as wanted; all by default.
            cache: cache of calls priced on these networks, to which this call adds.
            factors: factors of computing and communication, of all settings or of each along that axis.
        """
        ndim = price_ndim(network)
        selected = np.arange(len(self.specs)) if settings is None else settings
        parts = []
        for traffic in self.traffic[method_index]:
            place = traffic.place[selected]
            rows = np.flatnonzero(place >= 0)
            if not rows.size:
                continue
            row_links = network if len(rows) == len(selected) else links_of_rows(network, rows)
            row_factors = Factors(
                factor_of_rows(factors.computing, rows, count=len(selected), ndim=1),
                factor_of_rows(factors.communication, rows, count=len(selected), ndim=ndim),
            )
            memo = {} if cache is None else cache
            selection = PricedSettings(
                selected[rows], place[rows], network=row_links, ndim=ndim, cache=memo, factors=row_factors
            )
            parts.append((rows, self._step(traffic, method_index, selection)))
        if len(parts) == 1 and len(parts[0][0]) == len(selected):
            return parts[0][1]
        return joined_rows(parts, len(selected), ndim)

    def _step(self, traffic: Traffic, method_index: int, selection: PricedSettings) -> StepTime:
        """Return the mean step of a method in settings that all have this traffic."""
        traffic, steps = traffic.on(selection.network), self.spec.steps
        price_call = self._timed(traffic, selection)
        trigger_s = selection.slowdown * self.spec.compute.readback_latency * self.readbacks[method_index]
        optimizer_s = selection.slowdown * selection.along(self.optimizer_s[method_index])
        inside_times = self._inside(method_index, selection)
        step_s = inside_times.step_s * self._slowest_factor(traffic.exchanges, selection)
        regular, rare = _regular_and_rare(traffic.exchanges)
        if not (regular and rare):
            if regular:
                step = self._every_step.step_time(traffic.buckets, step_s, regular, price_call, trigger_s, optimizer_s)
            else:
                step = priced_step(
                    step_s,
                    rare,
                    traffic.patterns,
                    steps,
                    price=price_call,
                    trigger_s=trigger_s,
                    optimizer_s=optimizer_s,
                )
            return replace(step, compute_s=inside_times.compute_s, inside_s=step_s - inside_times.compute_s)
        first = self._every_step.step_time(traffic.buckets, step_s, regular, price_call)
        busy_s = step_s + first.exposed_communication_s
        rare_step = priced_step(
            busy_s,
            rare,
            patterns=calls_by_step(rare, steps),
            steps=steps,
            price=price_call,
            trigger_s=trigger_s,
            optimizer_s=optimizer_s,
        )
        return StepTime(
            inside_times.compute_s,
            first.communication_s + rare_step.communication_s,
            encode_s=first.encode_s + rare_step.encode_s,
            trigger_s=trigger_s,
            hidden_communication_s=first.hidden_communication_s + rare_step.hidden_communication_s,
            inside_s=step_s - inside_times.compute_s,
            optimizer_s=optimizer_s,
        )

    def _slowest_factor(self, exchanges: Sequence[Exchange], selection: PricedSettings) -> FloatOrArray:
        """Return the mean computing time of the slowest worker, for which all others wait, over that of any worker.

        If replicas communicate less often than the workers inside, the result is the product of the factor inside a
        replica and the factor between replicas, each at its own period. This is an upper bound, because the computing
        time of a replica's slowest worker varies less than that of any worker.
        """
        jitter = self.spec.compute.jitter
        period = min(
            (exchange.period for exchange in exchanges if exchange.first_group is None), default=self.spec.steps
        )
        if self.layout.workers == 1 or period == 1:
            return slowest_factor(jitter, selection.along(self.workers), period)
        factor_inside = slowest_factor(jitter, self.layout.workers)
        return factor_inside * slowest_factor(jitter, selection.along(self.replicas), period)

    def _timed(self, traffic: Traffic, selection: PricedSettings) -> Callable[[Call], list[PricedCall]]:
        """Return a function that prices a collective call in settings with this traffic."""
        encode_bandwidth = self.spec.compute.encode_bandwidth
        costs: dict[Any, tuple[FloatOrArray, FloatOrArray, AfterIdling | None]] = {}
        priced_calls: dict[int, tuple[Call, list[PricedCall]]] = {}

        def cost_of(part: Call) -> tuple[FloatOrArray, FloatOrArray, AfterIdling | None]:
            """Return the seconds of a call, of its encoding, and of the call after a pause of the link."""
            call_cost = self.call_cost(part, selection)
            workers = selection.along(self.replicas)
            size = selection.of_traffic(part.payload_bytes)
            workers = workers if part.group is None else np.full_like(workers, len(part.group))
            encode_s: FloatOrArray = 0.0
            if encode_bandwidth is not None:
                encode_s = selection.slowdown * selection.of_traffic(part.encoded_bytes) / encode_bandwidth
            idling = after_idling(
                part.collective, workers, size, selection.network, call_cost.names, call_cost.name_index
            )
            idling_times = None if idling is None else idling.times(selection.factors.communication)
            return selection.factors.communication * _seconds_or_zero(call_cost), encode_s, idling_times

        def timed(call: Call) -> list[PricedCall]:
            """Return the priced parts of a call; calls with the same cost are priced once."""
            if id(call) not in priced_calls:
                parts = []
                for part in split_call(call, self.spec.overlap, traffic.buckets):
                    key = cost_key(part)
                    if key not in costs:
                        costs[key] = cost_of(part)
                    parts.append(PricedCall(part, *costs[key]))
                priced_calls[id(call)] = call, parts  # with the call, so that its id stays unique
            return priced_calls[id(call)][1]

        return timed

    def schedule(self, method_index: int, network: Network, cache: PriceCache | None = None) -> StepSchedule:
        """Return the schedule of a worker's step in the first setting.

        Args:
            method_index: index of a method that the setting includes.
            network: a network without arrays.
            cache: cache of calls priced on this network.
        """
        settings = np.zeros(1, dtype=np.int64)
        traffic = next(candidate for candidate in self.traffic[method_index] if candidate.place[0] >= 0).on(network)
        selection = PricedSettings(settings, traffic.place[:1], network, ndim=1, cache={} if cache is None else cache)
        price_call = self._timed(traffic, selection)
        trigger_s = self.spec.compute.readback_latency * self.readbacks[method_index]
        optimizer_s = float(self.optimizer_s[method_index][0])
        busy_s = self._inside(method_index, selection).step_s * self._slowest_factor(traffic.exchanges, selection)
        regular, rare = _regular_and_rare(traffic.exchanges)
        if regular and rare:
            first = self._every_step.step_time(traffic.buckets, busy_s, regular, price_call)
            busy_s = busy_s + first.exposed_communication_s
        return StepSchedule(float(np.ravel(busy_s)[0]), rare or regular, price_call, trigger_s, optimizer_s)

    def inside_times(self, method_index: int, network: Network) -> ReplicaTimes:
        """Return the times of each setting's step inside a replica by a method."""
        settings = np.arange(len(self.specs))
        return self._inside(method_index, PricedSettings(settings, settings, network, price_ndim(network), cache={}))

    def _inside(self, method_index: int, selection: PricedSettings) -> ReplicaTimes:
        compute_s = selection.slowdown * selection.along(self.compute_s[method_index])
        return self.inside.step_times(
            compute_s,
            self.memory_plans[method_index],
            self.workers,
            selection,
            self.spec.algorithm_on(selection.network),
        )

    def call_cost(self, call: Call, selection: PricedSettings) -> CollectivePrices:
        """Return the algorithm that carries a call, and its seconds, along the selected settings."""
        size, settings = selection.of_traffic(call.payload_bytes), selection.settings
        key = call.collective, size_key(size), settings.tobytes(), call.group
        if key not in selection.cache:
            groups: list[range] | None = None  # all workers
            if call.group is not None:
                assert isinstance(call.group, range)
                groups = [call.group] * len(settings)
            elif self.layout.workers > 1:
                groups = [self.layout.replica_group(count) for count in self.workers[settings].tolist()]
            workers = selection.along(self.workers)
            algorithm = self.spec.algorithm_on(selection.network)
            selection.cache[key] = collective_prices(
                call.collective,
                workers,
                size,
                selection.network,
                algorithm,
                rule=self.spec.protocol,
                timer=simulated_s,
                groups=groups,
            )
        return selection.cache[key]

    def _zero_codes(self, network: Network) -> NDArray[np.int64]:
        """Return zeros, one for each of S settings and n links, ``(S, n)``, or ``(S, 1)`` without several links."""
        links = np.shape(network.bandwidth_bytes_per_s)[-1:] if isinstance(network, Link) else ()
        return np.zeros((len(self.specs), *(links or (1,))), dtype=np.int64)

    def evaluators(self, method_index: int, network: Network, cache: PriceCache) -> tuple[list[str], NDArray[np.int64]]:
        """Return how a method's times were computed in each setting: the name of the least exact way among its calls.

        A setting whose memory plan does not fit has no time.

        Returns:
            Texts, ``TIME_SOURCES`` first and then reasons why there is no time, and the index of each setting's text,
            ``(S, 1)`` or ``(S, n)`` for n links.
        """
        texts = {text: code for code, text in enumerate(TIME_SOURCES)}
        fits = self.memory_plans[method_index].fits
        if all(entry.sources == (CLOSED_FORM,) for entry in cache.values()) and fits.all():
            return list(texts), np.zeros((1, 1), dtype=np.int64)
        ndim, codes = price_ndim(network), self._zero_codes(network)
        for traffic in self.traffic[method_index]:
            settings = traffic.settings
            selection = PricedSettings(settings, traffic.place[settings], network, ndim, cache)
            for call in (call for pattern in traffic.patterns for call in pattern.calls):
                for part in split_call(call, self.spec.overlap, traffic.on(network).buckets):
                    call_cost = self.call_cost(part, selection)
                    code_of = np.array([texts.setdefault(text, len(texts)) for text in call_cost.sources])
                    new_codes = np.reshape(
                        code_of[call_cost.source_index], (len(settings) if np.ndim(call_cost.source_index) else 1, -1)
                    )
                    codes[settings] = np.maximum(codes[settings], new_codes)
        for setting in np.flatnonzero(~fits).tolist():
            machine = self.specs[setting].memory_machine
            text = f"does not fit into the memory of {machine.name if machine else 'a worker'}"
            codes[setting] = texts.setdefault(text, len(texts))
        return list(texts), codes

    def algorithms(self, method_index: int, network: Network, cache: PriceCache) -> tuple[list[str], NDArray[np.int64]]:
        """Return the algorithms of a method's calls, from the largest call to the smallest, each named once.

        Returns:
            Texts, and the index of each setting's text, ``(S, 1)`` or ``(S, n)`` for n links.
        """
        ndim, codes = price_ndim(network), self._zero_codes(network)
        texts: dict[str, int] = {}
        for traffic in self.traffic[method_index]:
            settings = traffic.settings
            place = traffic.place[settings]
            for rows, calls in _largest_first(traffic, place):
                members = settings[rows]
                selection = PricedSettings(members, place[rows], network, ndim, cache)
                names, numbers = self._algorithm_names(calls, selection)
                code_of = np.array([texts.setdefault(text, len(texts)) for text in names])
                codes[members] = np.reshape(code_of[numbers], (len(members) if np.ndim(numbers) else 1, -1))
        return list(texts) or [""], codes

    def _algorithm_names(self, calls: Sequence[Call], selection: PricedSettings) -> tuple[list[str], NDArray[np.int64]]:
        """Return the different combinations of the calls' algorithms, and the index of each setting's combination."""
        combinations: list[tuple[str, ...]] = [()]
        numbers: NDArray[np.int64] = np.zeros((), dtype=np.int64)
        for call in calls:
            call_cost = self.call_cost(call._replace(payload_bytes=1.0 * call.payload_bytes), selection)
            pairs = numbers * len(call_cost.names) + call_cost.name_index
            used_pairs, inverse = np.unique(pairs, return_inverse=True)
            numbers = inverse.reshape(pairs.shape)
            before_and_name = (divmod(pair, len(call_cost.names)) for pair in used_pairs.tolist())
            combinations = [(*combinations[before], call_cost.names[name]) for before, name in before_and_name]
        return [", ".join(dict.fromkeys(names)) for names in combinations], numbers


def _regular_and_rare(exchanges: list[Exchange]) -> tuple[list[Exchange], list[Exchange]]:
    """Return the exchanges of every step inside a replica, and the method's rarer exchanges, which follow them.

    If the method itself sends something in every step, too, all exchanges are in the first list and priced together.
    """
    regular = [exchange for exchange in exchanges if exchange.first_group is not None and exchange.period == 1]
    rare = [exchange for exchange in exchanges if exchange.first_group is None or exchange.period != 1]
    return (exchanges, []) if any(exchange.period == 1 for exchange in rare) else (regular, rare)


def _seconds_or_zero(priced: CollectivePrices) -> FloatOrArray:
    """Return the seconds of a priced call, or 0 if they are unknown, which ``source_index`` reports."""
    if priced.sources == (CLOSED_FORM,):
        return priced.seconds
    return np.nan_to_num(np.asarray(priced.seconds, dtype=np.float64))


def _optimizer_s(method: MethodBase, tensors: Sequence[TensorShape], spec: ProjectSpec) -> float:
    """Return the seconds of the optimizer's update in a step; 0 if the spec does not count them."""
    if not (spec.compute.optimizer_time or spec.compute.prices_updates):
        return 0.0
    flops = spec.model.flops_per_token * spec.worker_tokens
    return spec.compute.optimizer_s(method, tensors, flops_s(spec), flops, spec.model.name)


def _largest_first(traffic: Traffic, place: Indices) -> list[tuple[Indices, list[Call]]]:
    """Return the calls of all patterns, the largest first, with the rows of settings that have this order."""
    calls: dict[Any, Call] = {}
    for pattern in traffic.patterns:
        for call in pattern.calls:
            size = call.payload_bytes
            calls.setdefault((call.collective, size_key(size)), call)
    distinct = list(calls.values())
    if not any(isinstance(call.payload_bytes, np.ndarray) for call in distinct):
        return [(np.arange(len(place)), sorted(distinct, key=lambda call: -call.payload_bytes))]
    sizes = np.stack([np.broadcast_to(call.payload_bytes, place.shape) for call in distinct], axis=1)
    orders, order_index = np.unique(np.argsort(-sizes, axis=1, kind="stable"), axis=0, return_inverse=True)
    order_index = order_index.reshape(-1)
    return [(np.flatnonzero(order_index == i), [distinct[j] for j in order]) for i, order in enumerate(orders.tolist())]
