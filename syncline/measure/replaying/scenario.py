"""The network and hardware on which a record is replayed, and what other links, hardware or software would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from syncline.costmodel import Hardware, Network
from syncline.costmodel.network.network_links import scaled, slow_down
from syncline.errors import SpecError
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    Event,
    HostWaited,
    Loss,
    MessageAwaited,
    MessageSent,
    Operations,
    RankRecord,
    Started,
    Stepped,
    Waited,
)
from syncline.measure.replaying.replay import MeasuredComputing, host_behaviour, parse_computing
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.specs import hardware_fields, network, network_fields
from syncline.specs.clock import parse_algorithm
from syncline.specs.experiment import check_distinct

FUSED_KERNELS = 2
"""Kernels that a compiler makes of a run of elementwise operations: one up to a reduction, and one behind it."""


def fuse_elementwise(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record whose elementwise operations a compiler has fused.

    A compiler joins the operations between two products into a few kernels, which keep intermediate results in
    registers. So of these operations only the `FUSED_KERNELS` that move most bytes remain.
    """
    return [replace(rank, segments=[_fuse_segment(segment) for segment in rank.segments]) for rank in ranks]


@cache
def _fuse_segment(operations: Operations) -> Operations:
    """Return the operations of a segment after `fuse_elementwise`."""
    fused: list[CountedOperation] = []
    elementwise: list[CountedOperation] = []  # operations since the last product

    def append_kernels() -> None:
        fused.extend(sorted(elementwise, key=lambda operation: -operation.nbytes)[:FUSED_KERNELS])
        elementwise.clear()

    for operation in operations:
        if operation.flops:  # a product
            append_kernels()
            fused.append(operation)
        else:
            elementwise.append(operation)
    append_kernels()
    return tuple(fused)


def overlap_tensor_parallelism(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record in which the collectives of tensor parallelism overlap with the computing beside them.

    In asynchronous tensor parallelism a collective and a matrix product are cut into pieces, which run side by side. A
    collective counts as one of tensor parallelism if not all ranks take part and the script waits for it immediately.
    Among these, a reduce-scatter now starts before the computing that precedes it. For any other collective, the wait
    moves behind the computing that follows it.
    """
    changed_ranks = []
    for rank in ranks:
        events = list(rank.events)
        for index in range(1, len(events) - 2):  # the index of the start; the wait comes next
            previous, started, waited, following = events[index - 1 : index + 3]
            if not (isinstance(started, Started) and isinstance(waited, Waited) and waited.call == started.call):
                continue
            if started.stream != waited.stream or len(started.ranks) == len(ranks):
                continue  # not of tensor parallelism
            follows_computing = isinstance(previous, Computed) and previous.stream == started.stream
            if started.kind == "reduce_scatter" and follows_computing:
                events[index - 1 : index + 1] = started, previous
            elif isinstance(following, Computed) and following.stream == started.stream:
                events[index + 1 : index + 3] = following, waited
        changed_ranks.append(replace(rank, events=events))
    return changed_ranks


def remove_overlap(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """Return a record on stream 0 alone, in which every collective is waited for immediately after its start.

    Messages stay as they are, because a worker that waits for a message before it sends its own may wait for ever.
    """
    changed_ranks = []
    for rank in ranks:
        events: list[Event] = []
        collective_calls: set[int] = set()
        for event in rank.events:
            if isinstance(event, Waited) and event.call in collective_calls:
                continue  # the wait follows the start already
            if isinstance(event, HostWaited | Stepped | Loss):  # these events are on no stream
                events.append(event)
            else:
                events.append(event._replace(stream=0))
            if isinstance(event, Started):
                collective_calls.add(event.call)
                events.append(Waited(event.call, stream=0))
        changed_ranks.append(replace(rank, events=events))
    return changed_ranks


def remove_line(ranks: Sequence[RankRecord], line: str) -> list[RankRecord]:
    """Return a record without the communication of one line of the script, and without the waits for it."""
    tags = set()  # a removed message is removed on both of its ranks
    for rank in ranks:
        for event in rank.events:
            if isinstance(event, MessageSent | MessageAwaited) and event.site == line:
                tags.add(event.tag)
    changed_ranks = []
    for rank in ranks:
        events: list[Event] = []
        removed_calls: set[int] = set()
        for event in rank.events:
            if (isinstance(event, Started) and event.site == line) or (
                isinstance(event, MessageSent | MessageAwaited) and event.tag in tags
            ):
                removed_calls.add(event.call)
            elif not (isinstance(event, Waited) and event.call in removed_calls):
                events.append(event)
        changed_ranks.append(replace(rank, events=events))
    return changed_ranks


@dataclass(frozen=True)
class Changes:
    """Changes to a record, and to the described network and hardware.

    Args:
        bandwidth: factor on all links' bandwidth.
        latency: factor on all links' latency.
        compute: factor on the speed of computing, for arithmetic, memory and the host alike.
        overlap: whether calls overlap with computing, as in the script; if not, each call is waited for at once.
        compiled: whether a compiler joins elementwise operations.
        async_tp: whether collectives of tensor parallelism overlap with the computing beside them.
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
        factors = {"bandwidth": self.bandwidth, "latency": self.latency, "compute": self.compute}
        flags = {"no overlap": not self.overlap, "compiled": self.compiled, "async TP": self.async_tp}
        changes = [f"{name} x{factor:g}" for name, factor in factors.items() if factor != 1]
        changes += [name for name, is_set in flags.items() if is_set]
        return ", ".join(changes)

    def columns(self) -> dict[str, Any]:
        """Return the changes as columns of a row of results."""
        return {
            "scale_bandwidth": self.bandwidth, "scale_latency": self.latency, "scale_compute": self.compute,
            "overlap": self.overlap, "compiled": self.compiled, "async_tp": self.async_tp,
        }  # fmt: skip

    def apply_to_record(self, ranks: Sequence[RankRecord]) -> list[RankRecord]:
        """Return a record with the changes of software: compiled, asynchronous tensor parallelism, no overlap."""
        if self.compiled:
            ranks = fuse_elementwise(ranks)
        if self.async_tp:
            ranks = overlap_tensor_parallelism(ranks)
        return list(ranks) if self.overlap else remove_overlap(ranks)


@dataclass(frozen=True)
class ReplayedOn:
    """The networks, the hardware and the settings of a replay.

    Attributes:
        networks: the networks; each gets one row.
        algorithm: algorithm of all collectives; None: those of the network's library, without a library ``auto``.
        host: ``ahead`` or ``waits``; None: the behaviour of the hardware's hosts.
        target_loss: the loss to which times are reported; None: the highest final loss of several records.
    """

    networks: Sequence[Network]
    hardware: Hardware | MeasuredComputing
    algorithm: str | None = None
    host: str | None = None
    changes: Changes = Changes()
    target_loss: float | None = None

    @classmethod
    def from_options(
        cls, networks: Sequence[Any], hardware: Any, algorithm: str | None = None, host: str | None = None,
        changes: Changes = Changes(), target_loss: float | None = None,
    ) -> ReplayedOn:  # fmt: skip
        """Return the settings of a replay from a user's options, in which networks and hardware may be names."""
        parsed_networks = [network(value, f"--network.{index}") for index, value in enumerate(networks)]
        check_distinct("--network", [value.name for value in parsed_networks])
        machine = parse_computing(hardware, "--hardware")
        return cls(
            parsed_networks, machine, algorithm=parse_algorithm(algorithm, "--algorithm"),
            host=host_behaviour(host, machine, "--host"), changes=changes, target_loss=target_loss,
        )  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Return the settings as fields for a run folder, from which `from_fields` restores them."""
        hardware = self.hardware
        return {
            "networks": [network_fields(network) for network in self.networks],
            "hardware": hardware.name if isinstance(hardware, MeasuredComputing) else hardware_fields(hardware),
            "algorithm": self.algorithm, "host": self.host, "changes": asdict(self.changes),
            "target_loss": self.target_loss,
        }  # fmt: skip

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ReplayedOn:
        """Return the settings from the output of `fields`."""
        return cls.from_options(**{**fields, "changes": Changes(**fields["changes"])})

    def changed_network(self, network: Network, slowdown: Factors = AS_PREDICTED) -> Network:
        """Return a network with all changes, slowed down by the factors ``slowdown``."""
        changed_network = scaled(network, bandwidth=self.changes.bandwidth, latency=self.changes.latency)
        if slowdown != AS_PREDICTED:
            changed_network = slow_down(changed_network, float(slowdown.communication))
        return changed_network
