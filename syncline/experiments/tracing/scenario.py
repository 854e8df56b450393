"""On what a record is replayed, and what is different there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.backend.tracing.record import (
    Event,
    HostWaited,
    Lost,
    MessageAwaited,
    MessageSent,
    RankRecord,
    Started,
    Stepped,
    Waited,
)
from syncline.costmodel import Hardware, Network
from syncline.costmodel.network.changed import scaled
from syncline.costmodel.network.slowed import slowed
from syncline.errors import SpecError
from syncline.experiments.bounds import AS_PREDICTED, Factors
from syncline.experiments.tracing.computing import MeasuredComputing, computing_on
from syncline.experiments.tracing.programs import known_host
from syncline.specs import hardware_fields, network, network_fields
from syncline.specs.clock import known_algorithm
from syncline.specs.experiment import check_distinct


@dataclass(frozen=True)
class Changes:
    """What is otherwise than in a record, or than a network and a hardware are described.

    Args:
        bandwidth: factor on all links' bandwidth.
        latency: factor on all links' latency.
        compute: factor on the hardware's speed, arithmetic and memory alike.
        overlap: whether calls run beside what is computed, as the script has it; if not, each is waited for at once.
    """

    bandwidth: float = 1.0
    latency: float = 1.0
    compute: float = 1.0
    overlap: bool = True

    def __post_init__(self) -> None:
        for name in ("bandwidth", "latency", "compute"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SpecError(f"--scale-{name}", getattr(self, name), "a positive number")

    def describe(self) -> str:
        """What is changed, for people; nothing if nothing is.

        >>> Changes(bandwidth=0.5, overlap=False).describe()
        'bandwidth x0.5, no overlap'
        """
        factors = [
            f"{name} x{of:g}" for name in ("bandwidth", "latency", "compute") if (of := getattr(self, name)) != 1
        ]
        return ", ".join([*factors, *([] if self.overlap else ["no overlap"])])

    def record(self) -> dict[str, Any]:
        """As rows have it."""
        told = {f"scale_{name}": getattr(self, name) for name in ("bandwidth", "latency", "compute")}
        return told | {"overlap": self.overlap}

    def of_record(self, ranks: Sequence[RankRecord]) -> Sequence[RankRecord]:
        """A record as it is changed."""
        return ranks if self.overlap else without_overlap(ranks)


@dataclass(frozen=True)
class ReplayedOn:
    """On what records are replayed.

    Attributes:
        networks: one row each.
        hardware: that computes.
        algorithm: of all collectives; none: ``auto``, or what a network's library runs.
        host: ``ahead`` or ``waits``; none: as hosts of the hardware do.
        changes: of networks, hardware and records.
        target_loss: whose time is told; none: the highest final loss of several records.
    """

    networks: Sequence[Network]
    hardware: Hardware | MeasuredComputing
    algorithm: str | None = None
    host: str | None = None
    changes: Changes = Changes()
    target_loss: float | None = None

    @classmethod
    def of(
        cls,
        networks: Sequence[Any],
        machine: Any,
        algorithm: str | None = None,
        host: str | None = None,
        changes: Changes = Changes(),
        target_loss: float | None = None,
    ) -> ReplayedOn:
        """From what a user writes.

        Raises:
            SpecError: names the option that cannot be used.
        """
        joined = [network(one, f"--network.{number}") for number, one in enumerate(networks)]
        check_distinct("--network", [one.name for one in joined])
        computes = computing_on(machine, "--hardware")
        carried, does = known_algorithm(algorithm, "--algorithm"), known_host(host, computes, "--host")
        return cls(joined, computes, carried, does, changes, target_loss)

    def fields(self) -> dict[str, Any]:
        """As a run folder keeps it, see `read`."""
        return {
            "networks": [network_fields(one) for one in self.networks],
            "hardware": machine_fields(self.hardware),
            "algorithm": self.algorithm,
            "host": self.host,
            "changes": dataclasses.asdict(self.changes),
            "target_loss": self.target_loss,
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> ReplayedOn:
        """From what `fields` gives."""
        changes = Changes(**fields["changes"])
        networks, machine, algorithm, host = (fields[name] for name in ("networks", "hardware", "algorithm", "host"))
        return cls.of(networks, machine, algorithm, host, changes, fields["target_loss"])

    def there(self, on: Network, off: Factors = AS_PREDICTED) -> tuple[Network, Hardware | MeasuredComputing]:
        """A network and the hardware as they are changed, with computing and communication off by factors."""
        joined, machine = scaled(on, self.changes.bandwidth, self.changes.latency), self.hardware
        machine = faster(machine, self.changes.compute / float(off.computing))
        return joined if off == AS_PREDICTED else slowed(joined, float(off.communication)), machine


def machine_fields(of: Hardware | MeasuredComputing) -> Any:
    """As a run folder keeps it, and as a user writes it."""
    return of.name if isinstance(of, MeasuredComputing) else hardware_fields(of)


def faster(of: Hardware | MeasuredComputing, factor: float) -> Hardware | MeasuredComputing:
    """What computes, where every operation takes so many times less."""
    if factor == 1:
        return of
    if isinstance(of, MeasuredComputing):
        return replace(of, scale=of.scale / factor)
    memory = of.memory_bytes_per_s
    return replace(
        of, peak_flops=of.peak_flops * factor, memory_bytes_per_s=None if memory is None else memory * factor
    )


def without_overlap(ranks: Sequence[RankRecord]) -> list[RankRecord]:
    """A record on one stream, in which every collective is waited for at once where it begins.

    Messages are left as they are: who waits for one before it sends its own may wait for ever.
    """

    def at_once(rank: RankRecord) -> list[Event]:
        events: list[Event] = []
        calls: set[int] = set()
        for event in rank.events:
            if isinstance(event, Waited) and event.call in calls:
                continue
            here = event if isinstance(event, HostWaited | Stepped | Lost) else event._replace(stream=0)
            events.append(here)
            if isinstance(here, Started):
                calls.add(here.call)
                events.append(Waited(here.call))
        return events

    return [dataclasses.replace(rank, events=at_once(rank)) for rank in ranks]


def without_site(ranks: Sequence[RankRecord], site: str) -> list[RankRecord]:
    """A record without what a line of the script sends, and without the waits for it."""
    tags = {
        event.tag
        for rank in ranks
        for event in rank.events
        if isinstance(event, MessageSent | MessageAwaited) and event.site == site
    }

    def kept(rank: RankRecord) -> list[Event]:
        events: list[Event] = []
        gone: set[int] = set()
        for event in rank.events:
            of_line = isinstance(event, Started) and event.site == site
            of_line |= isinstance(event, MessageSent | MessageAwaited) and event.tag in tags
            if of_line:
                gone.add(event.call)  # type: ignore[union-attr]
            elif not (isinstance(event, Waited) and event.call in gone):
                events.append(event)
        return events

    return [dataclasses.replace(rank, events=kept(rank)) for rank in ranks]
