"""Faults of the network: a worker's slow link, and messages with random latency."""

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
"""Number of draws made together: a single draw costs as much as hundreds."""


@dataclass(frozen=True)
class SlowLink:
    """A worker's link with ``1 / bandwidth_divisor`` of its bandwidth and ``latency_factor`` times its latency.

    Args:
        worker: number of the worker, from 0.
        bandwidth_divisor: divisor of the bandwidth, above 0; 1 leaves the bandwidth as it is.
        latency_factor: factor of the latency, at least 0; 1 leaves the latency as it is.

    Raises:
        SpecError: a field out of range or not finite.
    """

    worker: int
    bandwidth_divisor: float = 1.0
    latency_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.worker < 0:
            raise SpecError("slow_link.worker", self.worker, "a worker, from 0")
        if not (math.isfinite(self.bandwidth_divisor) and self.bandwidth_divisor > 0):
            raise SpecError("slow_link.bandwidth_divisor", self.bandwidth_divisor, "a finite factor above 0")
        check_at_least_0("slow_link.latency_factor", self.latency_factor, "a finite factor, at least 0")


def with_slow_links(topology: Topology, slow: Sequence[SlowLink]) -> Topology:
    """Return the topology with some workers' links slowed; several factors of one worker multiply.

    A worker's link is the first channel of its outgoing routes and the last of its incoming routes. Workers that share
    such a channel, as behind one network card, share its reduced bandwidth. Half of a message's latency is the
    sender's, half the receiver's.

    Raises:
        SpecError: a worker that does not exist.
    """
    if not slow:
        return topology
    bandwidth, latency = np.ones(topology.workers), np.ones(topology.workers)
    for slow_link in slow:
        if slow_link.worker >= topology.workers:
            raise SpecError("slow_link.worker", slow_link.worker, f"a worker from 0 to {topology.workers - 1}")
        bandwidth[slow_link.worker] *= slow_link.bandwidth_divisor
        latency[slow_link.worker] *= slow_link.latency_factor
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
        whole: see `DerivedTopology`, the original network.
        bandwidth_factor: ``(P,)``, divisor of each worker's bandwidth.
        latency_factor: ``(P,)``, factor of each worker's latency.
    """

    bandwidth_factor: Floats
    latency_factor: Floats

    @property
    def workers(self) -> int:
        """Return P, the number of workers."""
        return self.whole.workers

    @property
    def network(self) -> Any:
        """Return the original network: hierarchical collectives ask for its nodes, which are the same."""
        return getattr(self.whole, "network", self.whole)

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return each channel's bandwidth; a channel that is the own one of several workers is slowed by each."""
        factor = np.ones(len(self.whole.bandwidth_bytes_per_s))
        for worker in np.flatnonzero(self.bandwidth_factor != 1):
            factor[self._own_channels(int(worker))] *= self.bandwidth_factor[worker]
        return self.whole.bandwidth_bytes_per_s / factor

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the original routes with the changed latencies."""
        paths = self.whole.paths(senders, receivers)
        factor = (self.latency_factor[senders] + self.latency_factor[receivers]) / 2
        return paths._replace(latency_s=paths.latency_s * factor)

    def _own_channels(self, worker: int) -> Ints:
        """Return the first channels of a worker's outgoing routes and the last of its incoming routes, each once."""
        others = np.delete(np.arange(self.workers), worker)
        repeated = np.full(len(others), worker)
        outgoing, incoming = self.whole.paths(repeated, others).channels, self.whole.paths(others, repeated).channels
        last = np.maximum((incoming >= 0).sum(axis=1) - 1, 0)
        channels = np.concatenate([outgoing[:, 0], incoming[np.arange(len(others)), last]])
        return np.unique(channels[channels >= 0])


@dataclass(frozen=True)
class LatencyJitter:
    """A random latency of each message: ``alpha exp(sigma z - sigma^2 / 2) + mean_delay_s E``.

    z is normal, E exponential. The mean is ``alpha + mean_delay_s``: sigma spreads the present latency, and
    ``mean_delay_s`` adds the time in queues. Messages may overtake each other. Only the event simulator models this.

    Args:
        sigma: standard deviation of the logarithm; at least 0.
        mean_delay_s: mean of the added time, in seconds; at least 0.

    Raises:
        SpecError: a field that is negative or not finite.
    """

    sigma: float = 0.0
    mean_delay_s: float = 0.0

    def __post_init__(self) -> None:
        for field in ("sigma", "mean_delay_s"):
            check_at_least_0(f"latency_jitter.{field}", getattr(self, field))

    def delay(self, topology: Topology, rng: np.random.Generator) -> Callable[[int, int], float]:
        """Return a function of sender and receiver that draws the lateness of the next message, in seconds.

        `run_events` calls it once per message in turn: ``delay(sender, receiver)``.

        Args:
            topology: topology with the latencies.
            rng: random generator of the draws.
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
                added.extend((self.mean_delay_s * e).tolist())
            return latency_s(sender, receiver) * (factors.pop() - 1) + added.pop()

        return delay
