"""Faults of the network: a worker's slow link, and messages whose latency is never the same twice."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from syncline.costmodel.network.topology import DerivedTopology, Floats, Ints, Paths, Star, Topology
from syncline.errors import SpecError
from syncline.sim.workers.compute import check_at_least_0, lognormal_factors

DRAWS_AT_ONCE = 4096
"""Numbers drawn together: a draw of one costs as much as one of hundreds."""


@dataclass(frozen=True)
class SlowLink:
    """One worker's link carries ``1 / factor`` of its bandwidth, and its latency is ``latency_factor`` times as long.

    Args:
        worker: whose, from 0.
        factor: positive; 1 leaves the bandwidth as it is.
        latency_factor: at least 0; 1 leaves the latency as it is.

    Raises:
        SpecError: a field out of range or not finite.
    """

    worker: int
    factor: float = 1.0
    latency_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.worker < 0:
            raise SpecError("slow_link.worker", self.worker, "a worker, from 0")
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise SpecError("slow_link.factor", self.factor, "a finite factor above 0")
        check_at_least_0("slow_link.latency_factor", self.latency_factor, "a finite factor, at least 0")


def with_slow_links(topology: Topology, slow: Sequence[SlowLink]) -> Topology:
    """The same workers and channels, with some workers' links slowed; several factors of one worker multiply.

    A worker's link is the first channel of its ways out and the last of its ways in; where workers share such a
    channel, as behind one network card, they share what is left of it. Half of a message's latency is the sender's,
    half the receiver's.

    Raises:
        SpecError: a worker that there is not.
    """
    if not slow:
        return topology
    bandwidth, latency = np.ones(topology.workers), np.ones(topology.workers)
    for one in slow:
        if one.worker >= topology.workers:
            raise SpecError("slow_link.worker", one.worker, f"a worker from 0 to {topology.workers - 1}")
        bandwidth[one.worker] *= one.factor
        latency[one.worker] *= one.latency_factor
    if isinstance(topology, Star):
        return dataclasses.replace(
            topology,
            latency_s=topology.latency_s * latency,
            bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s / np.tile(bandwidth, 2),
        )
    return _Slowed(topology, bandwidth, latency)


@dataclass(frozen=True, eq=False)
class _Slowed(DerivedTopology):
    """A topology whose workers' own channels and latencies are scaled.

    Args:
        whole: see `DerivedTopology`, as the network was.
        bandwidth_factor: ``(P,)``, by what each worker's bandwidth is divided.
        latency_factor: ``(P,)``.
    """

    bandwidth_factor: Floats
    latency_factor: Floats

    @property
    def workers(self) -> int:
        """P."""
        return self.whole.workers

    @property
    def network(self) -> Any:
        """What the whole is of: hierarchical collectives ask for its nodes, which are the same."""
        return getattr(self.whole, "network", self.whole)

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """A channel that is the own one of several workers is slowed by each."""
        factor = np.ones(len(self.whole.bandwidth_bytes_per_s))
        for worker in np.flatnonzero(self.bandwidth_factor != 1):
            factor[self._own(int(worker))] *= self.bandwidth_factor[worker]
        return self.whole.bandwidth_bytes_per_s / factor

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """The ways as they were, with other latencies."""
        paths = self.whole.paths(senders, receivers)
        factor = (self.latency_factor[senders] + self.latency_factor[receivers]) / 2
        return paths._replace(latency_s=paths.latency_s * factor)

    def _own(self, worker: int) -> Ints:
        """The first channels of a worker's ways out and the last of its ways in, each once."""
        others = np.delete(np.arange(self.workers), worker)
        alone = np.full(len(others), worker)
        way_out, way_in = self.whole.paths(alone, others).channels, self.whole.paths(others, alone).channels
        last = np.maximum((way_in >= 0).sum(axis=1) - 1, 0)
        own = np.concatenate([way_out[:, 0], way_in[np.arange(len(others)), last]])
        return np.unique(own[own >= 0])


@dataclass(frozen=True)
class LatencyJitter:
    """Each message's latency becomes ``alpha exp(sigma z - sigma^2 / 2) + mean_s E``, z normal, E exponential.

    In the mean ``alpha + mean_s``: sigma spreads what there is, ``mean_s`` adds what queues add. Messages may overtake
    each other. Only the events can tell what becomes of it.

    Args:
        sigma: standard deviation of the logarithm; at least 0.
        mean_s: mean of what is added, in seconds; at least 0.

    Raises:
        SpecError: a field that is negative or not finite.
    """

    sigma: float = 0.0
    mean_s: float = 0.0

    def __post_init__(self) -> None:
        for field in ("sigma", "mean_s"):
            check_at_least_0(f"latency_jitter.{field}", getattr(self, field))

    def delay(self, topology: Topology, rng: np.random.Generator) -> Callable[[int, int], float]:
        """By how many seconds each message in turn is late, as `run_events` asks: ``delay(sender, receiver)``.

        Args:
            topology: whose latencies they are.
            rng: whose draws they are.
        """
        factors: list[float] = []
        added: list[float] = []

        @cache
        def latency_s(sender: int, receiver: int) -> float:
            return float(topology.paths(np.array([sender]), np.array([receiver])).latency_s[0])

        def delay(sender: int, receiver: int) -> float:
            if not factors:
                z, e = rng.standard_normal(DRAWS_AT_ONCE), rng.standard_exponential(DRAWS_AT_ONCE)
                factors.extend(lognormal_factors(self.sigma, z).tolist())
                added.extend((self.mean_s * e).tolist())
            return latency_s(sender, receiver) * (factors.pop() - 1) + added.pop()

        return delay
