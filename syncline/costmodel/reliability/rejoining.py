"""Seconds in which workers that return after a failure fetch their state from the other workers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.topology import topology


@lru_cache(maxsize=4096)
def rejoin_s(network: Network, workers: int, copies: int, copy_bytes: float) -> float:
    """Return the seconds in which one returning copy of a model fetches its state.

    A copy of w workers fetches S / w bytes for each of them from the next copy, all at once. If there is only one copy,
    one worker fetches S / w bytes. Messages share the channels of their paths equally:

        max over messages of (latency + overhead + S / w / min over channels of (bandwidth / messages on the channel))

    Args:
        network: network that joins the workers.
        workers: P, number of workers.
        copies: number of model copies, each on equally many workers.
        copy_bytes: S, bytes of the parameters and the method's state of one copy.

    Raises:
        SpecError: the network cannot join that number of workers.

    >>> from syncline.costmodel import NETWORKS
    >>> round(rejoin_s(NETWORKS["wan"].network, 2, 2, 81e9))  # 81 GB at 1 Gbit/s
    648
    """
    if workers < 2:
        return 0.0
    copy_workers = -(-workers // copies)
    fetchers = copy_workers if copies > 1 else 1
    receivers = np.arange(min(fetchers, workers - fetchers))
    worker_topology = topology(network, workers)
    paths = worker_topology.paths(receivers + fetchers, receivers)
    is_channel = paths.channels >= 0
    bandwidth = worker_topology.bandwidth_bytes_per_s
    messages = np.bincount(paths.channels[is_channel], minlength=len(bandwidth))
    message_bandwidth = bandwidth[paths.channels] / np.maximum(messages, 1)[paths.channels]
    bytes_per_s = np.where(is_channel, message_bandwidth, np.inf).min(axis=1)
    return float(np.max(paths.latency_s + paths.overhead_s + copy_bytes / copy_workers / bytes_per_s))
