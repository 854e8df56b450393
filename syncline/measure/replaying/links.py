"""Bytes that a record sends over each link of a network, and the utilisation of the busiest links.

A collective's messages are those of its algorithm, each over all the links of its path. If there are too many ranks to
simulate messages, collectives are timed by levels instead, and the bytes are still those of the algorithm.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.channels import channel_bytes, channel_links
from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.collectives.table import ALGORITHMS, TIMED_AS_A_WHOLE, default_algorithm, is_nccl, nccl_on
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import among, topology
from syncline.measure.recording.record import MessageSent, Started
from syncline.measure.replaying.clocks import TraceRecord, Window
from syncline.measure.replaying.replay import algorithms_on
from syncline.measure.replaying.scenario import ReplayedOn
from syncline.sim.collectives.rounds import rounds


def links_of_record(record: TraceRecord, on: Network, step_s: float, question: ReplayedOn) -> list[dict[str, Any]]:
    """Return the traffic of a record on the links of a network, one row for all links of one name.

    Args:
        on: the network without changes.
        step_s: seconds of a mean step on it.
        question: the algorithm of collectives, and the changes.

    Returns:
        Rows with ``channels``, the number of directions of such links that carry anything, ``bytes``, the bytes that
        one of them carries in a mean step of `Window`, ``most_bytes``, the same for the busiest, and ``busy``, the part
        of a step that the busiest needs for its bytes at its full rate.
    """
    changed, _ = question.network_and_hardware(on)
    paths, window = topology(changed, len(record.ranks)), Window.for_steps(record.steps)
    carried = carried_in(record, window, changed, question.algorithm) / window.steps
    names = channel_links(topology(on, len(record.ranks)))
    rows = []
    for name in dict.fromkeys(names):
        channels = np.flatnonzero([link_name == name for link_name in names])
        used = channels[carried[channels] > 0]
        if len(used):
            busy_s = carried[used] / paths.bandwidth_bytes_per_s[used]
            rows.append({
                "method": record.name,
                "network": on.name,
                "link": name,
                "channels": len(used),
                "bytes": float(carried[used].mean()),
                "most_bytes": float(carried[used].max()),
                "busy": float(busy_s.max() / step_s) if step_s else None,
            })  # fmt: skip
    return rows


def carried_in(record: TraceRecord, window: Window, on: Network, algorithm: str | None) -> Floats:
    """Return the bytes that each channel of a network carries in a window of steps, ``(C,)``."""
    workers = len(record.ranks)
    paths = topology(on, workers)
    algorithm_of = algorithms_on(on, workers, algorithm_or_auto(algorithm, on))
    calls: Counter[tuple[str, str, float, tuple[int, ...]]] = Counter()
    sent: Counter[tuple[int, int]] = Counter()
    seen: set[tuple[str, int]] = set()
    for sender, rank in enumerate(record.ranks):
        for step, event in rank.by_step():
            if window.first and not window.first <= step < window.last:
                continue
            if isinstance(event, MessageSent):
                sent[sender, event.to] += event.payload_bytes
            elif isinstance(event, Started) and len(event.ranks) > 1 and event.key not in seen:
                seen.add(event.key)
                algorithm_name = algorithm_of(event) or default_algorithm(event.kind, on)
                if algorithm_name in TIMED_AS_A_WHOLE:  # its bytes are a ring's
                    algorithm_name = ALGORITHMS[event.kind][0]
                calls[event.kind, algorithm_name, event.payload_bytes, event.ranks] += 1
    total = np.zeros(len(paths.bandwidth_bytes_per_s))
    for (kind, algorithm_name, nbytes, ranks), times in calls.items():
        sizes = inner_sizes(among(paths, ranks), len(ranks))
        nccl = nccl_on(on) if is_nccl(kind, algorithm_name) else None
        total += times * channel_bytes(rounds(kind, len(ranks), nbytes, algorithm_name, sizes, nccl), ranks, paths)
    if sent:
        senders, receivers = np.array(list(sent)).T
        sizes_of = np.array(list(sent.values()), dtype=np.float64)
        total += channel_bytes([Round(senders, receivers, sizes_of)], range(workers), paths)
    return total
