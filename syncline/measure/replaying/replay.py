"""The replay of a record on a network: its programs for the event simulation, and the simulated timeline.

A CPU's host is the device: it waits where the script waits, and streams have no meaning. A GPU's host queues work on
streams and continues: a wait of the script holds a stream, and holds the host only if it reads a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from syncline.acceleration import paused_garbage_collection
from syncline.costmodel import Hardware, Link, Network, chosen_algorithm
from syncline.costmodel.collectives.hierarchical import first_group_like
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.collectives.prices import collective_prices, group_algorithm
from syncline.costmodel.collectives.table import OF_GLOO, default_algorithm
from syncline.costmodel.compute.operations import Operation, operation_s
from syncline.costmodel.network.link import among, topology
from syncline.errors import SpecError, one_of
from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    Counted,
    HostWaited,
    Marked,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.sim import (
    Collective,
    Compute,
    HostWait,
    Program,
    Queued,
    Recv,
    Send,
    StreamMark,
    StreamWait,
    Timeline,
    Wait,
    collective_finish_s,
    run_events,
)
from syncline.sim.clocks.single_collective import simulated_s
from syncline.specs import hardware

MEASURED = "measured"
"""The word in the place of a hardware's name; ``measured:0.5`` halves the seconds."""


@dataclass(frozen=True)
class MeasuredComputing:
    """The computing times measured in the recording, in the place of hardware; ``scale`` is a factor on them."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < float("inf"):
            raise SpecError("--hardware", f"{MEASURED}:{self.scale}", "a positive factor behind 'measured:'")

    @property
    def name(self) -> str:
        """Return the name in the form that a user writes."""
        return MEASURED if self.scale == 1 else f"{MEASURED}:{self.scale:g}"


def computing_on(machine: Any, path: str) -> Hardware | MeasuredComputing:
    """Return the hardware that a user names: ``measured``, ``measured:SCALE``, or a hardware."""
    name, _, scale = machine.partition(":") if isinstance(machine, str) else ("", "", "")
    if name != MEASURED:
        return hardware(machine, path)
    try:
        return MeasuredComputing(float(scale) if scale else 1.0)
    except ValueError:
        raise SpecError(path, machine, "'measured', or 'measured:' and a factor") from None


Host: TypeAlias = Literal["ahead", "waits"]
"""The behaviour of a host while its device is busy."""

HOSTS: tuple[str, ...] = get_args(Host)


def known_host(host: str | None, hardware: Hardware | MeasuredComputing, path: str = "host") -> str:
    """Return the behaviour of the host: ``host`` if it is set; otherwise a CPU's host waits and others run ahead."""
    if host is None:
        return "waits" if isinstance(hardware, MeasuredComputing) or hardware.name.startswith("cpu") else "ahead"
    if host not in HOSTS:
        raise SpecError(path, host, one_of(HOSTS, host))
    return host


def operations_s(operations: Operations, on: Hardware) -> float:
    """Return the seconds of operations that run one after another, each bounded by arithmetic or by memory.

    On a GPU whose kernels are known they are the seconds of these kernels, and at least those in which the host
    dispatches them. On other hardware they are

        sum of max(FLOPs / (peak x mfu), bytes / bandwidth)

    Source: S. Williams et al., "Roofline" (2009).
    """
    rate, memory = on.peak_flops * on.mfu, on.memory_bytes_per_s or np.inf
    rates = on.kernels

    def taken_s(operation: Counted) -> float:
        flops, nbytes, kind, precision, shape, causal = operation
        if rates is None or (flops and not shape):  # other programs' traces have no shapes
            return max(flops / rate, nbytes / memory)
        return operation_s(Operation(kind, shape, precision, nbytes, causal), on, rates.attention[0][0])

    device_s = float(sum(taken_s(operation) for operation in operations))
    return device_s if rates is None else max(device_s, len(operations) * rates.dispatch_s)


def segment_seconds(record: RankRecord, on: Hardware | MeasuredComputing) -> Sequence[float]:
    """Return the computing seconds of each segment of a rank's record, on hardware or as measured."""
    if isinstance(on, Hardware):
        if record.segments and not any(
            operation.flops or operation.nbytes for segment in record.segments for operation in segment
        ):
            raise SpecError("--hardware", on.name, "'measured': the record has seconds and no operations")
        return [operations_s(segment, on) for segment in record.segments]
    if len(record.segment_cpu_s) != len(record.segments):
        raise SpecError("--hardware", on.name, "a hardware: nothing was measured of this record")
    return [on.scale * segment for segment in record.segment_cpu_s]


def programs_of(
    ranks: Sequence[RankRecord],
    hardware: Hardware | MeasuredComputing,
    algorithm: Callable[[Started], str | None],
    stream: Callable[[Started], str],
    host: str = "waits",
    price: Callable[[Started], float] | None = None,
) -> list[Program]:
    """Return the program of each rank for the event simulation.

    Args:
        ranks: the record of each rank.
        hardware: the hardware that computes, or the measured seconds.
        algorithm: function that returns the algorithm of a collective.
        stream: function that returns the stream of a collective.
        host: one of ``HOSTS``.
        price: function that returns the seconds of a collective; None: its messages are simulated.
    """

    def collective(event: Started, step: int) -> Collective:
        """Return the collective to simulate for a recorded call; its duration is fixed if calls have prices."""
        return Collective(
            event.kind, event.payload_bytes, event.key, label=event.site, step=step,
            algorithm=None if price else algorithm(event),
            group=None if len(event.ranks) == len(ranks) else event.ranks, takes_s=price(event) if price else None,
            stream=stream(event),
        )  # fmt: skip

    programs: list[Program] = []
    for rank in ranks:
        translated = _Translated(rank, segment_seconds(rank, hardware), collective, ahead=host == "ahead")
        programs.append(
            Queued(translated.instructions, translated.streams) if host == "ahead" else translated.instructions
        )
    return programs


class _Translated:
    """A rank's record as instructions, with the stream of each.

    Args:
        rank: the record.
        seconds: seconds of each segment of the record.
        collective: function that returns the instruction of a collective from its event and its step.
        ahead: whether the host runs ahead.
    """

    def __init__(
        self, rank: RankRecord, seconds: Sequence[float], collective: Callable[[Started, int], Collective], ahead: bool
    ) -> None:
        """Translate the events of a rank into instructions, in their order."""
        self.instructions: list[Any] = []
        self.streams: list[str] = []
        self._seconds, self._collective, self._ahead = seconds, collective, ahead
        self._waits: dict[int, Wait | Recv | None] = {}  # the wait for each call; None if nothing is to be waited for
        self._sites: dict[int, str] = {}  # script line of each call
        self._awaited_sites: dict[int, str] = {}  # script line of the call for which each stream has waited last
        self._mark_sites: dict[int, str] = {}  # the same for the stream of each mark
        self._awaited_marks = {event.mark for event in rank.events if isinstance(event, StreamWaited | HostWaited)}
        step = 0
        for event in rank.events:
            if type(event) is Stepped:
                step += 1
            else:
                self._add(event, step)

    def _put(self, instruction: Any, stream: int) -> None:
        """Append an instruction, with the number of the stream on which it is queued."""
        self.instructions.append(instruction)
        self.streams.append(f"compute {stream}" if stream else "compute")

    def _add(self, event: Any, step: int) -> None:
        """Append the instruction that a recorded event stands for."""
        kind = type(event)
        if kind is Computed:
            self._put(Compute(self._seconds[event.segment], step=step), event.stream)
        elif kind is Started:
            self._waits[event.call] = None if len(event.ranks) < 2 else Wait(event.key, step=step)
            self._sites[event.call] = event.site
            if len(event.ranks) > 1:
                self._put(self._collective(event, step), event.stream)
        elif kind is MessageSent:
            self._put(Send(event.to, event.payload_bytes, event.tag, step, label=event.site), event.stream)
            self._waits[event.call] = None  # a sent buffer is free at once
        elif kind is MessageAwaited:
            self._waits[event.call] = Recv(event.source, event.tag, step, label=event.site)
            self._sites[event.call] = event.site
        elif kind is Waited:
            wait = self._waits.get(event.call)
            if wait is not None:
                self._put(wait, event.stream)
                self._awaited_sites[event.stream] = self._sites[event.call]
                if not self._ahead or isinstance(wait, Recv):  # all later events find the message received
                    self._waits[event.call] = None
        elif self._ahead:
            self._add_mark_or_wait(event, step)

    def _add_mark_or_wait(self, event: Any, step: int) -> None:
        """Append a mark, or a wait of a stream or of the host for a mark."""
        kind = type(event)
        if kind is Marked:
            if event.mark in self._awaited_marks:
                self._put(StreamMark(event.mark), event.stream)
            self._mark_sites[event.mark] = self._awaited_sites.get(event.stream, "")
        elif kind is StreamWaited:
            site = self._mark_sites.get(event.mark, "")
            self._put(StreamWait(event.mark, site, step), event.stream)
            if site:
                self._awaited_sites[event.stream] = site
        elif kind is HostWaited:
            site = self._mark_sites.get(event.mark, "")
            self._put(HostWait(None if event.mark == EVERYTHING else event.mark, site, step), 0)


MOST_PLAYED = 32
"""Largest number of ranks whose collectives are simulated message by message, before closed forms replace it."""


def algorithms_on(network: Network, workers: int, policy: str | None) -> Callable[[Started], str | None]:
    """Return a function that returns the algorithm of a collective, or None for the simulator's default.

    The default holds if ``policy`` is None, and for groups whose fastest algorithm no closed form gives.
    """

    @cache
    def chosen(kind: str, ranks: tuple[int, ...], nbytes: float) -> str | None:
        """Return the algorithm that the policy chooses for a collective; None leaves the choice to the network."""
        if policy is None:
            return None
        nbytes = max(nbytes, 1.0)  # an empty message has no fastest algorithm
        is_part = len(ranks) < workers and not isinstance(network, Link)
        if is_part or policy == "auto":
            group = ranks if is_part else range(workers)
            return group_algorithm(kind, group, workers, nbytes, network, algorithms=policy, timer=simulated_s)
        return chosen_algorithm(policy, kind, workers=len(ranks), nbytes=nbytes, network=network)

    return lambda event: chosen(event.kind, event.ranks, event.payload_bytes)


def streams_on(network: Network, algorithm: Callable[[Started], str | None]) -> Callable[[Started], str]:
    """Return a function that returns the stream on which a collective runs.

    Each group has one stream; with gloo it has two, because torch starts two threads for each group of gloo.
    """

    def stream(event: Started) -> str:
        name = f"group {event.key[0]}"
        algorithm_name = algorithm(event) or default_algorithm(event.kind, network)
        return f"{name}, {event.key[1] % GLOO_THREADS + 1}" if algorithm_name in OF_GLOO[event.kind] else name

    return stream


GLOO_THREADS = 2
"""Number of threads that torch starts for each group of gloo: collectives of one group run two at a time."""


@dataclass(frozen=True)
class Replayed:
    """The simulation of a recorded training on a network.

    Args:
        timeline: the simulated spans.
        step_end_s: the seconds at which each step ended on the last rank that had it, ``(T,)``.
    """

    timeline: Timeline
    step_end_s: np.ndarray


def replay(
    ranks: Sequence[RankRecord],
    network: Network,
    hardware: Hardware | MeasuredComputing,
    algorithm: str | None = None,
    host: str | None = None,
) -> Replayed:
    """Simulate a record on a network, and return its timeline.

    Args:
        algorithm: algorithm of all collectives; None: ``auto``, or that of the network's library.
        host: ``ahead`` or ``waits``; None: as hosts of the hardware do.

    Raises:
        SpecError: the network cannot join the ranks, or the ranks neither compute nor communicate.
    """
    policy = algorithm_or_auto(algorithm, network)
    price = group_price(network, len(ranks), policy) if len(ranks) > MOST_PLAYED else None
    with paused_garbage_collection():
        algorithm_of = algorithms_on(network, len(ranks), policy)
        stream_of = streams_on(network, algorithm_of)
        programs = programs_of(ranks, hardware, algorithm_of, stream_of, known_host(host, hardware), price)
        timeline = run_events(programs, network)
    steps = max((rank.steps for rank in ranks), default=0)
    if not len(timeline.end_s):
        raise SpecError("script", "no computing and no communication", "one that computes or communicates")
    ends = np.zeros(steps + 1)
    np.maximum.at(ends, np.minimum(timeline.step, steps), timeline.end_s * timeline.on_compute)
    step_end_s = np.maximum.accumulate(ends)[:steps]
    return Replayed(timeline, step_end_s)


def group_price(network: Network, workers: int, policy: str | None) -> Callable[[Started], float]:
    """Return a function that returns the seconds of a collective of any group, without simulating each message.

    The price is that of projections (`collective_prices`): all groups like this one call the collective at the same
    time, and share cards and uplinks. A group that no others are like is simulated by itself.

    Args:
        network: the network of all workers.
        workers: number of workers P.
        policy: algorithm or policy; None: that of the network's library.
    """

    @cache
    def of_groups_s(kind: str, nbytes: float, group: range) -> float:
        among_all = np.array([workers])
        prices = collective_prices(kind, among_all, nbytes, network, policy, timer=simulated_s, groups=[group])
        return np.asarray(prices.seconds).item()

    @cache
    def alone_s(kind: str, nbytes: float, ranks: tuple[int, ...]) -> float:
        group_topology = among(topology(network, workers), ranks)
        name = chosen_algorithm(policy, kind, workers=len(ranks), nbytes=max(nbytes, 1.0), network=group_topology)
        return float(collective_finish_s(kind, len(ranks), nbytes, network=group_topology, algorithm=name).max())

    def price_s(event: Started) -> float:
        group = first_group_like(event.ranks, workers)
        seconds = math.nan if group is None else of_groups_s(event.kind, event.payload_bytes, group)
        return alone_s(event.kind, event.payload_bytes, event.ranks) if math.isnan(seconds) else seconds

    return price_s
