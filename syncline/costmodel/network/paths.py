"""Paths of messages: the channels that each passes from one worker to another, in a star or any other topology.

A *channel* carries bytes in one direction (both, on a half-duplex link) at a bandwidth that its messages share. A
*network* is what a user describes, and ``network.among(P)`` is the *topology* of P workers on this network.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.software_costs import GlooCosts, HivemindCosts, NcclCosts, NodeTimes, NvlinkCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.arrays import frozen

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]


class Paths(NamedTuple):
    """The paths of N messages through the channels of a network.

    Attributes:
        channels: ``(N, H)`` the numbers of the channels that each message passes; -1 after the end of a shorter path.
        latency_s: ``(N,)`` seconds from the sender to the receiver.
        overhead_s: ``(N,)`` seconds that the sender is busy before the message leaves.
    """

    channels: Ints
    latency_s: Floats
    overhead_s: Floats


class Topology(Protocol):
    """The protocol of topologies: P workers, and the C channels that their messages share."""

    @property
    def name(self) -> str:
        """Return the name by which tables and messages call the network."""

    @property
    def gloo(self) -> GlooCosts | None:
        """Return the costs of gloo's software on the network, or None."""

    @property
    def workers(self) -> int:
        """Return the number of workers P."""

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the payload bytes per second that each channel carries, ``(C,)``."""

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths of N messages from ``senders[i]`` to ``receivers[i]``, two different workers."""


class Network(Protocol):
    """A network that a user describes: a `Link` that every worker has, nodes, sites, a graph."""

    @property
    def name(self) -> str:
        """Return the name by which tables and messages call the network."""

    @property
    def gloo(self) -> GlooCosts | None:
        """Return the costs of gloo's software, or None; with them, collectives use gloo's algorithms by default."""

    def among(self, workers: int) -> Topology:
        """Return the topology of a number of workers, or raise a `SpecError` if the network cannot join so many."""

    def describe(self) -> str:
        """Return a short description for users, in half a line."""

    def __hash__(self) -> int:
        """Return the hash by which results of a network are cached."""


@dataclass(frozen=True, eq=False)
class DerivedTopology:
    """The base of topologies made from another topology, ``whole``; they have its name and library costs."""

    whole: Topology

    @property
    def name(self) -> str:
        """Return the name by which tables and messages call the network."""
        return self.whole.name

    @property
    def gloo(self) -> GlooCosts | None:
        """Return the costs of gloo's software in the underlying topology, or None."""
        return self.whole.gloo

    @property
    def nccl(self) -> NcclCosts | None:
        """Return NCCL's costs in the underlying topology, or None."""
        return getattr(self.whole, "nccl", None)

    @property
    def hivemind(self) -> HivemindCosts | None:
        """Return the costs of hivemind's averaging in the underlying topology, or None."""
        return getattr(self.whole, "hivemind", None)


@dataclass(frozen=True, eq=False)
class ByValue:
    """A topology that compares and hashes by the values of its fields, so that caches recognise equal topologies.

    Arrays in the fields become read-only, so that the hash stays valid.
    """

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, field.name, frozen(value))

    @cached_property
    def value(self) -> Hashable:
        """Return the values of all fields, arrays as their bytes."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(item.tobytes() if isinstance(item, np.ndarray) else item for item in values)

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self.value == other.value)


@dataclass(frozen=True, eq=False)
class Star(ByValue):
    """Workers with a link each to a common switch; the switch is never the bottleneck.

    A message from worker i to worker j passes i's link up and j's link down; its latency is the mean of the latencies
    of both links. Among P workers channel i is worker i's link up, and channel P + i the same link down. A half-duplex
    link uses channel i both ways.

    Args:
        name: display name.
        latency_s: latency of each worker's link, ``(P,)`` seconds.
        overhead_s: overhead of each worker's messages, ``(P,)`` seconds.
        bandwidth_bytes_per_s: payload bytes per second of each channel, ``(2 P,)``: links up, then links down.
        half_duplex: whether each worker's link is half-duplex, ``(P,)``.
        gloo: costs of gloo that all links have, with the rate of a connection in payload bytes per second; None if the
            links have no or different costs.
        nccl: costs of NCCL that all links have, or None.
        tcp: TCP windows that all links have, or None.
        measured: measured times that all links have, or None.
        nvlink: constants of NVLink that all links have, or None.
    """

    name: str
    latency_s: Floats
    overhead_s: Floats
    bandwidth_bytes_per_s: Floats
    half_duplex: NDArray[np.bool_]
    gloo: GlooCosts | None = None
    nccl: NcclCosts | None = None
    tcp: Tcp | None = None
    measured: NodeTimes | None = None
    nvlink: NvlinkCosts | None = None

    @property
    def workers(self) -> int:
        """Return the number of workers P."""
        return len(self.latency_s)

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the paths of messages up the sender's link and down the receiver's."""
        down_channels = np.where(self.half_duplex[receivers], receivers, self.workers + receivers)
        latency_s = (self.latency_s[senders] + self.latency_s[receivers]) / 2
        return Paths(np.stack([senders, down_channels], axis=1), latency_s, self.overhead_s[senders])


def narrowest(paths: Paths, bandwidth: Floats) -> Floats:
    """Return the bytes per second of the narrowest channel of each of N paths, ``(N,)``.

    Args:
        bandwidth: bytes per second of each of C channels, then infinity for the padding of paths, ``(C + 1,)``.
    """
    rate: Floats = bandwidth[paths.channels[:, 0]]
    for column in paths.channels.T[1:]:
        rate = np.minimum(rate, bandwidth[column])
    return rate


def longest_latency_s(topology: Topology) -> float:
    """Return the longest latency of a star's links, or, in another topology, of the paths of a ring of all workers.

    The paths between all pairs would take too long to compute.
    """
    if isinstance(topology, Star):
        return float(np.max(topology.latency_s))
    if topology.workers < 2:
        return 0.0
    worker = np.arange(topology.workers)
    return float(np.max(topology.paths(worker, np.roll(worker, -1)).latency_s))
