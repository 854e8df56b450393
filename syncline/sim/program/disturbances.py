"""Disturbances of a training: of the time that workers compute, of links, and of the latency of messages.

A random `Disturbance` of computing has a known mean, so that a run can be compared with an undisturbed one. A step of a
group lasts as long as its slowest worker, so with the same mean a heavier tail costs more.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from syncline.costmodel.network.paths import DerivedTopology, Floats, Ints, Paths, Star, Topology
from syncline.costmodel.numerics.arrays import require


class Disturbance(Protocol):
    """The protocol of changes to the seconds that workers compute."""

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the changed seconds of T steps of P workers, ``(T, P)``, from the seconds before the change."""


@dataclass(frozen=True)
class ComputeTime:
    """The time that each worker computes in each step: ``base_s``, then each disturbance in turn.

    Args:
        base_s: seconds of an undisturbed step; at least 0.
        disturbances: changes of that time, in order.

    >>> ComputeTime(0.5, (SlowWorker(1, 2.0), Pause(0, 2, 3.0))).sample(3, 2, np.random.default_rng(0))
    array([[0.5, 1. ],
           [0.5, 1. ],
           [3.5, 1. ]])
    """

    base_s: float
    disturbances: tuple[Disturbance, ...] = ()

    def __post_init__(self) -> None:
        check_at_least_0("compute.base_s", self.base_s, "seconds, finite and at least 0")

    def sample(self, steps: int, workers: int, rng: np.random.Generator) -> Floats:
        """Return sampled seconds of shape ``(steps, workers)``.

        Each disturbance has a random stream of its own, so a further one does not change the draws of the others.
        """
        compute_s: Floats = np.broadcast_to(self.base_s, (steps, workers))
        for disturbance, stream in zip(self.disturbances, rng.spawn(len(self.disturbances)), strict=True):
            compute_s = disturbance.disturb(compute_s, stream)
        return compute_s


@dataclass(frozen=True)
class LogNormalJitter:
    """A random factor ``exp(sigma z - sigma^2 / 2)`` of each step of each worker, z standard normal; its mean is 1.

    Args:
        sigma: standard deviation of the logarithm; at least 0.
    """

    sigma: float

    def __post_init__(self) -> None:
        check_at_least_0("jitter.sigma", self.sigma)

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the computing seconds of T steps of P workers, ``(T, P)``, with jitter."""
        return compute_s * lognormal_factors(self.sigma, rng.standard_normal(compute_s.shape))


@dataclass(frozen=True)
class SlowWorker:
    """A worker that takes ``factor`` times as long in every step.

    Args:
        factor: factor of the compute time, at least 0; below 1 the worker is fast.
    """

    worker: int
    factor: float

    def __post_init__(self) -> None:
        check_at_least_0("slow_worker.factor", self.factor, "a finite factor, at least 0")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the computing seconds of T steps of P workers, ``(T, P)``, with one worker slowed."""
        _check_index("slow_worker.worker", self.worker, compute_s.shape[1])
        slowed = compute_s.copy()
        slowed[:, self.worker] *= self.factor
        return slowed


@dataclass(frozen=True)
class Pause:
    """A worker that stands still for some seconds in a step.

    Args:
        seconds: duration; at least 0.
    """

    worker: int
    step: int
    seconds: float

    def __post_init__(self) -> None:
        check_at_least_0("pause.seconds", self.seconds, "seconds, finite and at least 0")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the computing seconds of T steps of P workers, ``(T, P)``, with one step of a worker lengthened."""
        _check_index("pause.step", self.step, compute_s.shape[0])
        _check_index("pause.worker", self.worker, compute_s.shape[1])
        paused = compute_s.copy()
        paused[self.step, self.worker] += self.seconds
        return paused


@dataclass(frozen=True)
class ExponentialTail:
    """A factor ``1 + scale E`` of each step of each worker, E standard exponential: a shifted exponential.

    The factor has the mean ``1 + scale`` and the standard deviation ``scale``. The largest factor of P workers has the
    mean ``1 + scale H_P`` with ``H_P = 1 + 1/2 + ... + 1/P``.

    Args:
        scale: mean of the added time, as a fraction of the undisturbed time; at least 0.

    Source: K. Lee et al., "Speeding Up Distributed Machine Learning Using Codes" (2018), section II.
    """

    scale: float

    def __post_init__(self) -> None:
        check_at_least_0("exponential.scale", self.scale)

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the computing seconds of T steps of P workers, ``(T, P)``, each lengthened by its factor."""
        return compute_s * (1 + self.scale * rng.standard_exponential(compute_s.shape))


@dataclass(frozen=True)
class ParetoTail:
    """A factor ``U^(-1 / shape)`` of each step of each worker, U uniform in (0, 1]: at least 1, a heavy tail.

    The probability of a factor above f is ``f^-shape``. The mean factor is ``shape / (shape - 1)``; the variance is
    infinite up to a shape of 2.

    Args:
        shape: above 1, where the mean is finite; the smaller, the heavier the tail.
    """

    shape: float

    def __post_init__(self) -> None:
        is_valid = math.isfinite(self.shape) and self.shape > 1
        require(is_valid, "pareto.shape", self.shape, "a finite number above 1, where there is a mean")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the computing seconds of T steps of P workers, ``(T, P)``, each lengthened by its factor."""
        uniform = 1 - rng.random(compute_s.shape)  # in (0, 1], because `random` is in [0, 1)
        return compute_s * uniform ** (-1 / self.shape)


@dataclass(frozen=True)
class Slowdowns:
    """Occasional slow steps: each takes ``factor`` times as long with ``probability``, independently.

    The mean factor is ``1 + probability (factor - 1)``. A step of P workers is slow with probability
    ``1 - (1 - probability)^P``.

    Args:
        probability: probability that a worker's step is slow, from 0 to 1.
        factor: factor of the compute time of a slow step, at least 0.
    """

    probability: float
    factor: float

    def __post_init__(self) -> None:
        require(0 <= self.probability <= 1, "slowdowns.probability", self.probability, "a number from 0 to 1")
        check_at_least_0("slowdowns.factor", self.factor, "a finite factor, at least 0")

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the computing seconds of T steps of P workers, ``(T, P)``, times the factor in slow steps."""
        is_slow = rng.random(compute_s.shape) < self.probability
        return np.where(is_slow, self.factor * compute_s, compute_s)


@dataclass(frozen=True)
class PersistentSpeeds:
    """A factor ``exp(sigma z - sigma^2 / 2)`` of all steps of a worker, z standard normal, drawn once per worker.

    The mean factor over workers is 1. This models different machines, whereas `LogNormalJitter` models the variation of
    one machine.

    Args:
        sigma: standard deviation of the logarithm; at least 0.
    """

    sigma: float

    def __post_init__(self) -> None:
        check_at_least_0("speeds.sigma", self.sigma)

    def disturb(self, compute_s: Floats, rng: np.random.Generator) -> Floats:
        """Return the computing seconds of T steps of P workers, ``(T, P)``, times each worker's factor."""
        z = rng.standard_normal(compute_s.shape[1:])  # one for each worker, (P,)
        return compute_s * lognormal_factors(self.sigma, z)


Straggler: TypeAlias = ExponentialTail | ParetoTail | Slowdowns | PersistentSpeeds


def lognormal_factors(sigma: float, z: Floats) -> Floats:
    """Return ``exp(sigma z - sigma^2 / 2)``: 1 in the mean over standard normal z."""
    return np.exp(sigma * z - sigma**2 / 2)


def check_at_least_0(path: str, value: float, expected: str = "a finite number, at least 0") -> None:
    """Raise an error for a number that is negative or not finite."""
    require(math.isfinite(value) and value >= 0, path, value, expected)


def _check_index(path: str, index: int, length: int) -> None:
    """Raise a `SpecError` if an index is not from 0 to ``length - 1``; ``path`` names the field."""
    require(0 <= index < length, path, index, f"a number from 0 to {length - 1}")


DRAWS_AT_ONCE = 4096
"""Number of random numbers drawn together: a single draw costs as much time as hundreds."""


@dataclass(frozen=True)
class SlowLink:
    """A worker's link with ``1 / bandwidth_divisor`` of its bandwidth and ``latency_factor`` times its latency.

    Args:
        bandwidth_divisor: divisor of the bandwidth, above 0; 1 leaves the bandwidth as it is.
        latency_factor: factor of the latency, at least 0; 1 leaves the latency as it is.
    """

    worker: int
    bandwidth_divisor: float = 1.0
    latency_factor: float = 1.0

    def __post_init__(self) -> None:
        require(self.worker >= 0, "slow_link.worker", self.worker, "a worker, from 0")
        is_valid = math.isfinite(self.bandwidth_divisor) and self.bandwidth_divisor > 0
        require(is_valid, "slow_link.bandwidth_divisor", self.bandwidth_divisor, "a finite factor above 0")
        check_at_least_0("slow_link.latency_factor", self.latency_factor, "a finite factor, at least 0")


def with_slow_links(topology: Topology, slow_links: Sequence[SlowLink]) -> Topology:
    """Return the topology with slower links; if a worker is listed several times, its factors multiply.

    A worker's link is the first channel of its outgoing routes and the last of its incoming routes. Workers that share
    such a channel, as behind one network card, share its reduced bandwidth. The latency factor of a message is the mean
    of the sender's and the receiver's.
    """
    if not slow_links:
        return topology
    bandwidth_divisor, latency_factor = np.ones(topology.workers), np.ones(topology.workers)
    for slow_link in slow_links:
        expected = f"a worker from 0 to {topology.workers - 1}"
        require(slow_link.worker < topology.workers, "slow_link.worker", slow_link.worker, expected)
        bandwidth_divisor[slow_link.worker] *= slow_link.bandwidth_divisor
        latency_factor[slow_link.worker] *= slow_link.latency_factor
    if isinstance(topology, Star):
        return dataclasses.replace(
            topology,
            latency_s=topology.latency_s * latency_factor,
            # The channels of a star are the links out of all workers, then the links into them.
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
        """Return the original network, of which hierarchical collectives use the nodes, or the original topology."""
        return getattr(self.whole, "network", self.whole)

    @cached_property
    def bandwidth_bytes_per_s(self) -> Floats:
        """Return the bandwidth of C channels, ``(C,)``, each divided by the divisors of the slow links that use it."""
        divisor = np.ones(len(self.whole.bandwidth_bytes_per_s))
        for worker in np.flatnonzero(self.bandwidth_divisor != 1):
            divisor[self._link_channels(int(worker))] *= self.bandwidth_divisor[worker]
        return self.whole.bandwidth_bytes_per_s / divisor

    def paths(self, senders: Ints, receivers: Ints) -> Paths:
        """Return the original routes; a message's latency grows by the mean factor of its sender and receiver."""
        paths = self.whole.paths(senders, receivers)
        factor = (self.latency_factor[senders] + self.latency_factor[receivers]) / 2
        return paths._replace(latency_s=paths.latency_s * factor)

    def _link_channels(self, worker: int) -> Ints:
        """Return the channels of a worker's link: the first of its outgoing routes, the last of its incoming ones."""
        other_workers = np.delete(np.arange(self.workers), worker)
        repeated_worker = np.full(len(other_workers), worker)
        outgoing = self.whole.paths(repeated_worker, other_workers).channels  # (P - 1, channels of a route), -1: none
        incoming = self.whole.paths(other_workers, repeated_worker).channels
        last_hop = np.maximum((incoming >= 0).sum(axis=1) - 1, 0)  # index of a route's last channel; 0 without any
        channels = np.concatenate([outgoing[:, 0], incoming[np.arange(len(other_workers)), last_hop]])
        return np.unique(channels[channels >= 0])


@dataclass(frozen=True)
class LatencyJitter:
    """A random latency of each message: ``alpha exp(sigma z - sigma^2 / 2) + mean_delay_s E``.

    alpha is the latency of the route, z is standard normal, and E standard exponential. The mean is
    ``alpha + mean_delay_s``: sigma spreads alpha, and ``mean_delay_s`` adds the time in queues. Messages may overtake
    each other. Only the event simulator models random latencies.

    Args:
        sigma: standard deviation of the logarithm; at least 0.
        mean_delay_s: mean of the added time, in seconds; at least 0.
    """

    sigma: float = 0.0
    mean_delay_s: float = 0.0

    def __post_init__(self) -> None:
        for field in ("sigma", "mean_delay_s"):
            check_at_least_0(f"latency_jitter.{field}", getattr(self, field))

    def delay(self, topology: Topology, rng: np.random.Generator) -> Callable[[int, int], float]:
        """Return a function ``delay(sender, receiver)`` that draws the seconds by which the next message is late.

        `run_events` calls the returned function once per message, in the order in which messages start.
        """
        drawn: list[tuple[float, float]] = []  # factors of the latency and seconds in queues, for later messages

        @cache
        def latency_s(sender: int, receiver: int) -> float:
            """Return the latency of the route from sender to receiver, in seconds."""
            return float(topology.paths(np.array([sender]), np.array([receiver])).latency_s[0])

        def delay(sender: int, receiver: int) -> float:
            """Return the seconds by which the next message from sender to receiver is late."""
            if not drawn:
                factors = lognormal_factors(self.sigma, rng.standard_normal(DRAWS_AT_ONCE))
                queue_delays_s = self.mean_delay_s * rng.standard_exponential(DRAWS_AT_ONCE)
                drawn.extend(zip(factors.tolist(), queue_delays_s.tolist(), strict=True))
            factor, queue_delay_s = drawn.pop()
            # The simulation adds the route's own latency, so only the difference from it counts here.
            return latency_s(sender, receiver) * (factor - 1) + queue_delay_s

        return delay
