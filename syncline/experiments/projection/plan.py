"""What a projection needs to know of settings that share a model and its methods, to price them on any network at once.

A *setting* is a number of workers on some hardware. What is computed for settings has them along the first axis of its
arrays, and networks along the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import ALGORITHMS, Link, Network, StepTime, TensorShape
from syncline.costmodel.arrays import FloatOrArray, Indices
from syncline.costmodel.collectives.many import CLOSED_FORM, PricedMany, carried
from syncline.costmodel.collectives.opening import AfterIdling, after_idling
from syncline.costmodel.collectives.policies import algorithm_of
from syncline.costmodel.collectives.table import first_on
from syncline.costmodel.compute.memory import RECOMPUTED
from syncline.costmodel.layouts.inside import InsideTimes
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.exchanges import Exchange, calls_by_step
from syncline.costmodel.traffic.overlap import PricedCall, split
from syncline.costmodel.traffic.step_time import priced_step
from syncline.errors import within
from syncline.experiments.bounds import AS_PREDICTED, Factors
from syncline.experiments.projection.every_step import EverySteps, told_apart_by
from syncline.experiments.projection.held import Held, room_of
from syncline.experiments.projection.inside import Inside, carried_by_groups
from syncline.experiments.projection.laid_out import laid_out
from syncline.experiments.projection.once import once_each
from syncline.experiments.projection.played import HOW, played_parts_s, played_s
from syncline.experiments.projection.rows import along_rows, axes_of, factors_of, joined_rows, links_of_rows
from syncline.experiments.projection.sharing import carried_and_held
from syncline.experiments.projection.traffic import Traffic
from syncline.methods import MethodBase, tensors_of
from syncline.specs import ProjectSpec

Known = dict[Any, PricedMany]
"""Collectives of one network that are priced, for all methods that send the same."""


class Scheduled(NamedTuple):
    """What a worker goes through in every step.

    Attributes:
        busy_s: that it computes, with what it waits for inside its replica.
        exchanges: what is sent beside.
        timed: the calls in which a call travels, and what they take.
        trigger_s: in which it finds out whether to send.
        optimizer_s: in which it updates.
    """

    busy_s: float
    exchanges: list[Exchange]
    timed: Callable[[Call], list[PricedCall]]
    trigger_s: float
    optimizer_s: float


class ProjectionPlan:
    """Computing and traffic of every method in every setting, whatever the network.

    Args:
        specs: of the settings; they differ in workers, in what computes, and in which methods are left out.
        methods: of all of them; those of the first spec unless given.

    Raises:
        SpecError: a method cannot serve so many workers.
    """

    def __init__(self, specs: Sequence[ProjectSpec], methods: Sequence[MethodBase] | None = None) -> None:
        self.specs, self.spec = specs, specs[0]
        asked = tuple(methods or self.spec.methods)
        self.methods = tuple(method.in_precision(self.spec.number_format) for method in asked)
        self.workers: Indices = np.array([spec.workers for spec in specs], dtype=np.int64)
        self.compute_s = np.array(once_each(specs, _compute_s))
        self.layout = self.spec.layout.made()
        self.replicas: Indices = np.array([self.layout.replicas(one) for one in self.workers.tolist()], dtype=np.int64)
        self.inside = Inside(specs, self.layout) if self.layout.workers > 1 else None
        self.tensors = tensors_of(self.inside.own.tensors if self.inside else self.spec.model.tensors)
        self.able = np.ones((len(specs), len(self.methods)), dtype=bool)
        for index, spec in enumerate(specs):
            if len(spec.methods) < len(self.methods):
                here = set(map(id, spec.methods))
                self.able[index] = [id(method) in here for method in asked]
        self.readbacks = [method.readbacks(self.tensors) for method in self.methods]
        self.optimizer_s = [
            np.array(once_each(specs, partial(_optimizer_s, method, self.tensors))) for method in self.methods
        ]
        self.traffic: list[list[Traffic]] = []
        self.every_step = EverySteps(self.spec.steps)
        self.held: list[Held] = []
        room = None if self.inside else room_of(specs)
        for number, method in enumerate(self.methods):
            with within(f"methods.{number}"):
                able = self.able[:, number]
                if room is None:
                    assert self.inside is not None
                    own = self.inside.own
                    traffic, how = laid_out(self.specs, method, own, self.layout, self.workers, able)
                else:
                    traffic, how = carried_and_held(self.specs, method, self.tensors, self.workers, able, room)
            self.traffic.append(traffic)
            self.held.append(how)

    def step(
        self,
        number: int,
        network: Network,
        settings: Indices | None = None,
        known: Known | None = None,
        factors: Factors = AS_PREDICTED,
    ) -> StepTime:
        """The mean step of a method on networks.

        Args:
            number: of the method.
            network: a link, whose fields may be arrays with the settings, or one for all, along the first axis; or
                another network.
            settings: which of them are along that axis, each as often as it is wanted; all unless given.
            known: calls that have been priced in all settings, to which it adds.
            factors: by what computing and communication are off.
        """
        ndim = axes_of(network)
        every = settings is None
        wanted = np.arange(len(self.specs)) if settings is None else settings
        parts = []
        for traffic in self.traffic[number]:
            place = traffic.place[wanted]
            rows = np.flatnonzero(place >= 0)
            if not rows.size:
                continue
            here = network if len(rows) == len(wanted) else links_of_rows(network, rows)
            memo = known if every and known is not None else {}
            off = factors if len(rows) == len(wanted) else factors_of(factors, rows)
            step = self._step(traffic, number, here, wanted[rows], place[rows], ndim, memo, off)
            parts.append((rows, step))
        if len(parts) == 1 and len(parts[0][0]) == len(wanted):
            return parts[0][1]
        return joined_rows(parts, len(wanted), ndim)

    def _step(
        self,
        traffic: Traffic,
        number: int,
        network: Network,
        settings: Indices,
        place: Indices,
        ndim: int,
        known: Known,
        off: Factors,
    ) -> StepTime:
        """Of settings that all send this."""
        timed = self._timed(traffic, network, settings, place, ndim, known, off)
        slower = along_rows(off.computing, settings, ndim)
        trigger_s = slower * self.spec.compute.readback * self.readbacks[number]
        optimizer_s = slower * along_rows(self.optimizer_s[number], settings, ndim)
        compute_s = slower * along_rows(self.compute_s, settings, ndim)
        steps = self.spec.steps
        if self.inside is None:
            return priced_step(compute_s, traffic.exchanges, traffic.patterns, steps, timed, trigger_s, optimizer_s)
        inside = self._inside(number, network, settings, ndim, off)
        each, rare = _each_and_rare(traffic.exchanges)
        first = self.every_step.priced(traffic.buckets, inside.step_s, each, timed)
        busy_s = inside.step_s + first.exposed_communication_s
        of = priced_step(busy_s, rare, calls_by_step(rare, steps), steps, timed, trigger_s, optimizer_s)
        return StepTime(
            inside.compute_s,
            first.communication_s + of.communication_s,
            first.encode_s + of.encode_s,
            trigger_s,
            first.hidden_communication_s + of.hidden_communication_s,
            inside.step_s - inside.compute_s,
            optimizer_s,
        )

    def _timed(
        self,
        traffic: Traffic,
        network: Network,
        settings: Indices,
        place: Indices,
        ndim: int,
        known: Known,
        off: Factors,
    ) -> Callable[[Call], list[PricedCall]]:
        """What prices the calls of settings that all send this."""
        rate = self.spec.compute.encode
        slower = along_rows(off.computing, settings, ndim)

        taken: dict[Any, tuple[FloatOrArray, FloatOrArray, AfterIdling | None]] = {}

        def takes(one: Call) -> tuple[FloatOrArray, FloatOrArray, AfterIdling | None]:
            priced = self.carried(one, network, settings, place, ndim, known)
            workers, size = along_rows(self.replicas, settings, ndim), along_rows(one.payload_bytes, place, ndim)
            workers = workers if one.group is None else np.full_like(workers, len(one.group))
            encode_s = 0.0 if rate is None else slower * along_rows(one.encoded_bytes, place, ndim) / rate
            opening = after_idling(one.collective, workers, size, network, priced.names, priced.chosen)
            longer = None if opening is None else opening.times(off.communication)
            return off.communication * _or_nothing(priced), encode_s, longer

        def timed(call: Call) -> list[PricedCall]:
            out = []
            for one in split(call, self.spec.overlap, traffic.buckets):
                key = told_apart_by(one)
                if key not in taken:
                    taken[key] = takes(one)
                out.append(PricedCall(one, *taken[key]))
            return out

        return timed

    def scheduled(self, number: int, network: Network, known: Known | None = None) -> Scheduled:
        """What a worker of the first setting goes through by a method, which serves it.

        Args:
            number: of the method.
            network: no arrays.
            known: see `step`.
        """
        settings = np.zeros(1, dtype=np.int64)
        traffic = next(one for one in self.traffic[number] if one.place[0] >= 0)
        memo = {} if known is None else known
        timed = self._timed(traffic, network, settings, traffic.place[:1], 1, memo, AS_PREDICTED)
        trigger_s, optimizer_s = self.spec.compute.readback * self.readbacks[number], float(self.optimizer_s[number][0])
        if self.inside is None:
            return Scheduled(float(self.compute_s[0]), traffic.exchanges, timed, trigger_s, optimizer_s)
        busy_s = self._inside(number, network, settings, 1, AS_PREDICTED).step_s
        each, rare = _each_and_rare(traffic.exchanges)
        if each and rare:
            first = self.every_step.priced(traffic.buckets, busy_s, each, timed)
            busy_s = busy_s + first.exposed_communication_s
        return Scheduled(float(np.ravel(busy_s)[0]), rare or each, timed, trigger_s, optimizer_s)

    def inside_times(self, number: int, network: Network) -> InsideTimes | None:
        """What each setting's step takes inside a replica by a method; None where a replica is one worker."""
        if self.inside is None:
            return None
        return self._inside(number, network, np.arange(len(self.specs)), axes_of(network), AS_PREDICTED)

    def _inside(self, number: int, network: Network, settings: Indices, ndim: int, off: Factors) -> InsideTimes:
        assert self.inside is not None
        compute_s = along_rows(off.computing, settings, ndim) * along_rows(self.compute_s, settings, ndim)
        micro = self.held[number].micro_batches
        algorithm = self.spec.algorithm_on(network)
        return self.inside.times(compute_s, micro, self.workers, settings, network, ndim, off, algorithm)

    def carried(
        self, call: Call, network: Network, settings: Indices, place: Indices, ndim: int, known: Known
    ) -> PricedMany:
        """What carries a call, and what it takes."""
        size = along_rows(call.payload_bytes, place, ndim)
        key = call.collective, size.tobytes() if isinstance(size, np.ndarray) else size, settings.tobytes(), call.group
        if key not in known and self.inside is not None and not isinstance(network, Link):
            assert call.group is None or isinstance(call.group, range)
            workers = self.workers[settings].tolist()
            groups = [call.group or self.layout.replica_group(one) for one in workers]
            wanted = self.spec.algorithm_on(network)
            known[key] = carried_by_groups(call.collective, groups, workers, size, network, wanted, self.spec.rule)
        elif key not in known and call.group is not None:
            known[key] = self._among_parts(call, network, settings, ndim)
        elif key not in known:
            workers = along_rows(self.replicas, settings, ndim)
            wanted = self.spec.algorithm_on(network)
            known[key] = carried(call.collective, workers, size, network, wanted, self.spec.rule, played_s)
        return known[key]

    def _among_parts(self, call: Call, network: Network, settings: Indices, ndim: int) -> PricedMany:
        """What a call takes that every part of the workers makes at once; the settings have the same parts.

        Where links differ it is played, by the algorithm that is wanted or, of several, the first.
        """
        assert isinstance(call.group, range)
        wanted = algorithm_of(self.spec.algorithm_on(network), call.collective)
        size = call.payload_bytes
        if isinstance(network, Link):
            workers = np.full(len(settings), len(call.group)).reshape(-1, *(1,) * (ndim - 1))
            return carried(call.collective, workers, size, network, wanted, self.spec.rule, played_s)
        name = wanted if wanted in ALGORITHMS[call.collective] else first_on(call.collective, network)
        together = int(self.workers[settings[0]])
        seconds, way = played_parts_s(
            call.collective, call.group, together, float(size), network, str(name), self.spec.rule
        )
        return PricedMany(np.float64(seconds), (str(name),), np.zeros((), dtype=np.int64), (way,))

    def known_by(self, number: int, network: Network, known: Known) -> tuple[list[str], NDArray[np.int64]]:
        """How the times of a method are known: of its calls, the way that is furthest from a closed form.

        Returns:
            Texts, ``HOW`` first and then why there is no time, and the number of each setting's, ``(S, 1)`` or
            ``(S, n)`` for n links.
        """
        texts = {text: code for code, text in enumerate(HOW)}
        if all(one.ways == (CLOSED_FORM,) for one in known.values()):
            return list(texts), np.zeros((1, 1), dtype=np.int64)
        ndim = axes_of(network)
        links = np.shape(network.bandwidth_bytes_per_s)[-1:] if isinstance(network, Link) else ()
        codes = np.zeros((len(self.specs), *(links or (1,))), dtype=np.int64)
        for traffic in self.traffic[number]:
            here = traffic.settings
            for call in (call for pattern in traffic.patterns for call in pattern.calls):
                for one in split(call, self.spec.overlap, traffic.buckets):
                    priced = self.carried(one, network, here, traffic.place[here], ndim, known)
                    own = np.array([texts.setdefault(text, len(texts)) for text in priced.ways])
                    told = np.reshape(own[priced.known_by], (len(here) if np.ndim(priced.known_by) else 1, -1))
                    codes[here] = np.maximum(codes[here], told)
        return list(texts), codes

    def algorithms(self, number: int, network: Network, known: Known) -> tuple[list[str], NDArray[np.int64]]:
        """Which algorithms carry a method's calls, the largest call's first and each named once.

        Returns:
            Texts, and the number of each setting's, ``(S, 1)`` or ``(S, n)`` for n links.
        """
        ndim = axes_of(network)
        texts: dict[str, int] = {}
        links = np.shape(network.bandwidth_bytes_per_s)[-1:] if isinstance(network, Link) else ()
        codes = np.zeros((len(self.specs), *(links or (1,))), dtype=np.int64)
        for traffic in self.traffic[number]:
            settings = traffic.settings
            place = traffic.place[settings]
            for rows, calls in _largest_first(traffic, place):
                here = settings[rows]
                told, numbers = self._named(calls, network, here, place[rows], ndim, known)
                own = np.array([texts.setdefault(text, len(texts)) for text in told])
                codes[here] = np.reshape(own[numbers], (len(here) if np.ndim(numbers) else 1, -1))
        return list(texts) or [""], codes

    def _named(
        self, calls: Sequence[Call], network: Network, settings: Indices, place: Indices, ndim: int, known: Known
    ) -> tuple[list[str], NDArray[np.int64]]:
        combined: list[tuple[str, ...]] = [()]
        numbers: NDArray[np.int64] = np.zeros((), dtype=np.int64)
        for call in calls:
            whole = call._replace(payload_bytes=1.0 * call.payload_bytes)
            one = self.carried(whole, network, settings, place, ndim, known)
            both = numbers * len(one.names) + one.chosen
            used, inverse = np.unique(both, return_inverse=True)
            numbers = inverse.reshape(both.shape)
            combined = [(*combined[i // len(one.names)], one.names[i % len(one.names)]) for i in used.tolist()]
        return [", ".join(dict.fromkeys(names)) for names in combined], numbers


def _each_and_rare(exchanges: list[Exchange]) -> tuple[list[Exchange], list[Exchange]]:
    """What every step sends inside a replica, which is priced by one step, and what comes after it.

    Where the method itself sends something in every step, too, all is priced together.
    """
    each = [one for one in exchanges if one.part is not None and one.period == 1]
    rare = [one for one in exchanges if one.part is None or one.period != 1]
    return (exchanges, []) if any(one.period == 1 for one in rare) else (each, rare)


def _or_nothing(priced: PricedMany) -> FloatOrArray:
    """What it takes; 0 where nobody knows, which ``known_by`` says."""
    if priced.ways == (CLOSED_FORM,):
        return priced.seconds
    return np.nan_to_num(np.asarray(priced.seconds, dtype=np.float64))


def _compute_s(spec: ProjectSpec) -> float:
    shape, tokens = spec.model, spec.tokens_per_worker
    return float(spec.compute.base_s(_flops(spec), shape.name, samples=tokens / shape.sequence, tokens=tokens))


def _flops(spec: ProjectSpec) -> float:
    flops = spec.model.flops_per_token * spec.tokens_per_worker
    return RECOMPUTED * flops if spec.memory.activations == "recomputed" else flops  # given seconds have it in them


def _optimizer_s(method: MethodBase, tensors: Sequence[TensorShape], spec: ProjectSpec) -> float:
    if not spec.compute.optimizer:
        return 0.0
    return spec.compute.optimizer_s(method, tensors, _compute_s(spec), _flops(spec), spec.model.name)


def _largest_first(traffic: Traffic, place: Indices) -> list[tuple[Indices, list[Call]]]:
    """Calls of all patterns, the largest first; rows of settings apart where that is another order."""
    calls: dict[Any, Call] = {}
    for pattern in traffic.patterns:
        for call in pattern.calls:
            size = call.payload_bytes
            calls.setdefault((call.collective, size.tobytes() if isinstance(size, np.ndarray) else size), call)
    each = list(calls.values())
    if not any(isinstance(call.payload_bytes, np.ndarray) for call in each):
        return [(np.arange(len(place)), sorted(each, key=lambda call: -call.payload_bytes))]
    sizes = np.stack([np.broadcast_to(call.payload_bytes, place.shape) for call in each], axis=1)
    orders, which = np.unique(np.argsort(-sizes, axis=1, kind="stable"), axis=0, return_inverse=True)
    which = which.reshape(-1)
    return [(np.flatnonzero(which == i), [each[j] for j in order]) for i, order in enumerate(orders.tolist())]
