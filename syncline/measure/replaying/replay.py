"""The replay of a record on a network: its programs for the event simulation, and the simulated timeline.

A CPU's host is the device: it waits where the script waits, and streams have no meaning. A GPU's host queues work on
streams and continues: a wait of the script holds a stream, and holds the host only if it reads a value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from syncline.acceleration import paused_garbage_collection
from syncline.costmodel import Hardware, Link, Network, chosen_algorithm
from syncline.costmodel.collectives.hierarchical import first_of_equal_groups
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.collectives.prices import collective_prices, group_algorithm
from syncline.costmodel.collectives.table import OF_GLOO, default_algorithm
from syncline.costmodel.collectives.volumes import most_messages
from syncline.costmodel.compute.operations import Operation, kernel_s
from syncline.costmodel.network.link import among, topology
from syncline.errors import SpecError, require_one_of
from syncline.measure.recording.record import (
    EVERYTHING,
    Computed,
    Event,
    HostWaited,
    Marked,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
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
            raise SpecError("--hardware", f"{MEASURED}:{self.scale}", "a positive factor after 'measured:'")

    @property
    def name(self) -> str:
        """Return the name in the form that a user writes."""
        return MEASURED if self.scale == 1 else f"{MEASURED}:{self.scale:g}"


def parse_computing(machine: Any, path: str) -> Hardware | MeasuredComputing:
    """Return the hardware of a user's option: ``measured``, ``measured:SCALE``, or a hardware's name or fields.

    Errors name the option ``path``.
    """
    if isinstance(machine, str):
        name, _, factor = machine.partition(":")
        if name == MEASURED:
            try:
                return MeasuredComputing(float(factor)) if factor else MeasuredComputing()
            except ValueError:
                raise SpecError(path, machine, "'measured', or 'measured:' and a factor") from None
    return hardware(machine, path)


Host: TypeAlias = Literal["ahead", "waits"]
"""The behaviour of a host while its device is busy."""

HOSTS: tuple[str, ...] = get_args(Host)


def host_behaviour(host: str | None, hardware: Hardware | MeasuredComputing, path: str = "host") -> str:
    """Return the behaviour of the host: ``host`` if it is set; otherwise a CPU's host waits and others run ahead."""
    if host is None:
        is_cpu = isinstance(hardware, MeasuredComputing) or hardware.name.startswith("cpu")  # times measured on a CPU
        return "waits" if is_cpu else "ahead"
    require_one_of(path, host, HOSTS)
    return host


def operations_s(operations: Operations, hardware: Hardware) -> float:
    """Return the seconds of operations that run one after another, each bounded by arithmetic or by memory.

    On a GPU whose kernels are known they are the seconds of these kernels, or the seconds in which the host dispatches
    them if that takes longer. On other hardware they are

        sum of max(FLOPs / (peak x mfu), bytes / bandwidth)

    Source: S. Williams et al., "Roofline" (2009).
    """
    flops_per_s = hardware.peak_flops * hardware.mfu
    memory_bytes_per_s = hardware.memory_bytes_per_s or np.inf  # an unknown bandwidth bounds nothing
    kernels = hardware.kernels
    seconds = 0.0
    for flops, nbytes, kind, precision, shape, causal in operations:
        if kernels is None or (flops and not shape):  # a product without a shape, from another program's trace
            seconds += max(flops / flops_per_s, nbytes / memory_bytes_per_s)
        else:
            (attention_kernel, _, _), *_ = kernels.attention  # the first kernel is the default
            operation = Operation(kind, shape, precision, nbytes, causal)
            seconds += kernel_s(operation, hardware, attention_kernel)
    return seconds if kernels is None else max(seconds, len(operations) * kernels.dispatch_s)


def segment_seconds(record: RankRecord, hardware: Hardware | MeasuredComputing) -> Sequence[float]:
    """Return the computing seconds of each segment of a rank's record, on hardware or as measured."""
    if isinstance(hardware, MeasuredComputing):
        if len(record.segment_cpu_s) != len(record.segments):
            raise SpecError("--hardware", hardware.name, "a hardware, as this record has no measured times")
        return [hardware.scale * cpu_s for cpu_s in record.segment_cpu_s]
    has_operations = any(operation.flops or operation.nbytes for segment in record.segments for operation in segment)
    if record.segments and not has_operations:
        raise SpecError("--hardware", hardware.name, "'measured': the record has seconds and no operations")
    return [operations_s(segment, hardware) for segment in record.segments]


def build_programs(
    ranks: Sequence[RankRecord],
    hardware: Hardware | MeasuredComputing,
    algorithm_of: Callable[[Started], str | None],
    stream_of: Callable[[Started], str],
    host: str = "waits",
    seconds_of: Callable[[Started], float] | None = None,
    computing_factor: float = 1.0,
) -> list[Program]:
    """Return the program of each rank for the event simulation.

    Args:
        algorithm_of: function that returns the algorithm of a collective; None for the default.
        stream_of: function that returns the name of the stream on which a collective runs.
        host: ``waits`` or ``ahead``, see `host_behaviour`.
        seconds_of: function that returns the seconds of a collective; None: simulate its messages.
        computing_factor: factor of the seconds of computing.
    """

    def build_collective(event: Started, step: int) -> Collective:
        """Return the collective to simulate for a recorded call."""
        has_all_ranks = len(event.ranks) == len(ranks)
        return Collective(
            event.kind, event.payload_bytes, event.key, label=event.site, step=step,
            algorithm=algorithm_of(event) if seconds_of is None else None,
            takes_s=None if seconds_of is None else seconds_of(event),
            group=None if has_all_ranks else event.ranks, stream=stream_of(event),
        )  # fmt: skip

    programs: list[Program] = []
    host_runs_ahead = host == "ahead"
    for rank in ranks:
        computing_s = [computing_factor * seconds for seconds in segment_seconds(rank, hardware)]
        builder = _ProgramBuilder(rank, computing_s, build_collective, host_runs_ahead)
        # A host that runs ahead queues instructions on its device's streams; otherwise there is one sequence.
        programs.append(Queued(builder.instructions, builder.streams) if host_runs_ahead else builder.instructions)
    return programs


class _ProgramBuilder:
    """A builder of a rank's program: the instructions of its record, and the name of the stream of each instruction.

    Args:
        rank: the record.
        segment_s: seconds of each segment of the record.
        build_collective: function that returns the instruction of a collective from its event and its step.
        host_runs_ahead: whether the host queues work on its device's streams; if not, it runs all work itself.
    """

    def __init__(
        self,
        rank: RankRecord,
        segment_s: Sequence[float],
        build_collective: Callable[[Started, int], Collective],
        host_runs_ahead: bool,
    ) -> None:
        self.instructions: list[Any] = []
        self.streams: list[str] = []
        self._segment_s, self._build_collective = segment_s, build_collective
        self._host_runs_ahead = host_runs_ahead
        self._waits: dict[int, Wait | Recv | None] = {}  # the wait for each call; None if nothing is to be waited for
        self._line_of_call: dict[int, str] = {}  # the line of the script that made the call
        # A wait for a mark is charged to the script line whose call the marked stream has waited for last.
        self._last_awaited_line: dict[int, str] = {}  # by stream: the line of the call of its last wait
        self._line_of_mark: dict[int, str] = {}  # the line to charge for a wait for the mark
        self._awaited_marks = {event.mark for event in rank.events if isinstance(event, StreamWaited | HostWaited)}
        for step, event in rank.by_step():
            self._add(event, step)

    def _append(self, instruction: Any, stream: int) -> None:
        """Append an instruction, with the name of the stream on which it is queued; stream 0 is the default stream."""
        self.instructions.append(instruction)
        self.streams.append(f"compute {stream}" if stream else "compute")

    def _add(self, event: Event, step: int) -> None:
        """Append the instruction that a recorded event stands for."""
        if isinstance(event, Computed):
            self._append(Compute(self._segment_s[event.segment], step=step), event.stream)
        elif isinstance(event, Started):
            is_single_rank = len(event.ranks) < 2
            self._waits[event.call] = None if is_single_rank else Wait(event.key, step=step)
            self._line_of_call[event.call] = event.site
            if not is_single_rank:
                self._append(self._build_collective(event, step), event.stream)
        elif isinstance(event, MessageSent):
            self._append(Send(event.to, event.payload_bytes, event.tag, step, label=event.site), event.stream)
            self._waits[event.call] = None  # the sender goes on at once
        elif isinstance(event, MessageAwaited):
            self._waits[event.call] = Recv(event.source, event.tag, step, label=event.site)
            self._line_of_call[event.call] = event.site
        elif isinstance(event, Waited):
            wait = self._waits.get(event.call)
            if wait is not None:
                self._append(wait, event.stream)
                self._last_awaited_line[event.stream] = self._line_of_call[event.call]
                # One wait suffices for a host that waits itself, and a message is received only once. If the host runs
                # ahead, other streams may wait for the same collective.
                if not self._host_runs_ahead or isinstance(wait, Recv):
                    self._waits[event.call] = None
        elif self._host_runs_ahead:  # a host that runs all work itself has one sequence, in which marks have no effect
            self._add_mark_or_wait(event, step)

    def _add_mark_or_wait(self, event: Event, step: int) -> None:
        """Append a mark of a stream, or a wait for a mark by a stream or by the host."""
        if isinstance(event, Marked):
            if event.mark in self._awaited_marks:  # other marks have no effect
                self._append(StreamMark(event.mark), event.stream)
            self._line_of_mark[event.mark] = self._last_awaited_line.get(event.stream, "")
        elif isinstance(event, StreamWaited):
            line = self._line_of_mark.get(event.mark, "")
            self._append(StreamWait(event.mark, line, step), event.stream)
            if line:
                self._last_awaited_line[event.stream] = line
        elif isinstance(event, HostWaited):
            mark = None if event.mark == EVERYTHING else event.mark  # None: all work that is queued so far
            line = self._line_of_mark.get(event.mark, "")
            self._append(HostWait(mark, line, step), stream=0)


MAX_SIMULATED_MESSAGES = 500_000
"""Largest number of messages of a record that are simulated one by one; above it, closed forms replace the simulation.

Messages of many small groups take up to 12 us each, so a replay takes up to 6 s longer than by closed forms. `whatif`
replays a record dozens of times."""

MAX_SIMULATED_RANKS = 32
"""Largest number of ranks whose collectives are simulated message by message, however many messages they have."""


def is_simulated(ranks: Sequence[RankRecord], network: Network, algorithm_of: Callable[[Started], str | None]) -> bool:
    """Return whether the messages of collectives are simulated one by one: for few ranks, or for few messages.

    ``algorithm_of`` returns the algorithm of a collective; None for the default.
    """
    if len(ranks) <= MAX_SIMULATED_RANKS:
        return True

    @cache
    def messages_per_rank(kind: str, group_size: int, algorithm: str, nbytes: float) -> float:
        return most_messages(kind, algorithm, group_size, network, nbytes) / group_size

    num_messages = 0.0
    num_ranks_with = Counter(map(id, ranks))  # by the id of a record, which equivalent ranks may share
    for record in {id(rank): rank for rank in ranks}.values():
        for event in record.events:
            if isinstance(event, Started):
                algorithm = algorithm_of(event) or default_algorithm(event.kind, network)
                sent_by_rank = messages_per_rank(event.kind, len(event.ranks), algorithm, event.payload_bytes)
                num_messages += num_ranks_with[id(record)] * sent_by_rank
    return num_messages <= MAX_SIMULATED_MESSAGES


def algorithm_chooser(network: Network, workers: int, policy: str | None) -> Callable[[Started], str | None]:
    """Return a function that returns the algorithm of a collective, or None for the simulator's default.

    Args:
        policy: an algorithm or a policy such as ``auto``; None: the default. The default also applies to a group for
            which `group_algorithm` finds no algorithm.
    """

    @cache
    def choose_algorithm(kind: str, ranks: tuple[int, ...], nbytes: float) -> str | None:
        if policy is None:
            return None
        nbytes = max(nbytes, 1.0)  # an empty message has no fastest algorithm
        has_own_paths = len(ranks) < workers and not isinstance(network, Link)  # on a link all groups are alike
        if has_own_paths or policy == "auto":  # the algorithm whose simulated time is shortest
            group = ranks if has_own_paths else range(workers)
            return group_algorithm(kind, group, workers, nbytes, network, algorithms=policy, timer=simulated_s)
        return chosen_algorithm(policy, kind, workers=len(ranks), nbytes=nbytes, network=network)

    return lambda event: choose_algorithm(event.kind, event.ranks, event.payload_bytes)


GLOO_THREADS = 2
"""Number of threads that torch starts for each group of gloo: collectives of one group run two at a time."""


def stream_chooser(network: Network, algorithm_of: Callable[[Started], str | None]) -> Callable[[Started], str]:
    """Return a function that returns the stream on which a collective runs.

    Each group has one stream; with gloo it has two, because torch starts two threads for each group of gloo.
    """

    def stream_of(event: Started) -> str:
        group_name, number = event.key
        algorithm = algorithm_of(event) or default_algorithm(event.kind, network)
        if algorithm in OF_GLOO[event.kind]:  # gloo's threads take the calls by turns
            return f"group {group_name}, {number % GLOO_THREADS + 1}"
        return f"group {group_name}"

    return stream_of


@dataclass(frozen=True)
class Replayed:
    """The simulation of a recorded training on a network.

    Args:
        step_end_s: the seconds at which the last rank ended each step, ``(T,)``.
    """

    timeline: Timeline
    step_end_s: np.ndarray


def replay(
    ranks: Sequence[RankRecord],
    network: Network,
    hardware: Hardware | MeasuredComputing,
    algorithm: str | None = None,
    host: str | None = None,
    computing_factor: float = 1.0,
) -> Replayed:
    """Simulate a record on a network, and return its timeline.

    Args:
        algorithm: algorithm of all collectives; None: those of the network's library, without a library ``auto``.
        host: ``ahead`` or ``waits``; None: the behaviour of the hardware's hosts.
        computing_factor: factor of the seconds of computing, of a GPU's host as of the GPU.

    Raises:
        SpecError: the network cannot join the ranks, or the ranks neither compute nor communicate.
    """
    policy = algorithm_or_auto(algorithm, network)
    with paused_garbage_collection():
        algorithm_of = algorithm_chooser(network, len(ranks), policy)
        seconds_of = None  # messages are simulated
        if not is_simulated(ranks, network, algorithm_of):
            seconds_of = collective_timer(network, len(ranks), policy)
        stream_of = stream_chooser(network, algorithm_of)
        host_mode = host_behaviour(host, hardware)
        programs = build_programs(
            ranks, hardware, algorithm_of, stream_of, host=host_mode, seconds_of=seconds_of,
            computing_factor=computing_factor,
        )  # fmt: skip
        timeline = run_events(programs, network)
    if not len(timeline.end_s):
        raise SpecError("script", "neither computing nor communication", "one that computes or communicates")
    steps = max((rank.steps for rank in ranks), default=0)
    # A step ends with its last span of computing or waiting; a transfer may outlast its step, so it does not count.
    is_in_step = timeline.on_compute & (timeline.step < steps)  # work after the last step has the number ``steps``
    last_end_s = np.zeros(steps)
    np.maximum.at(last_end_s, timeline.step[is_in_step], timeline.end_s[is_in_step])
    return Replayed(timeline, step_end_s=np.maximum.accumulate(last_end_s))


def collective_timer(network: Network, workers: int, policy: str | None) -> Callable[[Started], float]:
    """Return a function that returns the seconds of a collective of any group, without simulating each message.

    As in projections, all groups of the same kind call the collective at the same time, and share network cards and
    uplinks (see `collective_prices`). A group of ranks at unequal distances is simulated by itself.

    ``policy``: algorithm or policy; None: the algorithm of the network's library.
    """

    @cache
    def simultaneous_groups_s(kind: str, nbytes: float, first_group: range) -> float:
        prices = collective_prices(
            kind, np.array([workers]), nbytes, network, policy, timer=simulated_s, groups=[first_group]
        )
        return np.asarray(prices.seconds).item()

    @cache
    def single_group_s(kind: str, nbytes: float, ranks: tuple[int, ...]) -> float:
        group_topology = among(topology(network, workers), ranks)
        name = chosen_algorithm(policy, kind, workers=len(ranks), nbytes=max(nbytes, 1.0), network=group_topology)
        return float(collective_finish_s(kind, len(ranks), nbytes, network=group_topology, algorithm=name).max())

    def seconds_of(event: Started) -> float:
        first_group = first_of_equal_groups(event.ranks, workers)  # None for ranks at unequal distances
        if first_group is not None:
            seconds = simultaneous_groups_s(event.kind, event.payload_bytes, first_group)
            if not math.isnan(seconds):  # NaN: the network cannot join such groups
                return seconds
        return single_group_s(event.kind, event.payload_bytes, event.ranks)

    return seconds_of
