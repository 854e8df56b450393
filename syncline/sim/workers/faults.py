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

BATCH = 4096
"""Number of random numbers drawn together: a single draw costs as much time as hundreds."""


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


def with_slow_links(topology: Topology, slow_links: Sequence[SlowLink]) -> Topology:
    """Return the topology with slower links; several factors of one worker multiply.

    A worker's link is the first channel of its outgoing routes and the last of its incoming routes. Workers that share
    such a channel, as behind one network card, share its reduced bandwidth. The latency factor of a message is the mean
    of the sender's and the receiver's.

    Raises:
        SpecError: a worker that does not exist.
    """
    if not slow_links:
        return topology
    bandwidth_divisor, latency_factor = np.ones(topology.workers), np.ones(topology.workers)
    for slow_link in slow_links:
        if slow_link.worker >= topology.workers:
            raise SpecError("slow_link.worker", slow_link.worker, f"a worker from 0 to {topology.workers - 1}")
        bandwidth_divisor[slow_link.worker] *= slow_link.bandwidth_divisor
        latency_factor[slow_link.worker] *= slow_link.latency_factor
    if isinstance(topology, Star):
        return dataclasses.replace(
            topology,
            latency_s=topology.latency_s * latency_factor,
            bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s / np.tile(bandwidth_divisor, 2),
        )
    return _SlowTopology(topology, bandwidth_divisor, latency_factor)


@dataclass(frozen=True, eq=False)
class _SlowTopology(DerivedTopology):
    """A topology in which the links of some workers are slower.

    Args:
        whole: see `DerivedTopology`, the original network.
        bandwidth_divisor: divisor of the bandwidth of each worker's link, ``(P,)``.
        latency_factor: factor of the latency of each worker's messages, ``(P,)``.
    """

    bandwidth_divisor: Floats
    latency_factor: Floats

    @property
    def workers(self) -> int:
        """Return the number of workers, P."""
        return self.whole.workers

    @property
    def network(self) -> Any:
        """Return the original network: hierarchical collectives ask for its nodes, which are the same."""
        return getattr(self.whole, "network", self.whole)

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the bandwidth of each channel; a link that several workers share is divided by each one's divisor."""
        divisor = np.ones(len(self.whole.bandwidth_bytes_per_s))
        for worker in np.flatnonzero(self.bandwidth_divisor != 1):
            divisor[self._link_channels(int(worker))] *= self.bandwidth_divisor[worker]
        return self.whole.bandwidth_bytes_per_s / divisor

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the original routes with the changed latencies."""
        paths = self.whole.paths(senders, receivers)
        factor = (self.latency_factor[senders] + self.latency_factor[receivers]) / 2
        return paths._replace(latency_s=paths.latency_s * factor)

    def _link_channels(self, worker: int) -> Ints:
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

    alpha is the latency of the route, z standard normal, E standard exponential. The mean is ``alpha + mean_delay_s``:
    sigma spreads alpha, and ``mean_delay_s`` adds the time in queues. Messages may overtake each other. Only the event
    simulator models random latencies.

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
        """Return a function ``delay(sender, receiver)`` that draws the seconds by which the next message is late.

        `run_events` calls this function once per message in turn.

        Args:
            topology: topology with the latencies.
            rng: random generator of the draws.
        """
        factors: list[float] = []
        queue_delays_s: list[float] = []

        @cache
        def latency_s(sender: int, receiver: int) -> float:
            return float(topology.paths(np.array([sender]), np.array([receiver])).latency_s[0])

        def delay(sender: int, receiver: int) -> float:
            if not factors:
                factors.extend(lognormal_factors(self.sigma, rng.standard_normal(BATCH)).tolist())
                queue_delays_s.extend((self.mean_delay_s * rng.standard_exponential(BATCH)).tolist())
            return latency_s(sender, receiver) * (factors.pop() - 1) + queue_delays_s.pop()

        return delay
