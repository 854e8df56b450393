"""The plan of settings that share a model and methods, which prices them on any network at once.

A *setting* is a number of workers on some hardware. Arrays have settings along the first axis and networks along the
second.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import Link, Network, StepTime
from syncline.costmodel.collectives.prices import CLOSED_FORM, TIME_SOURCES, CollectivePrices, collective_prices
from syncline.costmodel.collectives.tcp_slow_start import after_idling
from syncline.costmodel.layouts.replica_step import ReplicaTimes
from syncline.costmodel.numerics.arrays import FloatOrArray, Indices, IntOrArray
from syncline.costmodel.numerics.slowest import MOST_SIMULATED, delayed_slowest_factor, slowest_factor
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import Exchange, awaited_steps, calls_by_step, gaps_between_runs
from syncline.costmodel.traffic.overlap import Bucket, split_call
from syncline.costmodel.traffic.step_time import Price, PricedCall, priced_step
from syncline.methods import MethodBase
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.planner.projection.intra_replica import IntraReplica
from syncline.planner.projection.method_plan import MethodPlan, PlannedSettings
from syncline.planner.projection.pricing import (
    PriceCache,
    PricedSettings,
    StepTimeCache,
    by_link,
    cost_key,
    first_value,
    joined_rows,
    price_ndim,
    simulated_s,
    size_key,
)
from syncline.planner.projection.traffic import Traffic
from syncline.specs import ProjectSpec


class StepSchedule(NamedTuple):
    """The seconds and the exchanges of a worker's step, for a simulation of its steps.

    Attributes:
        busy_s: seconds of computing, and of waiting inside the replica.
        exchanges: exchanges of the method that the busy seconds do not include.
        price_call: function from a call to the calls in which its bytes are sent, with their costs.
        trigger_s: seconds of the decision whether to send.
        optimizer_s: seconds of the optimizer's update.
    """

    busy_s: float
    exchanges: list[Exchange]
    price_call: Price
    trigger_s: float
    optimizer_s: float


@dataclass
class _SharedPrices:
    """The prices on one network that the methods of a plan share if the plan has a single setting.

    Attributes:
        call_pricers: functions that price a call, by the buckets in which gradients travel.
        least_network_s: bounds of `ProjectionPlan.least_network_s`, by buckets and exchanges.
        busy_s: seconds of `ProjectionPlan._busy_s`, by buckets, the seconds inside a replica, and exchanges.
    """

    cache: PriceCache
    call_pricers: dict[tuple[Bucket, ...], Price] = field(default_factory=dict)
    least_network_s: dict[Any, float] = field(default_factory=dict)
    busy_s: dict[Any, float] = field(default_factory=dict)


class ProjectionPlan:
    """Plans of every method in every setting, which do not depend on the network, and their prices on any network.

    Attributes:
        included: ``(S, M)``: whether the setting includes the method.
        method_plans: traffic, memory and computing of each method.

    Args:
        specs: specs of the settings; they differ in workers, in computing, and in the methods that are left out.
        methods: the methods of all settings; those of the first spec by default.
        lazy: whether the memory of a method is computed, and its errors raised, when it is first used.

    Raises:
        SpecError: a method does not support the number of workers.
    """

    def __init__(
        self, specs: Sequence[ProjectSpec], methods: Sequence[MethodBase] | None = None, *, lazy: bool = False
    ) -> None:
        self.specs, self.spec = specs, specs[0]
        base_methods = tuple(methods or self.spec.methods)
        self.methods = tuple(method.in_precision(self.spec.number_format) for method in base_methods)
        self.workers: Indices = np.array([spec.workers for spec in specs], dtype=np.int64)
        self.layout = self.spec.layout.build()
        self.replicas: Indices = np.array([self.layout.replicas(spec.workers) for spec in specs], dtype=np.int64)
        self.intra_replica = IntraReplica(specs, self.layout)
        self.included = np.ones((len(specs), len(self.methods)), dtype=bool)
        for index, spec in enumerate(specs):
            # A spec may leave out methods that refuse its workers; the others are the same objects in all specs.
            if len(spec.methods) < len(self.methods):
                spec_method_ids = {id(method) for method in spec.methods}
                self.included[index] = [id(method) in spec_method_ids for method in base_methods]
        settings = PlannedSettings(specs, self.layout, self.workers, self.intra_replica.worker_tensors)
        self.method_plans = [
            MethodPlan(settings, method, self.included[:, index], index) for index, method in enumerate(self.methods)
        ]
        if not lazy:
            for method_plan in self.method_plans:
                method_plan.check()
        self._regular_times = StepTimeCache(self.spec.steps)  # of exchanges in every step
        self._shared = _SharedPrices(PriceCache())

    def step(
        self,
        method_index: int,
        network: Network,
        settings: Indices | None = None,
        cache: PriceCache | None = None,
        factors: Factors = AS_PREDICTED,
    ) -> StepTime:
        """Return the mean step time of a method on a network in each selected setting.

        Args:
            network: a link, whose fields may be arrays with an entry for each selected setting, or one entry for all,
                along the first axis; or another network.
            settings: indices of the selected settings, which may repeat; all settings by default.
            cache: cache of calls priced on this network, to which this call adds.
            factors: factors of computing and communication, a number or an entry for each selected setting.
        """
        selected = np.arange(len(self.specs)) if settings is None else settings
        cache = PriceCache() if cache is None else cache
        rows_and_steps = []  # rows: indices into the selected settings, with the step of their traffic
        for traffic in self.method_plans[method_index].traffic:
            selection = PricedSettings(selected, traffic.row_of_setting[selected], network, cache, factors)
            rows = np.flatnonzero(selection.traffic_rows >= 0)  # -1 marks settings with other traffic
            if rows.size:
                traffic_step = self._step(traffic, method_index, selection.at_rows(rows))
                if len(rows) == len(selected):  # all settings have the same traffic
                    return traffic_step
                rows_and_steps.append((rows, traffic_step))
        names = [field.name for field in fields(StepTime)]
        return StepTime(**joined_rows(rows_and_steps, names, len(selected), price_ndim(network)))

    def _step(self, traffic: Traffic, method_index: int, selection: PricedSettings) -> StepTime:
        """Return the mean step time of a method in settings that all have this traffic."""
        traffic, steps, method_plan = traffic.on(selection.network), self.spec.steps, self.method_plans[method_index]
        price_call = self._call_pricer(traffic, selection)
        trigger_s = selection.computing_factor * self.spec.compute.readback_latency * method_plan.readbacks
        optimizer_s = selection.computing_factor * selection.select_settings(method_plan.optimizer_s)
        replica_times = self._replica_times(method_index, selection)
        step_s = replica_times.step_s * self._slowest_factor(traffic.exchanges, selection)
        inside_s = step_s - replica_times.compute_s
        regular, rare = self._regular_and_rare(traffic.exchanges)
        if not regular:
            step = priced_step(step_s, rare, traffic.patterns, steps, price_call, trigger_s, optimizer_s)
        elif not rare:
            step = self._regular_times.step_time(
                traffic.buckets, step_s, regular, price_call, trigger_s, optimizer_s, traffic.patterns
            )
        else:  # the rare exchanges follow the regular ones, whose exposed time counts as busy
            regular_step = self._regular_times.step_time(traffic.buckets, step_s, regular, price_call)
            busy_s = step_s + regular_step.exposed_communication_s
            patterns = calls_by_step(rare, steps)
            rare_step = priced_step(busy_s, rare, patterns, steps, price_call, trigger_s, optimizer_s)
            step = replace(
                rare_step,
                communication_s=regular_step.communication_s + rare_step.communication_s,
                encode_s=regular_step.encode_s + rare_step.encode_s,
                hidden_communication_s=regular_step.hidden_communication_s + rare_step.hidden_communication_s,
            )
        return replace(step, compute_s=replica_times.compute_s, inside_s=inside_s)

    def _regular_and_rare(self, exchanges: list[Exchange]) -> tuple[list[Exchange], list[Exchange]]:
        """Split exchanges into *regular* ones, in every step inside a replica, and *rare* ones, which follow them.

        If replicas also exchange in every step, or if the groups are those of the method and not of a layout, all
        exchanges are priced together.
        """
        regular = [exchange for exchange in exchanges if exchange.first_group is not None and exchange.period == 1]
        rare = [exchange for exchange in exchanges if exchange.first_group is None or exchange.period != 1]
        has_method_groups = bool(regular) and self.layout.workers == 1
        if has_method_groups or any(exchange.period == 1 for exchange in rare):
            return exchanges, []
        return regular, rare

    def _slowest_factor(self, exchanges: Sequence[Exchange], selection: PricedSettings) -> FloatOrArray:
        """Return the factor by which a step's computing is longer because workers wait for the slowest of them.

        It is the mean computing time of the slowest worker over that of all workers. The workers inside a replica, or
        inside a node of a method with nodes, wait for each other in every step. If the replicas or nodes exchange less
        often, the factor inside is multiplied by the factor between them. The product is an upper bound, because the
        computing time of a replica's slowest worker varies less than that of any worker.
        """
        jitter, layout_workers = self.spec.compute.jitter, self.layout.workers
        if not jitter:
            return 1.0
        joining = [exchange for exchange in exchanges if exchange.first_group is None]  # all replicas
        inside_workers: int = layout_workers
        if layout_workers == 1:  # groups are those of the method
            node_groups = [exchange.first_group for exchange in exchanges if exchange.first_group is not None]
            inside_workers = max((len(group) for group in node_groups if group.step == 1), default=1)
            joining += [exchange for exchange in exchanges if exchange.first_group and exchange.first_group.step > 1]
        workers = selection.select_settings(self.workers)
        in_every_step = set(gaps_between_runs(joining, self.spec.steps)) == {1} and not any(self._delays(joining))
        if inside_workers == 1 or in_every_step:
            return self._slowest_of(workers, joining)
        return slowest_factor(jitter, inside_workers) * self._slowest_of(workers // inside_workers, joining)

    def _delays(self, exchanges: Sequence[Exchange]) -> list[int]:
        """Return the number of steps after which workers wait for each exchange."""
        return [max(exchange.wait_steps, int(self.spec.overlap == "async")) for exchange in exchanges]

    def _slowest_of(self, workers: IntOrArray, exchanges: Sequence[Exchange]) -> FloatOrArray:
        """Return the factor of the slowest of some workers, which wait for each other in these exchanges."""
        jitter, steps = self.spec.compute.jitter, self.spec.steps
        delays = self._delays(exchanges)
        if any(delays):
            return delayed_slowest_factor(jitter, workers, awaited_steps(exchanges, delays, min(steps, MOST_SIMULATED)))
        factor: FloatOrArray = 0.0
        for gap, count in gaps_between_runs(exchanges, steps).items():
            factor = factor + count * gap / steps * slowest_factor(jitter, workers, gap)
        return factor

    def _call_pricer(self, traffic: Traffic, selection: PricedSettings) -> Price:
        """Return a function that prices a collective call in settings with this traffic, and caches the prices.

        In a single setting all methods share the function, because some of their calls are equal.
        """
        call_pricer = self._new_call_pricer(traffic.buckets, selection)
        is_single_setting = len(self.specs) == 1 and len(selection.settings) == 1
        if not is_single_setting or selection.factors is not AS_PREDICTED:  # other factors have other prices
            return call_pricer
        return self._shared_prices(selection.cache).call_pricers.setdefault(traffic.buckets, call_pricer)

    def _shared_prices(self, cache: PriceCache) -> _SharedPrices:
        """Return the prices that methods share on a cache's network; drop those of the previous network."""
        if self._shared.cache is not cache:
            self._shared = _SharedPrices(cache)
        return self._shared

    def _new_call_pricer(self, buckets: tuple[Bucket, ...], selection: PricedSettings) -> Price:
        """Return a function that prices a collective call whose gradients travel in these buckets."""
        priced_by_key: dict[Any, PricedCall] = {}
        priced_parts: dict[int, tuple[Call, list[PricedCall]]] = {}

        def price_call(call: Call) -> list[PricedCall]:
            if id(call) not in priced_parts:
                parts = []
                for part in split_call(call, self.spec.overlap, buckets):
                    key = cost_key(part)
                    if key not in priced_by_key:
                        priced_by_key[key] = self._priced(part, selection)
                    _, cost_s, encode_s, idling_times = priced_by_key[key]
                    parts.append(PricedCall(part, cost_s, encode_s, idling_times))
                priced_parts[id(call)] = call, parts  # the cache keeps the call, so that its id stays unique
            _, parts = priced_parts[id(call)]
            return parts

        return price_call

    def _priced(self, call: Call, selection: PricedSettings) -> PricedCall:
        prices = self.call_prices(call, selection)
        members = selection.select_settings(self.replicas)  # one worker of each replica
        if call.group is not None:  # a group has the same ranks in every setting
            members = np.full_like(members, len(call.group))
        size = selection.select_traffic_rows(call.payload_bytes)
        encode_s: FloatOrArray = 0.0
        encode_bandwidth = self.spec.compute.encode_bandwidth
        if encode_bandwidth is not None:
            encode_s = selection.computing_factor * selection.select_traffic_rows(call.encoded_bytes) / encode_bandwidth
        idling = after_idling(call.collective, members, size, selection.network, prices.names, prices.name_index)
        idling_times = None if idling is None else idling.times(selection.factors.communication)
        seconds: FloatOrArray = prices.seconds
        if prices.sources != (CLOSED_FORM,):  # unknown seconds, nan, count as 0; `evaluators` marks their rows
            seconds = np.nan_to_num(np.asarray(seconds, dtype=np.float64))
        return PricedCall(call, selection.factors.communication * seconds, encode_s, idling_times)

    def schedule(self, method_index: int, network: Network, cache: PriceCache | None = None) -> StepSchedule:
        """Return the schedule of a worker's step in the first setting.

        Args:
            method_index: index of a method that the setting includes.
            network: a network; if it is a link, the fields are numbers.
            cache: cache of calls priced on this network.
        """
        traffic, selection = self._first_setting(method_index, network, cache)
        price_call = self._call_pricer(traffic, selection)
        trigger_s = self.spec.compute.readback_latency * self.method_plans[method_index].readbacks
        optimizer_s = float(self.method_plans[method_index].optimizer_s[0])
        regular, rare = self._regular_and_rare(traffic.exchanges)
        busy_s = self._busy_s(method_index, traffic, selection)
        # With rare exchanges, `busy_s` includes the waits for the regular ones.
        return StepSchedule(busy_s, rare or regular, price_call, trigger_s, optimizer_s)

    def least_busy_s(self, method_index: int, network: Network, cache: PriceCache) -> float:
        """Return a lower bound on the seconds of a mean step of the first setting.

        For a method with regular and rare exchanges, see `_regular_and_rare`, the bound leaves out the rare ones.
        Otherwise a worker at least computes until its first message is ready, and then makes its calls one after
        another. For the arguments, see `schedule`.
        """
        traffic, selection = self._first_setting(method_index, network, cache)
        busy_s = self._busy_s(method_index, traffic, selection)
        regular, rare = self._regular_and_rare(traffic.exchanges)
        if not traffic.exchanges or (regular and rare):
            return busy_s
        price_call = self._call_pricer(traffic, selection)
        total_s = 0.0
        for pattern in traffic.patterns:
            # For a call with ``wait_steps`` the worker waits in a later step, perhaps for no time.
            parts = [part for call in pattern.calls for part in price_call(call) if not part.call.wait_steps]
            network_s = sum(first_value(part.cost_s) for part in parts)
            first_ready = min((part.call.ready for part in parts), default=1.0)  # as a share of the busy seconds
            total_s += pattern.steps * max(busy_s, first_ready * busy_s + network_s)
        return total_s / self.spec.steps

    def _busy_s(self, method_index: int, traffic: Traffic, selection: PricedSettings) -> float:
        """Return the seconds of a step of one setting in which the worker computes, or waits inside its replica.

        For a method with regular and rare exchanges they include waiting for the regular ones, see `_regular_and_rare`.
        """
        step_s = self._replica_times(method_index, selection).step_s
        busy_s = step_s * self._slowest_factor(traffic.exchanges, selection)
        regular, rare = self._regular_and_rare(traffic.exchanges)
        if not (regular and rare):
            return first_value(busy_s)
        shared = self._shared_prices(selection.cache)
        key = traffic.buckets, first_value(busy_s), *map(id, regular)  # the plan keeps the exchanges, so ids are unique
        if key not in shared.busy_s:
            price_call = self._call_pricer(traffic, selection)
            regular_step = self._regular_times.step_time(traffic.buckets, busy_s, regular, price_call)
            shared.busy_s[key] = first_value(busy_s + regular_step.exposed_communication_s)
        return shared.busy_s[key]

    def least_network_s(self, method_index: int, network: Network, cache: PriceCache) -> float:
        """Return a lower bound on the seconds of a mean step of the first setting, from some of its calls.

        For each collective and group the bound has the calls of one size, the one with most bytes in the training. It
        leaves out calls for which a worker waits in a later step, and rare exchanges if there are regular ones, see
        `_regular_and_rare`. It is NaN if the time of a call is unknown. For the arguments, see `schedule`.
        """
        traffic, selection = self._first_setting(method_index, network, cache)
        regular, rare = self._regular_and_rare(traffic.exchanges)
        bounds_s = self._shared_prices(cache).least_network_s
        key = traffic.buckets, *map(id, regular or rare)  # the plan keeps the exchanges, so ids are unique
        if key in bounds_s:
            return bounds_s[key]
        calls: dict[Any, Call] = {}
        runs_by_kind: dict[Any, Counter[float]] = defaultdict(Counter)  # by collective and group, then by bytes
        for pattern in calls_by_step(regular, self.spec.steps) if regular and rare else traffic.patterns:
            for call in pattern.calls:
                for part in split_call(call, self.spec.overlap, traffic.buckets):
                    if not part.wait_steps:  # later steps may hide the others completely
                        kind, nbytes = (part.collective, part.group), first_value(part.payload_bytes)
                        calls[kind, nbytes] = part
                        runs_by_kind[kind][nbytes] += pattern.steps
        total_s = 0.0
        for kind, runs_by_size in runs_by_kind.items():
            nbytes, runs = max(runs_by_size.items(), key=math.prod)  # the largest product of size and runs
            total_s += runs * first_value(self.call_prices(calls[kind, nbytes], selection).seconds)
        bounds_s[key] = total_s / self.spec.steps
        return bounds_s[key]

    def _first_setting(
        self, method_index: int, network: Network, cache: PriceCache | None
    ) -> tuple[Traffic, PricedSettings]:
        """Return a method's traffic in the first setting, and this setting alone as the one to price."""
        traffics = self.method_plans[method_index].traffic
        (traffic,) = [candidate for candidate in traffics if candidate.row_of_setting[0] >= 0]  # -1: other traffic
        traffic, first_setting = traffic.on(network), np.zeros(1, dtype=np.int64)
        cache = PriceCache() if cache is None else cache
        return traffic, PricedSettings(first_setting, traffic.row_of_setting[:1], network, cache)

    def replica_times(self, method_index: int, network: Network, cache: PriceCache | None = None) -> ReplicaTimes:
        """Return the times of a method's step inside a replica in each setting."""
        settings = np.arange(len(self.specs))
        cache = PriceCache() if cache is None else cache
        no_traffic = settings  # these times do not depend on the rows of a traffic
        return self._replica_times(method_index, PricedSettings(settings, no_traffic, network, cache))

    def _replica_times(self, method_index: int, selection: PricedSettings) -> ReplicaTimes:
        """Return the times of a method's step inside a replica in the selected settings."""
        method_plan = self.method_plans[method_index]
        compute_s = selection.computing_factor * selection.select_settings(method_plan.compute_s)
        algorithm = self.spec.algorithm_on(selection.network)
        return self.intra_replica.step_times(compute_s, method_plan.memory_plan, self.workers, selection, algorithm)

    def call_prices(self, call: Call, selection: PricedSettings) -> CollectivePrices:
        """Return the algorithm that carries a call, and the call's seconds, in each selected setting."""
        size, settings = selection.select_traffic_rows(call.payload_bytes), selection.settings
        algorithm, rule = self.spec.algorithm_on(selection.network), self.spec.protocol
        # A call without a group joins one worker of each replica: the group depends on the workers per replica.
        group_key = self.layout.workers if call.group is None else call.group
        key = call.collective, size_key(size), self.workers[settings].tobytes(), group_key, algorithm, rule
        if key not in selection.cache:
            groups: list[range] | None = None  # all workers
            if call.group is not None:
                assert isinstance(call.group, range)
                groups = [call.group] * len(settings)
            elif self.layout.workers > 1:
                groups = [self.layout.replica_group(count) for count in self.workers[settings].tolist()]
            selection.cache[key] = collective_prices(
                call.collective, selection.select_settings(self.workers), size, selection.network, algorithm,
                rule=rule, timer=simulated_s, groups=groups,
            )  # fmt: skip
        return selection.cache[key]

    def _zero_codes(self, network: Network) -> NDArray[np.int64]:
        """Return zeros for S settings and n links, ``(S, n)``; n is 1 unless the network is a link with arrays."""
        num_links = 1
        if isinstance(network, Link) and np.ndim(network.bandwidth_bytes_per_s):
            num_links = np.shape(network.bandwidth_bytes_per_s)[-1]
        return np.zeros((len(self.specs), num_links), dtype=np.int64)

    def evaluators(self, method_index: int, network: Network, cache: PriceCache) -> tuple[list[str], NDArray[np.int64]]:
        """Return for each setting the least exact way in which a call of a method was timed, or why it has no time.

        Returns:
            texts: ``TIME_SOURCES``, then the reasons for unknown times: of a call, or because the memory does not fit.
            codes: index of each setting's text, ``(S, n)`` for n links, or ``(1, 1)``.
        """
        code_by_text = {text: code for code, text in enumerate(TIME_SOURCES)}
        fits = self.method_plans[method_index].memory_plan.fits
        if cache.has_closed_forms and fits.all():
            return list(code_by_text), np.zeros((1, 1), dtype=np.int64)  # code 0 is the closed form
        codes = self._zero_codes(network)
        for traffic in self.method_plans[method_index].traffic:
            settings, buckets = traffic.settings, traffic.on(network).buckets
            selection = PricedSettings(settings, traffic.row_of_setting[settings], network, cache)
            different_calls = {cost_key(call): call for call in traffic.calls}.values()
            for call in different_calls:
                for part in split_call(call, self.spec.overlap, buckets):
                    prices = self.call_prices(part, selection)
                    new_codes = by_link(shared_codes(code_by_text, prices.sources)[prices.source_index])
                    # A higher code is further from a formula; reasons for unknown times come last.
                    codes[settings] = np.maximum(codes[settings], new_codes)
        for setting in np.flatnonzero(~fits).tolist():
            machine = self.specs[setting].memory_machine
            text = f"does not fit into the memory of {machine.name if machine else 'a worker'}"
            codes[setting] = code_by_text.setdefault(text, len(code_by_text))
        return list(code_by_text), codes

    def algorithms(
        self, method_index: int, network: Network, cache: PriceCache, code_by_text: dict[str, int]
    ) -> NDArray[np.int64]:
        """Return for each setting the code of a text, the names of the algorithms of a method's calls, ``(S, n)``.

        A text has the algorithm of the largest call first, and each algorithm once.

        Args:
            network: n links whose fields are arrays, or another network (n = 1).
            cache: cache of calls priced on this network.
            code_by_text: codes of texts, to which this call adds new texts.
        """
        codes = self._zero_codes(network)
        for traffic in self.method_plans[method_index].traffic:
            for settings, calls in _largest_calls_first(traffic):
                selection = PricedSettings(settings, traffic.row_of_setting[settings], network, cache)
                texts, text_index = self._algorithm_names(calls, selection)
                codes[settings] = by_link(shared_codes(code_by_text, texts)[text_index])
        return codes

    def _algorithm_names(self, calls: Sequence[Call], selection: PricedSettings) -> tuple[list[str], NDArray[np.int64]]:
        """Return texts that each name the calls' algorithms in order, and the index of each setting's text."""
        combinations: list[tuple[str, ...]] = [()]
        combination_index: NDArray[np.int64] = np.zeros((), dtype=np.int64)
        for call in calls:
            # Sizes are floats, as in `split_call`, so that `call_prices` finds its prices in the cache.
            prices = self.call_prices(call._replace(payload_bytes=1.0 * call.payload_bytes), selection)
            # A pair is a combination of the algorithms of the calls so far, and this call's algorithm, as one number.
            pairs = combination_index * len(prices.names) + prices.name_index
            used_pairs, inverse = np.unique(pairs, return_inverse=True)
            combination_index = inverse.reshape(pairs.shape)
            extended_combinations = []
            for pair in used_pairs.tolist():
                combination, name = divmod(pair, len(prices.names))
                extended_combinations.append((*combinations[combination], prices.names[name]))
            combinations = extended_combinations
        return [", ".join(dict.fromkeys(names)) for names in combinations], combination_index


def shared_codes(code_by_text: dict[str, int], texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the code of each text from a dictionary; a text that it lacks is added with the next code."""
    return np.array([code_by_text.setdefault(text, len(code_by_text)) for text in texts], dtype=np.int64)


def _largest_calls_first(traffic: Traffic) -> list[tuple[Indices, list[Call]]]:
    """Return groups of a traffic's settings, and for each the different calls, the largest first.

    The settings of a group have the calls in the same order of size.
    """
    settings = traffic.settings
    call_by_size: dict[Any, Call] = {}
    for call in traffic.calls:
        call_by_size.setdefault((call.collective, size_key(call.payload_bytes)), call)
    calls = list(call_by_size.values())
    if not any(isinstance(call.payload_bytes, np.ndarray) for call in calls):
        return [(settings, sorted(calls, key=lambda call: -call.payload_bytes))]
    sizes = np.stack([np.broadcast_to(call.payload_bytes, settings.shape) for call in calls], axis=1)
    orders, order_index = np.unique(np.argsort(-sizes, axis=1, kind="stable"), axis=0, return_inverse=True)
    order_index = order_index.reshape(-1)
    return [
        (settings[order_index == number], [calls[index] for index in order])
        for number, order in enumerate(orders.tolist())
    ]
