"""Ways of messages: which channels each passes from one worker to another, in a star or any other topology.

A *channel* carries bytes in one direction (both, on a half-duplex link) at a bandwidth that the messages on it share.
A *network* is what a user describes, and ``among(P)`` makes it the *topology* of P workers.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.network.gloo_costs import GlooCosts
from syncline.costmodel.network.nccl_costs import NcclCosts
from syncline.costmodel.network.tcp import Tcp
from syncline.costmodel.numerics.bounded_cache import frozen

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]


class Paths(NamedTuple):
    """The ways of N messages.

    Attributes:
        channels: ``(N, H)`` the channels that each message passes; -1 beyond the end of a shorter way.
        latency_s: ``(N,)`` from one end to the other, in seconds.
        overhead_s: ``(N,)`` that the sender is busy before the message leaves, in seconds.
    """

    channels: Ints
    latency_s: Floats
    overhead_s: Floats


class Topology(Protocol):
    """Workers and the channels between them."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def gloo(self) -> GlooCosts | None:
        """As of the network that it is."""

    @property
    def workers(self) -> int:
        """P."""

    @property
    def bandwidth_bytes_per_s(self) -> Floats:
        """``(C,)`` payload bytes per second that each channel carries."""

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """The ways from ``senders[i]`` to ``receivers[i]``, two ``(N,)`` arrays of different workers."""


@dataclass(frozen=True, eq=False)
class DerivedTopology:
    """What topologies that are made of another one have of it: its name, and what its libraries' software takes.

    Args:
        whole: the other one.
    """

    whole: Topology

    @property
    def name(self) -> str:
        """For people."""
        return self.whole.name

    @property
    def gloo(self) -> GlooCosts | None:
        """Of the whole."""
        return self.whole.gloo

    @property
    def nccl(self) -> NcclCosts | None:
        """Of the whole."""
        return getattr(self.whole, "nccl", None)


class ByValue:
    """A topology that equals others made of the same: what is worked out of one is kept by that."""

    @property
    def value(self) -> Hashable:
        """All that it is."""
        raise NotImplementedError

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self.value == other.value)


class Network(Protocol):
    """What a user describes: a `Link` that every worker has, nodes, sites, a graph."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def gloo(self) -> GlooCosts | None:
        """What gloo's software takes, where that is known: then gloo's algorithms carry what names none; else None."""

    def among(self, workers: int) -> Topology:
        """The topology of so many workers.

        Raises:
            SpecError: a number of workers that it cannot join.
        """

    def describe(self) -> str:
        """What it is, for people, in half a line."""

    def __hash__(self) -> int:
        """What is worked out of a network is kept by it."""


@dataclass(frozen=True, eq=False)
class Star(ByValue):
    """Every worker has a link to one switch that is never the bottleneck.

    A message from i to j passes i's link up and j's link down; its latency is the mean of the two links' (half of the
    way is on each). Channel i is worker i's way up, P + i its way down; of a half-duplex link both are channel i.

    Args:
        name: for people.
        latency_s: alpha of each worker's link, ``(P,)`` seconds.
        overhead_s: o of each worker's messages, ``(P,)`` seconds.
        bandwidth_bytes_per_s: ``(2 P,)``, ways up, then ways down.
        half_duplex: ``(P,)``.
        gloo: of every link, where all have the same.
        nccl: likewise.
        tcp: likewise.
    """

    name: str
    latency_s: Floats
    overhead_s: Floats
    bandwidth_bytes_per_s: Floats
    half_duplex: NDArray[np.bool_]
    gloo: GlooCosts | None = None
    nccl: NcclCosts | None = None
    tcp: Tcp | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, field.name, frozen(value))

    @property
    def workers(self) -> int:
        """P."""
        return len(self.latency_s)

    @cached_property
    def value(self) -> Hashable:
        """All that it is."""
        of = (getattr(self, field.name) for field in fields(self))
        return tuple(each.tobytes() if isinstance(each, np.ndarray) else each for each in of)

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Up the sender's link and down the receiver's."""
        down = np.where(self.half_duplex[receivers], receivers, self.workers + receivers)
        return Paths(
            np.stack([senders, down], axis=1),
            (self.latency_s[senders] + self.latency_s[receivers]) / 2,
            self.overhead_s[senders],
        )
