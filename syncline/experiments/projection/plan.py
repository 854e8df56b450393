"""What a projection needs to know of settings that share a model and its methods, to price them on any network at once.

A *setting* is a number of workers on some hardware. What is computed for settings has them along the first axis of its
arrays, and networks along the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel import ALGORITHMS, Link, Network, StepTime
from syncline.costmodel.arrays import FloatOrArray, Indices
from syncline.costmodel.collectives.many import CLOSED_FORM, PricedMany, carried
from syncline.costmodel.collectives.opening import after_idling
from syncline.costmodel.collectives.policies import algorithm_of
from syncline.costmodel.collectives.table import first_on
from syncline.costmodel.traffic.call import Call
from syncline.costmodel.traffic.overlap import PricedCall, split
from syncline.costmodel.traffic.step_time import priced_step
from syncline.errors import within
from syncline.experiments.bounds import AS_PREDICTED, Factors
from syncline.experiments.projection.held import Held, room_of
from syncline.experiments.projection.once import once_each
from syncline.experiments.projection.played import HOW, played_parts_s, played_s
from syncline.experiments.projection.sharing import carried_and_held
from syncline.experiments.projection.traffic import Traffic
from syncline.methods import MethodBase, tensors_of
from syncline.specs import ProjectSpec

Known = dict[Any, PricedMany]
"""Collectives of one network that are priced, for all methods that send the same."""


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
        self.tensors = tensors_of(self.spec.model.tensors)
        self.able = np.ones((len(specs), len(self.methods)), dtype=bool)
        for index, spec in enumerate(specs):
            if len(spec.methods) < len(self.methods):
                here = set(map(id, spec.methods))
                self.able[index] = [id(method) in here for method in asked]
        self.readbacks = [method.readbacks(self.tensors) for method in self.methods]
        self.traffic: list[list[Traffic]] = []
        self.held: list[Held] = []
        room = room_of(specs)
        for number, method in enumerate(self.methods):
            with within(f"methods.{number}"):
                traffic, how = carried_and_held(
                    self.specs, method, self.tensors, self.workers, self.able[:, number], room
                )
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
        ndim = _axes(network)
        every = settings is None
        wanted = np.arange(len(self.specs)) if settings is None else settings
        parts = []
        for traffic in self.traffic[number]:
            place = traffic.place[wanted]
            rows = np.flatnonzero(place >= 0)
            if not rows.size:
                continue
            here = network if len(rows) == len(wanted) else _taken(network, rows)
            memo = known if every and known is not None else {}
            off = factors if len(rows) == len(wanted) else _factors_of(factors, rows)
            step = self._step(traffic, number, here, wanted[rows], place[rows], ndim, memo, off)
            parts.append((rows, step))
        if len(parts) == 1 and len(parts[0][0]) == len(wanted):
            return parts[0][1]
        return _together(parts, len(wanted), ndim)

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
        rate = self.spec.compute.encode
        slower = _along(off.computing, settings, ndim)

        def timed(call: Call) -> list[PricedCall]:
            out = []
            for one in split(call, self.spec.overlap, traffic.buckets):
                priced = self.carried(one, network, settings, place, ndim, known)
                workers, size = _along(self.workers, settings, ndim), _along(one.payload_bytes, place, ndim)
                workers = workers if one.group is None else np.full_like(workers, len(one.group))
                encode_s = 0.0 if rate is None else slower * _along(one.encoded_bytes, place, ndim) / rate
                opening = after_idling(one.collective, workers, size, network, priced.names, priced.chosen)
                longer = None if opening is None else opening.times(off.communication)
                out.append(PricedCall(one, off.communication * _or_nothing(priced), encode_s, longer))
            return out

        trigger_s = slower * self.spec.compute.readback * self.readbacks[number]
        compute_s = slower * _along(self.compute_s, settings, ndim)
        return priced_step(compute_s, traffic.exchanges, traffic.patterns, self.spec.steps, timed, trigger_s)

    def carried(
        self, call: Call, network: Network, settings: Indices, place: Indices, ndim: int, known: Known
    ) -> PricedMany:
        """What carries a call, and what it takes."""
        size = _along(call.payload_bytes, place, ndim)
        key = call.collective, size.tobytes() if isinstance(size, np.ndarray) else size, settings.tobytes(), call.group
        if key not in known and call.group is not None:
            known[key] = self._among_parts(call, network, settings, ndim)
        elif key not in known:
            workers = _along(self.workers, settings, ndim)
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
        ndim = _axes(network)
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
        ndim = _axes(network)
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


def _factors_of(factors: Factors, rows: Indices) -> Factors:
    """Those of some settings, where communication has one for each."""
    of = factors.communication
    return factors._replace(communication=of[rows] if isinstance(of, np.ndarray) and np.ndim(of) == 2 else of)


def _or_nothing(priced: PricedMany) -> FloatOrArray:
    """What it takes; 0 where nobody knows, which ``known_by`` says."""
    if priced.ways == (CLOSED_FORM,):
        return priced.seconds
    return np.nan_to_num(np.asarray(priced.seconds, dtype=np.float64))


def _compute_s(spec: ProjectSpec) -> float:
    shape, tokens = spec.model, spec.tokens_per_worker
    flops = shape.flops_per_token * tokens
    return float(spec.compute.base_s(flops, shape.name, samples=tokens / shape.sequence, tokens=tokens))


def _axes(network: Network) -> int:
    """Of the arrays of what is priced there."""
    return max([1, *map(np.ndim, network.arrays.values())]) if isinstance(network, Link) else 1


def _along(values: Any, rows: Indices, ndim: int) -> Any:
    """A number, or those of the rows of an array, along the first of so many axes."""
    return values[rows].reshape(-1, *(1,) * (ndim - 1)) if isinstance(values, np.ndarray) else values


def _taken(network: Network, rows: Indices) -> Network:
    """The links of some settings, where there is one for each."""
    if not isinstance(network, Link):
        return network
    return network.with_numbers({name: value[rows] for name, value in network.arrays.items() if len(value) > 1})


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


def _together(parts: Sequence[tuple[Indices, StepTime]], count: int, ndim: int) -> StepTime:
    """One for all settings; nothing where a method is left out."""
    names = ("compute_s", "communication_s", "encode_s", "trigger_s", "hidden_communication_s")
    told: dict[str, NDArray[np.float64]] = {}
    for name in names:
        pieces = [(rows, np.asarray(getattr(step, name), dtype=np.float64)) for rows, step in parts]
        shape = np.broadcast_shapes((1,) * (ndim - 1), *(piece.shape[1:] for _, piece in pieces))
        told[name] = np.zeros((count, *shape))
        for rows, piece in pieces:
            told[name][rows] = piece
    return StepTime(**told)
