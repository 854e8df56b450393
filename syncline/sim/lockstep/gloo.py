"""The rings of gloo in lockstep: the history of `syncline.sim.events.gloo` by a recurrence over all workers at once.

For the message of round i from s to r, with ``ready_i`` the time at which a worker comes to round i,

    start = max(ready_i of s, clear + alpha, end of the message before on this connection),   end = start + n / R
    clear = ready_i of r, or if r's message to s is leaving then (two workers, in step), its end

and it arrives alpha after its end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.gloo_costs import FREE, GlooCosts
from syncline.costmodel.network.paths import Floats
from syncline.costmodel.network.topology import Topology
from syncline.sim.collectives.gloo import rounds_ahead, waits_for_sends
from syncline.sim.lockstep.routed import Contention, narrowest, shared_channels

SAME = 1e-12
"""Relative difference up to which two times are the same instant."""


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
    complete = [entry_s]  # when a worker has all messages that each round needs; the first entry is before any round
    received, sent = entry_s.copy(), entry_s.copy()
    idle = np.full(workers, -np.inf)
    recent: list[tuple[Floats, Floats]] = [(idle, idle), (idle, idle)]  # start and end of each worker's last messages
    round_costs: dict[int, tuple[Floats, Floats, Floats]] = {}
    slower, message_s = 1 + costs.latency_part, costs.message_s
    for round_number, (round_, ahead) in enumerate(zip(rounds, rounds_ahead(kind, len(rounds), workers), strict=True)):
        senders, receivers, nbytes = round_
        if id(round_) not in round_costs:
            forward, backward = topology.paths(senders, receivers), topology.paths(receivers, senders)
            round_costs[id(round_)] = (
                np.broadcast_to(nbytes, senders.shape) / narrowest(forward, bandwidth),
                slower * forward.latency_s + forward.overhead_s + message_s,
                slower * backward.latency_s + backward.overhead_s + message_s,
            )
        flow_s, alpha_s, alpha_back_s = round_costs[id(round_)]
        if workers == 2 and len(senders) == 2 and (np.ptp(flow_s) or np.ptp(alpha_s)):
            raise Contention("clears-to-send queue behind data on one connection, which only the events can follow")
        ready = complete[max(round_number + 1 - ahead, 0)]
        clear_s = ready[receivers]
        if workers == 2:  # one connection: behind the message that leaves now
            for starts, ends in recent:
                leaving = starts[receivers] <= ready[receivers] * (1 + SAME)
                clear_s = np.where(leaving, np.maximum(clear_s, ends[receivers]), clear_s)
        start = np.maximum(ready[senders], clear_s + alpha_back_s)
        start = np.maximum(start, recent[-1][1][senders])
        end = start + flow_s
        latest_start, latest_end = recent[-1][0].copy(), recent[-1][1].copy()
        latest_start[senders], latest_end[senders] = start, end
        recent = [recent[-1], (latest_start, latest_end)]
        received[receivers] = np.maximum(received[receivers], end + alpha_s)
        sent[senders] = np.maximum(sent[senders], end)
        complete.append(np.maximum(received, sent) if in_ring else received.copy())
    return received, sent
