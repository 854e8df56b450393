"""The network and hardware on which a record is replayed, and what other links, hardware or software would change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from syncline.costmodel import Hardware, Network
from syncline.costmodel.network.network_links import scaled, slow_down
from syncline.errors import SpecError
from syncline.measure.recording.record import (
    Computed,
    Counted,
    Event,
    HostWaited,
    Lost,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
    Stepped,
    Waited,
)
from syncline.measure.replaying.replay import MeasuredComputing, computing_on, known_host
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.specs import hardware_fields, network, network_fields
from syncline.specs.clock import parse_algorithm
from syncline.specs.experiment import check_distinct

FUSED = 2
"""Kernels that a compiler makes of a run of elementwise operations: one up to a reduction, and one behind it."""


def compiled(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record whose elementwise operations a compiler has fused.

    Of the operations between two products, the `FUSED` ones that move most bytes remain: they read and write what the
    fused kernels read and write.
    """
    return [dataclasses.replace(rank, segments=[_fused(segment) for segment in rank.segments]) for rank in ranks]


@cache
def _fused(operations: Operations) -> Operations:
    """Return products, and of the operations between two products the `FUSED` ones that move most bytes."""
    fused: list[Counted] = []
    elementwise: list[Counted] = []  # since the last product
    for operation in (*operations, None):
        if operation is not None and not operation.flops:
            elementwise.append(operation)
            continue
        fused += sorted(elementwise, key=lambda other: -other.nbytes)[:FUSED]
        elementwise = []
        if operation is not None:
            fused.append(operation)
    return tuple(fused)


def with_async_tp(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record in which collectives for which a stream waits at once overlap with the computing beside them.

    Such collectives of some ranks are those of tensor parallelism. A gather then runs beside the computing behind it,
    a reduce-scatter beside the computing before it, as if both were cut into pieces (asynchronous tensor parallelism).
    """

    def overlapped(rank: RankRecord) -> list[Event]:
        """Move the start of each collective that is awaited at once before the computing beside it."""
        events = list(rank.events)
        for index in range(1, len(events) - 2):
            before, started, waited, behind = events[index - 1 : index + 3]
            if not (isinstance(started, Started) and isinstance(waited, Waited) and waited.call == started.call):
                continue
            if started.stream != waited.stream or len(started.ranks) == len(ranks):
                continue
            if started.kind == "reduce_scatter" and isinstance(before, Computed) and before.stream == started.stream:
                events[index - 1 : index + 1] = started, before
            elif isinstance(behind, Computed) and behind.stream == started.stream:
                events[index + 1 : index + 3] = behind, waited
        return events

    return [dataclasses.replace(rank, events=overlapped(rank)) for rank in ranks]


def without_overlap(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record on one stream in which every collective is waited for immediately after its start.

    Messages stay as they are, because a worker that waits for a message before it sends its own may wait for ever.
    """

    def at_once(rank: RankRecord) -> list[Event]:
        """Return a rank's events in which the host waits for each collective as soon as it has started it."""
        events: list[Event] = []
        calls: set[int] = set()
        for event in rank.events:
            if isinstance(event, Waited) and event.call in calls:
                continue
            blocking_event = event if isinstance(event, HostWaited | Stepped | Lost) else event._replace(stream=0)
            events.append(blocking_event)
            if isinstance(blocking_event, Started):
                calls.add(blocking_event.call)
                events.append(Waited(blocking_event.call))
        return events

    return [dataclasses.replace(rank, events=at_once(rank)) for rank in ranks]


def without_site(ranks: Sequence[RankRecord], site: str) -> list[RankRecord]:
    """Return a record without the communication of one line of the script, and without the waits for it."""
    tags = {
        event.tag
        for rank in ranks
        for event in rank.events
        if isinstance(event, MessageSent | MessageAwaited) and event.site == site
    }

    def remaining(rank: RankRecord) -> list[Event]:
        """Return a rank's events without the calls of the line, and without the waits for these calls."""
        events: list[Event] = []
        removed: set[int] = set()
        for event in rank.events:
            of_line = isinstance(event, Started) and event.site == site
            of_line |= isinstance(event, MessageSent | MessageAwaited) and event.tag in tags
            if of_line:
                removed.add(event.call)  # type: ignore[union-attr]
            elif not (isinstance(event, Waited) and event.call in removed):
                events.append(event)
        return events

    return [dataclasses.replace(rank, events=remaining(rank)) for rank in ranks]


@dataclass(frozen=True)
class Changes:
    """Changes to a record, and to the described network and hardware.

    Args:
        bandwidth: factor on all links' bandwidth.
        latency: factor on all links' latency.
        compute: factor on the hardware's speed, for arithmetic and memory alike.
        overlap: whether calls overlap with computing, as in the script; if not, each call is waited for at once.
        compiled: whether a compiler joins elementwise operations.
        async_tp: whether collectives that the script waits for at once overlap with the products beside them.
    """

    bandwidth: float = 1.0
    latency: float = 1.0
    compute: float = 1.0
    overlap: bool = True
    compiled: bool = False
    async_tp: bool = False

    def __post_init__(self) -> None:
        for name in ("bandwidth", "latency", "compute"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SpecError(f"--scale-{name}", getattr(self, name), "a positive number")

    def describe(self) -> str:
        """Return the changes as text for people; an empty text if nothing is changed.

        >>> Changes(bandwidth=0.5, overlap=False).describe()
        'bandwidth x0.5, no overlap'
        """
        factors = {name: getattr(self, name) for name in ("bandwidth", "latency", "compute")}
        changes = [f"{name} x{factor:g}" for name, factor in factors.items() if factor != 1]
        flags = {"no overlap": not self.overlap, "compiled": self.compiled, "async TP": self.async_tp}
        return ", ".join([*changes, *(word for word, is_set in flags.items() if is_set)])

    def record(self) -> dict[str, Any]:
        """Return the changes as fields of a row."""
        scales = {f"scale_{name}": getattr(self, name) for name in ("bandwidth", "latency", "compute")}
        return scales | {"overlap": self.overlap, "compiled": self.compiled, "async_tp": self.async_tp}

    def of_record(self, ranks: Sequence[RankRecord]) -> list[RankRecord]:
        """Return a record with the changes of software: compiled, asynchronous tensor parallelism, no overlap."""
        if self.compiled:
            ranks = compiled(ranks)
        if self.async_tp:
            ranks = with_async_tp(ranks)
        return list(ranks) if self.overlap else without_overlap(ranks)


@dataclass(frozen=True)
class ReplayedOn:
    """The networks, the hardware and the settings of a replay.

    Attributes:
        networks: the networks; each gets one row.
        hardware: the hardware that computes.
        algorithm: algorithm of all collectives; None: ``auto``, or that of a network's library.
        host: ``ahead`` or ``waits``; None: as hosts of the hardware do.
        changes: changes of networks, hardware and records.
        target_loss: the loss whose time is reported; None: the highest final loss of several records.
    """

    networks: Sequence[Network]
    hardware: Hardware | MeasuredComputing
    algorithm: str | None = None
    host: str | None = None
    changes: Changes = Changes()
    target_loss: float | None = None

    @classmethod
    def from_options(
        cls, networks: Sequence[Any], machine: Any, algorithm: str | None = None, host: str | None = None,
        changes: Changes = Changes(), target_loss: float | None = None,
    ) -> ReplayedOn:  # fmt: skip
        """Return the settings of a replay from a user's options, in which networks and hardware may be names."""
        parsed_networks = [network(value, f"--network.{index}") for index, value in enumerate(networks)]
        check_distinct("--network", [value.name for value in parsed_networks])
        hardware = computing_on(machine, "--hardware")
        known_algorithm = parse_algorithm(algorithm, "--algorithm")
        return cls(
            parsed_networks, hardware, known_algorithm, known_host(host, hardware, "--host"), changes, target_loss
        )

    def fields(self) -> dict[str, Any]:
        """Return the settings as fields for a run folder, from which `read` restores them."""
        machine = self.hardware
        return {
            "networks": [network_fields(network) for network in self.networks],
            "hardware": machine.name if isinstance(machine, MeasuredComputing) else hardware_fields(machine),
            "algorithm": self.algorithm, "host": self.host, "changes": dataclasses.asdict(self.changes),
            "target_loss": self.target_loss,
        }  # fmt: skip

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> ReplayedOn:
        """Return the settings from fields that `fields` returned."""
        changes = Changes(**fields["changes"])
        networks, machine, algorithm, host = (fields[name] for name in ("networks", "hardware", "algorithm", "host"))
        return cls.from_options(networks, machine, algorithm, host, changes, target_loss=fields["target_loss"])

    def network_and_hardware(
        self, on: Network, slowdown: Factors = AS_PREDICTED
    ) -> tuple[Network, Hardware | MeasuredComputing]:
        """Return a network and the hardware with all changes, and slowed by the factors ``slowdown``."""
        changed_network = scaled(on, self.changes.bandwidth, self.changes.latency)
        if slowdown != AS_PREDICTED:
            changed_network = slow_down(changed_network, float(slowdown.communication))
        return changed_network, faster(self.hardware, self.changes.compute / float(slowdown.computing))


def faster(machine: Hardware | MeasuredComputing, factor: float) -> Hardware | MeasuredComputing:
    """Return the hardware with every operation faster by a factor."""
    if factor == 1:
        return machine
    if isinstance(machine, MeasuredComputing):
        return replace(machine, scale=machine.scale / factor)
    memory = machine.memory_bytes_per_s
    return replace(
        machine, peak_flops=machine.peak_flops * factor, memory_bytes_per_s=None if memory is None else memory * factor
    )
