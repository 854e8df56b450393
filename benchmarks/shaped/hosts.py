"""Shaped networks as hosts on which trainings are validated."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.shaped.measure import link as line
from benchmarks.shaped.network import (
    HEADER_BYTES,
    MTU,
    PRIORITIES,
    Network,
    hurry_networks,
    packet_bytes,
    possible_priority,
)
from syncline.costmodel import Link
from syncline.costmodel import Network as Described
from syncline.costmodel.network.software_costs import GlooCosts
from syncline.errors import SpecError
from syncline.measure.processes.hosts import run_together

ROOT = Path(__file__).parents[2]

LINK = "a link of a latency and a bandwidth, as in 5ms,100Mbit/s: lines here have nothing else"


class ShapedHosts:
    """Network namespaces joined by lines of the rate and latency that a spec's networks have.

    Args:
        costs: what gloo's software takes on this machine.
    """

    def __init__(self, costs: GlooCosts) -> None:
        self._costs = costs

    def links(self, networks: Sequence[Described]) -> list[Link]:
        """The lines of these networks, as the cost model sees them: less what headers take.

        Raises:
            SpecError: a network that is not one link that all have, or a link with more than latency and bandwidth.
        """
        return [self._line(network) for network in networks]

    def _line(self, network: Described) -> Link:
        if not isinstance(network, Link):
            raise SpecError("network", network.name, LINK)
        bare = Link(network.latency_s, network.bandwidth_bytes_per_s, network.name)
        if network != bare:
            raise SpecError("network", network.name, LINK)
        made = line(float(network.bandwidth_bytes_per_s), float(network.latency_s))
        return dataclasses.replace(made, name=network.name, gloo=self._costs)

    def segment_bytes(self, link: Link) -> int:
        """The whole segments that the kernel hands to a device at once."""
        most = MTU - HEADER_BYTES
        return most * max(1, packet_bytes(float(link.bandwidth_bytes_per_s)) // most)

    def run(self, link: Link, workers: int, arguments: Sequence[str], timeout_s: float) -> None:
        """See `syncline.measure.processes.hosts.Hosts.run`; cores are shared here, so gloo's threads go first."""
        priority = possible_priority("network")
        with Network(workers, float(link.bandwidth_bytes_per_s), float(link.latency_s)) as network:
            environments = [
                os.environ | {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONPATH": str(ROOT)}
                | network.environment(host) for host in range(workers)
            ]  # fmt: skip
            commands = [
                [*PRIORITIES[priority], *network.command(host, [sys.executable, *arguments])] for host in range(workers)
            ]
            run_together(commands, environments, timeout_s, hurry_networks if priority == "network" else None)
