"""The limits of a record's steps on a network: the busiest links, and the sensitivities of the step time.

The bytes of a link are those of each collective's algorithm, whose messages pass all links of their paths; this also
holds if there are too many ranks to simulate messages, so that collectives are timed by levels.

The sensitivity to links and to computing is the elasticity of a mean step's seconds T, by central differences of the
replay,

    d log T / d log x = (log T(x (1 + h)) - log T(x / (1 + h))) / (2 log(1 + h)),   h = 0.01,

where x is a bandwidth, a latency or the speed of computing: -1 if x alone decides the step time, 0 if x does not
matter. The sensitivity to a line of the script is the step time without the data that the line sends, and that to a
rank is the time that the others wait for this rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.costmodel import Network
from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.collectives.policies import algorithm_or_auto
from syncline.costmodel.collectives.table import ALGORITHMS, TIMED_AS_A_WHOLE, default_algorithm, is_nccl, nccl_on
from syncline.costmodel.collectives.volumes import channel_bytes, channel_links
from syncline.costmodel.network.link import among, topology
from syncline.costmodel.network.link_groups import LinkGroup, link_groups
from syncline.costmodel.network.network_links import scaled
from syncline.costmodel.network.paths import Floats
from syncline.measure.recording.record import MessageSent, Started
from syncline.measure.replaying.clocks import TimedReplay, TraceRecord, Window, replay_timed
from syncline.measure.replaying.replay import algorithms_on
from syncline.measure.replaying.scenario import ReplayedOn, without_site
from syncline.sim import Timeline
from syncline.sim.program.rounds import rounds


def links_of_record(record: TraceRecord, network: Network, step_s: float, question: ReplayedOn) -> list[dict[str, Any]]:
    """Return the traffic of a record on the links of a network, one row for all links of one name.

    Args:
        network: the network without changes.
        step_s: seconds of a mean step on it.
        question: the algorithm of collectives, and the changes.

    Returns:
        Rows with ``channels``, the number of directions of such links that carry anything, ``bytes``, the bytes that
        one of them carries in a mean step of `Window`, ``most_bytes``, the same for the busiest, and ``busy``, the part
        of a step that the busiest needs for its bytes at its full rate.
    """
    changed_network, _ = question.network_and_hardware(network)
    paths = topology(changed_network, len(record.ranks))
    window = Window.for_steps(record.steps)
    carried_bytes = carried_in(record, window, network=changed_network, algorithm=question.algorithm) / window.steps
    names = channel_links(topology(network, len(record.ranks)))
    rows = []
    for name in dict.fromkeys(names):
        channels = np.flatnonzero([link_name == name for link_name in names])
        used_channels = channels[carried_bytes[channels] > 0]
        if len(used_channels):
            busy_s = carried_bytes[used_channels] / paths.bandwidth_bytes_per_s[used_channels]
            rows.append({
                "method": record.name,
                "network": network.name,
                "link": name,
                "channels": len(used_channels),
                "bytes": float(carried_bytes[used_channels].mean()),
                "most_bytes": float(carried_bytes[used_channels].max()),
                "busy": float(busy_s.max() / step_s) if step_s else None,
            })  # fmt: skip
    return rows


def carried_in(record: TraceRecord, window: Window, network: Network, algorithm: str | None) -> Floats:
    """Return the bytes that each channel of a network carries in a window of steps, ``(C,)``."""
    workers = len(record.ranks)
    paths = topology(network, workers)
    algorithm_of = algorithms_on(network, workers, algorithm_or_auto(algorithm, network))
    calls: Counter[tuple[str, str, float, tuple[int, ...]]] = Counter()
    sent_counts: Counter[tuple[int, int]] = Counter()
    seen: set[tuple[str, int]] = set()
    for sender, rank in enumerate(record.ranks):
        for step, event in rank.by_step():
            if window.first and not window.first <= step < window.last:
                continue
            if isinstance(event, MessageSent):
                sent_counts[sender, event.to] += event.payload_bytes
            elif isinstance(event, Started) and len(event.ranks) > 1 and event.key not in seen:
                seen.add(event.key)
                algorithm_name = algorithm_of(event) or default_algorithm(event.kind, network)
                if algorithm_name in TIMED_AS_A_WHOLE:  # its bytes are a ring's
                    algorithm_name = ALGORITHMS[event.kind][0]
                calls[event.kind, algorithm_name, event.payload_bytes, event.ranks] += 1
    total = np.zeros(len(paths.bandwidth_bytes_per_s))
    for (kind, algorithm_name, nbytes, ranks), times in calls.items():
        sizes = inner_sizes(among(paths, ranks), len(ranks))
        nccl = nccl_on(network) if is_nccl(kind, algorithm_name) else None
        total += times * channel_bytes(
            rounds(kind, len(ranks), nbytes, algorithm_name, group=sizes, nccl=nccl), ranks, paths
        )
    if sent_counts:
        senders, receivers = np.array(list(sent_counts)).T
        sizes_of = np.array(list(sent_counts.values()), dtype=np.float64)
        total += channel_bytes([Round(senders, receivers, sizes_of)], range(workers), paths)
    return total


CHANGE = 0.01
"""The relative change h of the central differences."""

MOST_LINES = 8
"""Number of lines of a script that are removed one at a time: the lines with the longest waits."""

LEAST_WAIT = 1e-3
"""Smallest wait for a line, as a part of a step, at which the line is removed."""


def sensitivities(timed: TimedReplay, question: ReplayedOn, sites: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sensitivities of a record's step time on a network.

    Args:
        sites: the lines of the script, the longest waits first.

    Returns:
        A row for ``bandwidth``, ``latency`` and ``compute``; on a network with several groups of links the first two
        for each group; rows for lines (``site``) and ranks (``rank``).
    """
    groups = link_groups(timed.on)
    rows = [_row(timed, "compute", "hardware", elasticity=_elasticity(timed, question, "compute"))]
    for only in [None, *(groups if len(groups) > 1 else ())]:
        name = "all links" if only is None else only.name
        for field in ("bandwidth", "latency"):
            rows.append(_row(timed, field, name, elasticity=_elasticity(timed, question, field, only)))
    step_s = timed.clock.step_time_s
    waiting_lines = [site["site"] for site in sites if site["exposed_communication_s"] > LEAST_WAIT * step_s]
    for line in waiting_lines[:MOST_LINES]:
        without_line = timed.record._replace(ranks=without_site(timed.record.ranks, line))
        without_s = replay_timed(without_line, timed.on, question)[1].step_time_s
        share = 1 - without_s / step_s
        rows.append(_row(timed, "site", line, step_time_s=without_s, share=share))
    waited_s = waited_for_s(timed.replayed.timeline, Window.for_steps(timed.record.steps))
    all_s = timed.clock.exposed_communication_s
    for rank, seconds in enumerate(waited_s.tolist()):
        share = seconds / all_s if all_s else 0.0
        rows.append(_row(timed, "rank", str(rank), waited_for_s=seconds, share=share))
    return rows


def _row(replayed: TimedReplay, kind: str, name: str, **values: float) -> dict[str, Any]:
    """Return a row of `sensitivities`; columns without a value are None."""
    row: dict[str, Any] = {"method": replayed.record.name, "network": replayed.on.name, "by": kind, "name": name}
    return row | {key: values.get(key) for key in ("elasticity", "step_time_s", "waited_for_s", "share")}


def _elasticity(replayed: TimedReplay, question: ReplayedOn, field: str, only: LinkGroup | None = None) -> float:
    """Return the elasticity of the step with respect to computing, or to a field of links."""

    def step_s(factor: float) -> float:
        """Return the step time with the field multiplied by ``factor``."""
        if field == "compute":
            changes = replace(question.changes, compute=question.changes.compute * factor)
            return replay_timed(replayed.record, replayed.on, replace(question, changes=changes))[1].step_time_s
        network: Network = scaled(replayed.on, **{field: factor}, selected=None if only is None else only.links)
        return replay_timed(replayed.record, network, question)[1].step_time_s

    return elasticity(step_s(1 + CHANGE), step_s(1 / (1 + CHANGE)))


def elasticity(more_s: float, less_s: float) -> float:
    """Return ``d log T / d log x`` from the times with more of x and with less."""
    return math.log(more_s / less_s) / (2 * math.log1p(CHANGE)) if more_s > 0 and less_s > 0 else 0.0


def waited_for_s(timeline: Timeline, window: Window) -> np.ndarray:
    """Return the seconds that the workers wait for each rank as the last to join a collective, ``(P,)``.

    The values are per step and worker, so that their sum is a part of the mean exposed communication.
    """
    on_network = ~timeline.on_compute & (timeline.what != "send")
    collectives = timeline[on_network]
    # The spans of a collective have the same number among their worker's spans of that stream and label.
    counts: Counter[tuple[int, str, str]] = Counter()
    spans_of_call: dict[tuple[str, str, int], list[int]] = {}
    spans = zip(collectives.worker.tolist(), collectives.stream.tolist(), collectives.label.tolist(), strict=True)
    for row, (worker, stream, label) in enumerate(spans):
        spans_of_call.setdefault((stream, label, counts[worker, stream, label]), []).append(row)
        counts[worker, stream, label] += 1
    last_arrivals = {}  # by worker and end of its collective: the rank that joined last, and when
    for rows in spans_of_call.values():
        arrival_s = collectives.start_s[rows]
        latest_rank = rows[int(np.argmax(arrival_s))]
        last_arrival = int(collectives.worker[latest_rank]), float(arrival_s.max())
        for row in rows:
            last_arrivals[int(collectives.worker[row]), float(collectives.end_s[row])] = last_arrival
    waited_s = np.zeros(timeline.workers)
    waited = window.of_timeline(timeline[timeline.what == "wait"])
    waits = zip(waited.worker.tolist(), waited.start_s.tolist(), waited.end_s.tolist(), strict=True)
    for worker, start_s, end_s in waits:
        last_rank, arrived_s = last_arrivals.get((worker, end_s), (worker, start_s))
        if last_rank != worker:
            waited_s[last_rank] += max(0.0, min(arrived_s, end_s) - start_s)
    return waited_s / (timeline.workers * window.steps)
