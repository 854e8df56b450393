"""The network and hardware on which a record is replayed, and the changes that are made to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from syncline.costmodel import Hardware, Network
from syncline.costmodel.network.scaled_links import scaled
from syncline.costmodel.network.slowdown import slow_down
from syncline.errors import SpecError
from syncline.measure.recording.record import RankRecord
from syncline.measure.replaying.programs import MeasuredComputing, computing_on, known_host
from syncline.measure.replaying.record_changes import compiled, with_async_tp, without_overlap
from syncline.planner.bounds import AS_PREDICTED, Factors
from syncline.specs import hardware_fields, network, network_fields
from syncline.specs.clock import parse_algorithm
from syncline.specs.experiment import check_distinct


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
        words = [f"{name} x{factor:g}" for name, factor in factors.items() if factor != 1]
        flags = {"no overlap": not self.overlap, "compiled": self.compiled, "async TP": self.async_tp}
        return ", ".join([*words, *(word for word, is_set in flags.items() if is_set)])

    def record(self) -> dict[str, Any]:
        """Return the changes as fields of a row."""
        fields = {f"scale_{name}": getattr(self, name) for name in ("bandwidth", "latency", "compute")}
        return fields | {"overlap": self.overlap, "compiled": self.compiled, "async_tp": self.async_tp}

    def of_record(self, ranks: Sequence[RankRecord]) -> list[RankRecord]:
        """Return a record with the changes that concern it."""
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
        """Return the settings that a user's options describe.

        Raises:
            SpecError: names the option that cannot be used.
        """
        joined = [network(value, f"--network.{number}") for number, value in enumerate(networks)]
        check_distinct("--network", [value.name for value in joined])
        computes = computing_on(machine, "--hardware")
        carried, does = parse_algorithm(algorithm, "--algorithm"), known_host(host, computes, "--host")
        return cls(joined, computes, carried, does, changes, target_loss)

    def fields(self) -> dict[str, Any]:
        """Return the settings as fields for a run folder, see `read`."""
        machine = self.hardware
        return {
            "networks": [network_fields(joined) for joined in self.networks],
            "hardware": machine.name if isinstance(machine, MeasuredComputing) else hardware_fields(machine),
            "algorithm": self.algorithm,
            "host": self.host,
            "changes": dataclasses.asdict(self.changes),
            "target_loss": self.target_loss,
        }

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> ReplayedOn:
        """Return the settings from the output of `fields`."""
        changes = Changes(**fields["changes"])
        networks, machine, algorithm, host = (fields[name] for name in ("networks", "hardware", "algorithm", "host"))
        return cls.from_options(networks, machine, algorithm, host, changes, fields["target_loss"])

    def network_and_hardware(
        self, on: Network, slowdown: Factors = AS_PREDICTED
    ) -> tuple[Network, Hardware | MeasuredComputing]:
        """Return a network and the hardware with all changes, and slowed by the factors ``slowdown``."""
        joined, machine = scaled(on, self.changes.bandwidth, self.changes.latency), self.hardware
        machine = faster(machine, self.changes.compute / float(slowdown.computing))
        return joined if slowdown == AS_PREDICTED else slow_down(joined, float(slowdown.communication)), machine


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
