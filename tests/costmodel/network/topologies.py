"""What the tests of topologies share."""

from __future__ import annotations

import itertools

import numpy as np

from syncline.costmodel.network.paths import Paths, Topology


def all_paths(topology: Topology) -> Paths:
    """The ways of every ordered pair of workers."""
    pairs = np.array(list(itertools.permutations(range(topology.workers), 2)), dtype=np.int64).reshape(-1, 2)
    return topology.paths(pairs[:, 0], pairs[:, 1])


def assert_same(one: Topology, other: Topology) -> None:
    """The same latencies and overheads for all pairs, and channels that differ in their numbers alone."""
    assert one.workers == other.workers
    ways, expected = all_paths(one), all_paths(other)
    np.testing.assert_allclose(ways.latency_s, expected.latency_s, rtol=1e-12)
    np.testing.assert_allclose(ways.overhead_s, expected.overhead_s, rtol=1e-12)
    # Which bytes per second any two ways have in common: the channels, whatever their numbers.
    np.testing.assert_allclose(_shared(one, ways), _shared(other, expected), rtol=1e-12)


def _shared(topology: Topology, ways: Paths) -> np.ndarray:
    passed = np.zeros((len(ways.latency_s), len(topology.bandwidth_bytes_per_s)))
    for row, channels in enumerate(ways.channels):
        passed[row, channels[channels >= 0]] = 1
    return passed * topology.bandwidth_bytes_per_s @ passed.T


def channels(topology: Topology, sender: int, receiver: int) -> list[int]:
    """The channels of one way."""
    (way,) = topology.paths(np.array([sender]), np.array([receiver])).channels
    return [int(channel) for channel in way if channel >= 0]
