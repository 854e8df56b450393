"""What a record sends over each link of a network, and how busy the busiest of its links are.

A collective's messages are those of its algorithm, each over all the links of its way. Where the ranks are too many to
follow messages, collectives are timed by levels instead, and the bytes are still those of the algorithm.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from syncline.backend.tracing.record import MessageSent, Started
from syncline.costmodel import Network
from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.collectives.policies import unless_named
from syncline.costmodel.collectives.table import first_on, is_nccl, nccl_on
from syncline.costmodel.network.channels import carried_bytes, channel_links
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import topology
from syncline.experiments.tracing.clocks import TraceRecord, Window
from syncline.experiments.tracing.replay import carrier
from syncline.experiments.tracing.scenario import ReplayedOn
from syncline.sim.collectives.rounds import rounds


def links_of_record(record: TraceRecord, on: Network, step_s: float, question: ReplayedOn) -> list[dict[str, Any]]:
    """What the links of a network carry of a record, one row for links of one name.

    Args:
        record: it.
        on: the network, as it is without changes.
        step_s: a mean step there.
        question: what carries collectives, and what is changed.

    Returns:
        Rows with ``channels``, how many directions of such links carry anything, ``bytes``, what one of them carries in
        a mean step of those that `Window` has, ``most_bytes``, the same of the busiest, and ``busy``, the part of a
        step that this one needs for it at its full rate.
    """
    changed, _ = question.there(on)
    whole, window = topology(changed, len(record.ranks)), Window.of(record.steps)
    carried = carried_in(record, window, changed, question.algorithm) / window.steps
    names = channel_links(topology(on, len(record.ranks)))
    told = []
    for name in dict.fromkeys(names):
        mine = np.flatnonzero([one == name for one in names])
        used = mine[carried[mine] > 0]
        if len(used):
            busy_s = carried[used] / whole.bandwidth_bytes_per_s[used]
            told.append({
                "method": record.name,
                "network": on.name,
                "link": name,
                "channels": len(used),
                "bytes": float(carried[used].mean()),
                "most_bytes": float(carried[used].max()),
                "busy": float(busy_s.max() / step_s) if step_s else None,
            })  # fmt: skip
    return told


def carried_in(record: TraceRecord, window: Window, on: Network, algorithm: str | None) -> Floats:
    """Bytes that each channel of a network carries in a window of steps, ``(C,)``."""
    workers = len(record.ranks)
    whole = topology(on, workers)
    carried_by = carrier(on, workers, unless_named(algorithm, on))
    calls: Counter[tuple[str, str, float, tuple[int, ...]]] = Counter()
    sent: Counter[tuple[int, int]] = Counter()
    seen: set[tuple[str, int]] = set()
    for own, rank in enumerate(record.ranks):
        for step, event in rank.by_step():
            if window.first and not window.first <= step < window.last:
                continue
            if isinstance(event, MessageSent):
                sent[own, event.to] += event.payload_bytes
            elif isinstance(event, Started) and len(event.ranks) > 1 and event.key not in seen:
                seen.add(event.key)
                by = carried_by(event) or first_on(event.kind, on)
                calls[event.kind, by, event.payload_bytes, event.ranks] += 1
    total = np.zeros(len(whole.bandwidth_bytes_per_s))
    for (kind, by, nbytes, ranks), times in calls.items():
        sizes = inner_sizes(on, workers) if len(ranks) == workers else None
        nccl = nccl_on(on) if is_nccl(kind, by) else None
        total += times * carried_bytes(rounds(kind, len(ranks), nbytes, by, sizes, nccl), ranks, whole)
    if sent:
        senders, receivers = np.array(list(sent)).T
        sizes_of = np.array(list(sent.values()), dtype=np.float64)
        total += carried_bytes([Round(senders, receivers, sizes_of)], range(workers), whole)
    return total
