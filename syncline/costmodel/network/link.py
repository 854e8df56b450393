"""Links, with the seconds of one message in the alpha-beta model, and topologies of workers on links or networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.network.paths import DerivedTopology, Floats, Ints, Network, Paths, Star, Topology
from syncline.costmodel.network.software_costs import GlooCosts, NcclCosts, NodeTimes, NvlinkCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import FloatOrArray, bounded_cache, is_hashed_by_value, require, require_finite
from syncline.costmodel.numerics.uncertainty import Uncertainty
from syncline.errors import SpecError, one_of
from syncline.units import format_bandwidth, format_seconds

Duplex = Literal["full", "half"]
"""Whether both directions of a link have all of its bandwidth at once, or share the bandwidth."""

FabricKind = Literal["nvlink", "pcie", "network"]
"""Hardware of a link, as far as NCCL's tables distinguish it: NVLink or PCI Express in a node, or network cards."""


@dataclass(frozen=True)
class Link:
    """A worker's link to a network that is nowhere narrower than the workers' links (full bisection).

    A message of n bytes takes ``alpha + o + n / R`` over idle links, with R = efficiency x min(B, upload). The message
    keeps its sender busy for ``o + n / R``: the latency alpha does not occupy the link.

    Args:
        latency_s: alpha, one way, from sender to receiver (half a round trip), in seconds; at least 0.
        bandwidth_bytes_per_s: B, at which a worker receives, in bytes per second; positive. A worker also sends at B,
            unless ``upload_bytes_per_s`` is set.
        name: display name.
        overhead_s: o, per message, in seconds; at least 0. The sender's software is busy for o before a message leaves.
        efficiency: fraction of the bandwidth that payload gets; headers and repeats take the rest; in (0, 1].
        upload_bytes_per_s: bandwidth at which a worker sends; None: B.
        duplex: ``full``: both directions have B at once; ``half``: both directions share B.
        gloo: software costs of gloo on this link; then collectives use gloo's algorithms by default. None: gloo's
            algorithms have no software costs, and are not the default.
        nccl: pieces into which NCCL cuts tensors over sockets on this link; then collectives use NCCL's algorithms by
            default and under the policy ``nccl``. Excludes ``gloo``.
        tcp: TCP's windows, which open slowly after idling (`syncline.costmodel.collectives.tcp_slow_start`). B is the
            bandwidth with open windows. None: no windows, as with RDMA and NVLink.
        fabric: kind of the link's hardware; only the policy ``nccl`` uses it.
        measured: measured times of all-reduces on this link, which the policy ``auto`` prefers to closed forms.
        nvlink: NCCL's constants on NVLink; then the policies ``auto`` and ``nccl`` use NCCL's algorithms for NVLink.
        sharp: whether the network's switches sum tensors, as SHARP does; NCCL uses them between nodes with NVLink.
        data_centre: whether all workers are in one data centre, so that no bytes leave it; None: by the latency.
        bounds: errors of predictions on this link, from the calibration that measured it; None: nobody measured it.

    Numbers may be arrays, so that one call prices many networks (such links cannot be compared or hashed).

    Source: R. Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994): the alpha-beta model;
    D. Culler et al., "LogP" (1993): the overhead o.
    """

    latency_s: FloatOrArray
    bandwidth_bytes_per_s: FloatOrArray
    name: str = ""
    overhead_s: FloatOrArray = 0.0
    efficiency: FloatOrArray = 1.0
    upload_bytes_per_s: FloatOrArray | None = None
    duplex: Duplex = "full"
    gloo: GlooCosts | None = None
    nccl: NcclCosts | None = None
    tcp: Tcp | None = None
    fabric: FabricKind = "network"
    measured: NodeTimes | None = None
    nvlink: NvlinkCosts | None = None
    sharp: bool = False
    data_centre: bool | None = None
    bounds: Uncertainty | None = None

    def __post_init__(self) -> None:
        for field in ("latency_s", "overhead_s"):
            require_finite(f"link.{field}", getattr(self, field), "seconds, at least 0")
        for field in ("bandwidth_bytes_per_s", "upload_bytes_per_s"):
            value = getattr(self, field)
            if value is not None:
                require_finite(f"link.{field}", value, "bytes per second, positive and finite", positive=True)
        in_range = np.greater(self.efficiency, 0) & np.less_equal(self.efficiency, 1)
        require(in_range, "link.efficiency", self.efficiency, "a fraction above 0 and at most 1")
        if self.duplex not in ("full", "half"):
            raise SpecError("link.duplex", self.duplex, "'full' or 'half'")
        if self.gloo is not None and self.nccl is not None:
            expected = "none with gloo: one library runs the collectives that name no algorithm"
            raise SpecError("link.nccl", self.nccl, expected)
        if self.fabric not in get_args(FabricKind):
            raise SpecError("link.fabric", self.fabric, one_of(get_args(FabricKind), str(self.fabric)))
        if self.duplex == "half" and self.upload_bytes_per_s is not None:
            raise SpecError("link.upload_bytes_per_s", self.upload_bytes_per_s, "none on a half-duplex link")

    @property
    def down_bytes_per_s(self) -> FloatOrArray:
        """Return the payload bytes per second at which a worker receives: ``efficiency x B``."""
        return self.efficiency * self.bandwidth_bytes_per_s

    @property
    def up_bytes_per_s(self) -> FloatOrArray:
        """Return the payload bytes per second at which a worker sends: ``efficiency x upload``."""
        upload = self.bandwidth_bytes_per_s if self.upload_bytes_per_s is None else self.upload_bytes_per_s
        return self.efficiency * upload

    @property
    def goodput_bytes_per_s(self) -> FloatOrArray:
        """Return R, the payload bytes per second between two workers: the slower of sending and receiving."""
        if self.upload_bytes_per_s is None:  # a worker sends as fast as it receives
            return self.down_bytes_per_s
        return np.minimum(self.up_bytes_per_s, self.down_bytes_per_s)

    @property
    def payload_gloo(self) -> GlooCosts | None:
        """Return gloo's costs with the rate of a connection in payload bytes per second."""
        if self.gloo is None or self.gloo.connection is None:
            return self.gloo
        flow_bytes_per_s = float(self.efficiency) * self.gloo.connection.flow_bytes_per_s
        return replace(self.gloo, connection=replace(self.gloo.connection, flow_bytes_per_s=flow_bytes_per_s))

    def transfer_s(self, nbytes: FloatOrArray) -> FloatOrArray:
        """Return the seconds until a message of ``nbytes`` has arrived over idle links: ``alpha + o + n / R``."""
        return self.latency_s + self.overhead_s + nbytes / self.goodput_bytes_per_s

    def shared_by(self, flows: int) -> Link:
        """Return this link with the bandwidth that each of ``flows`` transfers in each direction gets.

        The result is full-duplex: on a half-duplex link the share already counts the transfers of both directions.
        """
        transfers = 2 * flows if self.duplex == "half" else flows
        return replace(self.times_bandwidth(1 / transfers), duplex="full", measured=None)  # measured at full rate

    def times_bandwidth(self, factor: FloatOrArray) -> Link:
        """Return this link with its bandwidths, both ways, multiplied by a factor."""
        upload = None if self.upload_bytes_per_s is None else self.upload_bytes_per_s * factor
        return replace(self, bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * factor, upload_bytes_per_s=upload)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return those fields of the link that are arrays, one value for each of several links, by name."""
        return {name: value for name, value in vars(self).items() if np.ndim(value)}

    def with_numbers(self, numbers: Mapping[str, FloatOrArray], *, same_links: bool = False) -> Link:
        """Return the link with other numbers in some of its fields.

        ``same_links`` tells whether the numbers are a selection of the link's own arrays. Then the times and bounds
        that were measured on this link still hold; else the result has none.
        """
        if not numbers:
            return self
        changes: dict[str, Any] = dict(numbers) if same_links else {"measured": None, "bounds": None, **numbers}
        return replace(self, **changes)

    @property
    def label(self) -> str:
        """Return the link's name, or a description of a link without a name."""
        return self.name or self.describe()

    def describe(self) -> str:
        """Return a short description for users: ``50 us one way, 10 Gbit/s``."""
        rate = format_bandwidth(float(self.bandwidth_bytes_per_s))
        if self.upload_bytes_per_s is not None:
            rate += f" down, {format_bandwidth(float(self.upload_bytes_per_s))} up"
        details = [f"{format_seconds(float(self.latency_s))} one way", rate]
        if self.overhead_s:
            details.append(f"{format_seconds(float(self.overhead_s))} per message")
        if self.efficiency != 1:
            details.append(f"{100 * float(self.efficiency):.3g}% payload")
        if self.duplex == "half":
            details.append("half duplex")
        software = {
            "gloo's costs": self.gloo,
            "NCCL's pieces": self.nccl,
            "windows that open": self.tcp,
            "measured all-reduces": self.measured,
        }
        details += [text for text, costs in software.items() if costs is not None]
        if self.nvlink is not None:
            details.append(f"NVLink {self.nvlink.generation}")
        if self.sharp:
            details.append("switches that sum")
        return ", ".join(details)

    def among(self, workers: int) -> Topology:
        """Return the topology in which each of the workers has this link to a common switch."""
        return star(self, workers)


NUMBERS = ("latency_s", "bandwidth_bytes_per_s", "overhead_s", "efficiency", "upload_bytes_per_s")
"""The fields of a link that are numbers."""


def stacked_links(links: Sequence[Link]) -> Link:
    """Return a link whose numbers are arrays ``(1, n)``, from n links that differ only in numbers and in names."""
    arrays = {}
    for name in NUMBERS:
        if getattr(links[0], name) is not None:  # then it is None in all links
            arrays[name] = np.array([[getattr(link, name) for link in links]], dtype=np.float64)
    return links[0].with_numbers(arrays, same_links=True)


def star(links: Link | Sequence[Link], workers: int) -> Star:
    """Return the star in which all workers have the same link, or each worker a link of its own."""
    worker_links = [links] if isinstance(links, Link) else list(links)
    if not isinstance(links, Link) and len(worker_links) != workers:
        raise SpecError("links", len(worker_links), f"one link, or one for each of the {workers} workers")

    def common(field: str) -> Any:
        """Return the value of a field if all links have the same, else None."""
        values = {getattr(link, field) for link in worker_links}
        return values.pop() if len(values) == 1 else None

    def numbers(field: str) -> NDArray[np.float64]:
        """Return a field of each worker's link as an array, ``(P,)``."""
        return np.broadcast_to(np.array([getattr(link, field) for link in worker_links], dtype=np.float64), (workers,))

    return Star(
        name=links.name if isinstance(links, Link) else "",
        latency_s=numbers("latency_s"),
        overhead_s=numbers("overhead_s"),
        bandwidth_bytes_per_s=np.concatenate([numbers("up_bytes_per_s"), numbers("down_bytes_per_s")]),
        half_duplex=np.broadcast_to([link.duplex == "half" for link in worker_links], (workers,)),
        gloo=common("payload_gloo"),
        nccl=common("nccl"),
        tcp=common("tcp"),
        measured=common("measured"),
        nvlink=common("nvlink"),
    )


def topology(network: Network | Topology | Sequence[Link], workers: int) -> Topology:
    """Return the topology of workers on a network, or on a link for each worker; return a topology unchanged."""
    if isinstance(network, Sequence):
        return star(network, workers)
    worker_topology: Topology
    if not hasattr(network, "among"):  # only networks have this method: it is a topology already
        worker_topology = network
    elif is_hashed_by_value(network):
        worker_topology = _cached_topology(network, workers)  # type: ignore[arg-type]
    else:  # the cache would not notice a change of a network that is hashed by its identity
        worker_topology = network.among(workers)
    if worker_topology.workers != workers:
        raise SpecError("workers", workers, f"{worker_topology.workers}, as the topology has")
    return worker_topology


def _memory_bytes(value: Topology) -> float:
    """Return the approximate bytes of a topology; infinity, so that it is not cached, if it grows like a graph's."""
    return 1e3 + 100.0 * value.workers if is_hashed_by_value(value) else math.inf


@bounded_cache(64e6, _memory_bytes)
def _cached_topology(network: Network, workers: int) -> Topology:
    """Return the topology of a network, from the cache if possible."""
    return network.among(workers)


def among(base: Topology, members: ArrayLike) -> Topology:
    """Return the topology of some workers of a topology, numbered from 0 in their order; the others send nothing."""
    ranks = np.asarray(members)
    if np.array_equal(ranks, np.arange(base.workers)):
        return base
    if isinstance(base, Star):
        return replace(
            base,
            latency_s=base.latency_s[ranks],
            overhead_s=base.overhead_s[ranks],
            bandwidth_bytes_per_s=base.bandwidth_bytes_per_s[np.concatenate([ranks, base.workers + ranks])],
            half_duplex=base.half_duplex[ranks],
        )
    return MemberTopology(base, ranks)


@dataclass(frozen=True, eq=False)
class MemberTopology(DerivedTopology):
    """Some workers of a topology, on all its channels; ``members`` has their ranks in ``whole``, that topology."""

    members: Ints

    @property
    def workers(self) -> int:
        """Return the number of workers of the underlying topology that are members."""
        return len(self.members)

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the bytes per second of all channels, also of those that no member uses."""
        return self.whole.bandwidth_bytes_per_s

    @property
    def measured(self) -> NodeTimes | None:
        """Return the times measured inside a node if all members are in one node (innermost unit), else None."""
        if not hasattr(self.whole, "innermost"):  # a topology without levels
            return None
        unit_workers, link = self.whole.innermost
        is_one_unit = len(np.unique(self.members // unit_workers)) == 1
        return link.measured if is_one_unit else None

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths between members in the underlying topology."""
        return self.whole.paths(self.members[senders], self.members[receivers])


def on_channels_of(base: Topology, senders: Ints, receivers: Ints) -> Topology:
    """Return a topology for these messages alone, with only the channels that they pass, in the same order."""
    channels = np.unique(base.paths(senders, receivers).channels)
    return MessageTopology(base, channels[channels >= 0])  # -1 is the padding of shorter paths


@dataclass(frozen=True, eq=False)
class MessageTopology(DerivedTopology):
    """A topology with only some channels of ``whole``; ``channels`` has their numbers in ``whole``, ascending."""

    channels: Ints

    @property
    def workers(self) -> int:
        """Return the number of workers of the underlying topology."""
        return self.whole.workers

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the bytes per second of these channels."""
        return self.whole.bandwidth_bytes_per_s[self.channels]

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths of messages, with the channels numbered by their positions in ``channels``."""
        paths = self.whole.paths(senders, receivers)
        is_channel = paths.channels >= 0  # -1 is the padding of shorter paths
        return paths._replace(channels=np.where(is_channel, np.searchsorted(self.channels, paths.channels), -1))
