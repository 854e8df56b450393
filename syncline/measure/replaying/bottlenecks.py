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
from syncline.measure.replaying.clocks import TimedReplay, TraceRecord, Window, replay_step_s
from syncline.measure.replaying.replay import algorithm_chooser
from syncline.measure.replaying.scenario import ReplayedOn, remove_line
from syncline.sim import Timeline
from syncline.sim.program.rounds import rounds


def link_rows(record: TraceRecord, network: Network, step_s: float, question: ReplayedOn) -> list[dict[str, Any]]:
    """Return the traffic of a record on the links of a network, one row for all links of one name.

    Returns:
        Rows with ``channels`` (the number of link directions that carry anything), ``bytes`` and ``most_bytes`` (the
        mean and the maximum over channels of the bytes in a mean step after the first), and ``busy`` (the part of the
        step in which the busiest channel sends at its full rate).
    """
    changed_network = question.changed_network(network)
    bandwidth_bytes_per_s = topology(changed_network, len(record.ranks)).bandwidth_bytes_per_s
    window = Window.for_steps(record.steps)
    bytes_per_step = bytes_by_channel(record, window, changed_network, question.algorithm) / window.steps
    names = channel_links(topology(network, len(record.ranks)))  # changes keep the order of the channels
    rows = []
    for name in dict.fromkeys(names):
        used_channels = [i for i, link_name in enumerate(names) if link_name == name and bytes_per_step[i] > 0]
        if used_channels:
            carried_bytes = bytes_per_step[used_channels]
            busy_s = carried_bytes / bandwidth_bytes_per_s[used_channels]
            rows.append({
                "method": record.name,
                "network": network.name,
                "link": name,
                "channels": len(used_channels),
                "bytes": float(carried_bytes.mean()),
                "most_bytes": float(carried_bytes.max()),
                "busy": float(busy_s.max() / step_s) if step_s else None,
            })  # fmt: skip
    return rows


def bytes_by_channel(record: TraceRecord, window: Window, network: Network, algorithm: str | None) -> Floats:
    """Return the bytes that each of the C channels of a network carries in a window of steps, ``(C,)``.

    A channel is one direction of a link. ``algorithm`` is the algorithm of all collectives; None: that of the network's
    library for each, or ``auto`` on a network without a library.
    """
    workers = len(record.ranks)
    paths = topology(network, workers)
    algorithm_of = algorithm_chooser(network, workers, algorithm_or_auto(algorithm, network))

    # Count equal collectives and the bytes of messages. All ranks of a collective have recorded it: count it once.
    num_calls: Counter[tuple[str, str, float, tuple[int, ...]]] = Counter()
    sent_bytes: Counter[tuple[int, int]] = Counter()
    counted_keys: set[tuple[str, int]] = set()
    for sender, rank in enumerate(record.ranks):
        for step, event in rank.by_step():
            if not window.contains(step):
                continue
            if isinstance(event, MessageSent):
                sent_bytes[sender, event.to] += event.payload_bytes
            elif isinstance(event, Started) and len(event.ranks) > 1 and event.key not in counted_keys:
                counted_keys.add(event.key)
                algorithm_name = algorithm_of(event) or default_algorithm(event.kind, network)
                if algorithm_name in TIMED_AS_A_WHOLE:  # a measured table, for example: count a ring's messages
                    algorithm_name, *_ = ALGORITHMS[event.kind]
                num_calls[event.kind, algorithm_name, event.payload_bytes, event.ranks] += 1

    total = np.zeros(len(paths.bandwidth_bytes_per_s))
    for (kind, algorithm_name, nbytes, ranks), count in num_calls.items():
        level_sizes = inner_sizes(among(paths, ranks), len(ranks))
        nccl = nccl_on(network) if is_nccl(kind, algorithm_name) else None
        rounds_of_call = rounds(kind, len(ranks), nbytes, algorithm_name, group=level_sizes, nccl=nccl)
        total += count * channel_bytes(rounds_of_call, ranks, paths)
    if sent_bytes:
        senders, receivers = np.array(list(sent_bytes)).T
        message_bytes = np.array(list(sent_bytes.values()), dtype=np.float64)
        total += channel_bytes([Round(senders, receivers, message_bytes)], range(workers), paths)
    return total


RELATIVE_CHANGE = 0.01
"""The relative change h of the central differences."""

MAX_LINES = 8
"""Number of lines of a script that are removed one at a time: the lines with the longest waits."""

MIN_WAIT = 1e-3
"""Smallest wait for a line, as a part of a step, at which the line is removed."""


def sensitivities(timed: TimedReplay, question: ReplayedOn, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sensitivities of a record's step time on a network.

    Args:
        lines: rows of the lines of the script, the longest waits first.

    Returns:
        A row for ``bandwidth``, ``latency`` and ``compute``; on a network with several groups of links, rows for the
        ``bandwidth`` and ``latency`` of each group; rows for lines (``site``) and ranks (``rank``).
    """
    rows = [_row(timed, varied="compute", name="hardware", elasticity=_elasticity(timed, question, "compute"))]
    groups = link_groups(timed.network)
    selections: list[LinkGroup | None] = [None, *groups] if len(groups) > 1 else [None]
    for group in selections:
        name = "all links" if group is None else group.name
        for field in ("bandwidth", "latency"):
            rows.append(_row(timed, varied=field, name=name, elasticity=_elasticity(timed, question, field, group)))
    step_s = timed.clock.step_time_s
    waiting_lines = [row["site"] for row in lines if row["exposed_communication_s"] > MIN_WAIT * step_s]
    for line in waiting_lines[:MAX_LINES]:
        record_without_line = timed.record._replace(ranks=remove_line(timed.record.ranks, line))
        step_without_line_s = replay_step_s(record_without_line, timed.network, question)
        share = 1 - step_without_line_s / step_s  # the share of the step time that the line takes
        rows.append(_row(timed, varied="site", name=line, step_time_s=step_without_line_s, share=share))
    total_wait_s = timed.clock.exposed_communication_s
    waits_s = waited_for_s(timed.replayed.timeline, Window.for_steps(timed.record.steps))
    for rank, wait_s in enumerate(waits_s.tolist()):
        share = wait_s / total_wait_s if total_wait_s else 0.0  # the share of all waiting
        rows.append(_row(timed, varied="rank", name=str(rank), waited_for_s=wait_s, share=share))
    return rows


def _row(timed: TimedReplay, varied: str, name: str, **values: float) -> dict[str, Any]:
    """Return a row of `sensitivities`: what is varied, its name, and columns, which are None without a value."""
    row: dict[str, Any] = {"method": timed.record.name, "network": timed.network.name, "by": varied, "name": name}
    return row | {column: values.get(column) for column in ("elasticity", "step_time_s", "waited_for_s", "share")}


def _elasticity(timed: TimedReplay, question: ReplayedOn, field: str, group: LinkGroup | None = None) -> float:
    """Return the percentage by which the step time changes if a field of links or hardware grows by 1 %.

    Args:
        field: ``compute``, ``bandwidth`` or ``latency``.
        group: the links whose field changes; None: all links.
    """

    def step_s(factor: float) -> float:
        """Return the step time with the field multiplied by ``factor``."""
        if field == "compute":
            changes = replace(question.changes, compute=question.changes.compute * factor)
            return replay_step_s(timed.record, timed.network, replace(question, changes=changes))
        links = None if group is None else group.links
        network: Network = scaled(timed.network, **{field: factor}, selected=links)
        return replay_step_s(timed.record, network, question)

    # The derivative d log T / d log x of the step time T by the field x, from T on both sides of x; 0 if T is 0.
    more_s, less_s = step_s(1 + RELATIVE_CHANGE), step_s(1 / (1 + RELATIVE_CHANGE))
    return math.log(more_s / less_s) / (2 * math.log1p(RELATIVE_CHANGE)) if more_s > 0 and less_s > 0 else 0.0


def waited_for_s(timeline: Timeline, window: Window) -> np.ndarray:
    """Return for each rank the seconds that workers wait because this rank joins a collective last, ``(P,)``.

    The values are per step and worker, so that their sum is a part of the mean exposed communication.
    """
    collectives = timeline[~timeline.on_compute & (timeline.what != "send")]
    # The spans of a collective have the same number among their worker's spans of that stream and label.
    num_spans: Counter[tuple[int, str, str]] = Counter()
    spans_of_collective: dict[tuple[str, str, int], list[int]] = {}
    columns = zip(collectives.worker.tolist(), collectives.stream.tolist(), collectives.label.tolist(), strict=True)
    for span, (worker, stream, label) in enumerate(columns):
        number = num_spans[worker, stream, label]
        num_spans[worker, stream, label] += 1
        spans_of_collective.setdefault((stream, label, number), []).append(span)

    # By worker and end of a span: the rank that joined the collective last, and the time when it joined.
    last_joins: dict[tuple[int, float], tuple[int, float]] = {}
    for spans in spans_of_collective.values():
        joins_s = collectives.start_s[spans]
        last_span = spans[int(np.argmax(joins_s))]
        last_join = int(collectives.worker[last_span]), float(joins_s.max())
        for span in spans:
            last_joins[int(collectives.worker[span]), float(collectives.end_s[span])] = last_join

    waited_s = np.zeros(timeline.workers)
    waits = window.select(timeline[timeline.what == "wait"])
    for worker, start_s, end_s in zip(waits.worker.tolist(), waits.start_s.tolist(), waits.end_s.tolist(), strict=True):
        # A wait for a message ends with no collective, and counts for no rank.
        last_rank, joined_s = last_joins.get((worker, end_s), (worker, start_s))
        if last_rank != worker:
            waited_s[last_rank] += max(0.0, min(joined_s, end_s) - start_s)
    return waited_s / (timeline.workers * window.steps)
