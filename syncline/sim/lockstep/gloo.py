"""The rings of gloo in lockstep: the times of the event simulation by a recurrence over all workers at once.

For the message of round i from sender s to receiver r, with ``ready_i`` the time at which a worker comes to round i,

    start = max(ready_i of s, clear + alpha, end of the previous message on this connection),   end = start + n / R
    clear = ready_i of r, or if r's message to s is leaving then (two workers, in step), the end of that message

and the message arrives at end + alpha: n are its bytes, R the bandwidth of its route and alpha the latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.gloo_costs import FREE, GlooCosts
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Topology
from syncline.sim.collectives.gloo import rounds_ahead, waits_for_sends
from syncline.sim.lockstep.routed import Contention, narrowest, shared_channels

SAME = 1e-12
"""Relative difference up to which two times are the same instant."""


class _LastMessages(NamedTuple):
    """Start and end of a message of each worker, both ``(P,)`` seconds."""

    start_s: Floats
    end_s: Floats


def run_gloo(
    kind: str,
    rounds: Sequence[Round],
    topology: Topology,
    entry_s: Floats,
    costs: GlooCosts = FREE,
    call_s: float = 0.0,
) -> tuple[Floats, Floats]:
    """Return the times at which each worker has received and sent its last message of a collective of gloo.

    Args:
        kind: kind of the collective.
        rounds: rounds of the collective.
        topology: the network of the workers.
        entry_s: time at which each worker enters, ``(P,)`` seconds.
        costs: costs of the software: what every message and clear-to-send takes besides its route.
        call_s: seconds that every worker takes before it comes to the first round.

    Returns:
        Both ``(P,)`` seconds; for a worker without messages its entry.

    Raises:
        Contention: messages of a worker share its link, as in all collectives that are no rings; routes share a
            channel; or two workers, whose clears-to-send and data share a connection, are not in step.
    """
    workers = len(entry_s)
    if workers > 2 and kind in ("all_to_all", "broadcast", "gather", "reduce"):
        raise Contention("connections share a link, which only the events can follow")
    if workers == 2 and entry_s[0] != entry_s[1]:
        raise Contention("clears-to-send queue behind data on one connection, which only the events can follow")
    if shared_channels([rounds], topology).any():
        raise Contention("workers share a channel, which only the events can follow")
    bandwidth = np.append(topology.bandwidth_bytes_per_s, np.inf)
    in_ring = waits_for_sends(kind)
    entry_s = entry_s + call_s if rounds else entry_s
    complete_s = [entry_s]  # times at which a worker has all messages up to each round; the first is before any round
    received_s, sent_s = entry_s.copy(), entry_s.copy()
    never_s = np.full(workers, -np.inf)
    recent = [_LastMessages(never_s, never_s)] * 2  # of each worker, the last one at the end
    round_costs: dict[int, tuple[Floats, Floats, Floats]] = {}
    latency_factor, message_s = 1 + costs.latency_part, costs.message_s
    for round_number, (round_, ahead) in enumerate(zip(rounds, rounds_ahead(kind, len(rounds), workers), strict=True)):
        senders, receivers, nbytes = round_
        if id(round_) not in round_costs:
            forward, backward = topology.paths(senders, receivers), topology.paths(receivers, senders)
            round_costs[id(round_)] = (
                np.broadcast_to(nbytes, senders.shape) / narrowest(forward, bandwidth),
                latency_factor * forward.latency_s + forward.overhead_s + message_s,
                latency_factor * backward.latency_s + backward.overhead_s + message_s,
            )
        flow_s, alpha_s, alpha_back_s = round_costs[id(round_)]
        if workers == 2 and len(senders) == 2 and (np.ptp(flow_s) or np.ptp(alpha_s)):
            raise Contention("clears-to-send queue behind data on one connection, which only the events can follow")
        ready_s = complete_s[max(round_number + 1 - ahead, 0)]
        clear_s = ready_s[receivers]
        if workers == 2:  # one connection: a clear-to-send waits for the message that is leaving
            for messages in recent:
                is_leaving = messages.start_s[receivers] <= ready_s[receivers] * (1 + SAME)
                clear_s = np.where(is_leaving, np.maximum(clear_s, messages.end_s[receivers]), clear_s)
        start_s = np.maximum(ready_s[senders], clear_s + alpha_back_s)
        start_s = np.maximum(start_s, recent[-1].end_s[senders])
        end_s = start_s + flow_s
        latest = _LastMessages(recent[-1].start_s.copy(), recent[-1].end_s.copy())
        latest.start_s[senders], latest.end_s[senders] = start_s, end_s
        recent = [recent[-1], latest]
        received_s[receivers] = np.maximum(received_s[receivers], end_s + alpha_s)
        sent_s[senders] = np.maximum(sent_s[senders], end_s)
        complete_s.append(np.maximum(received_s, sent_s) if in_ring else received_s.copy())
    return received_s, sent_s
