"""NCCL's collectives over sockets in lockstep: the times of the event simulation by a recurrence over all workers.

For the message of a round from sender s to receiver r, with ``received`` the time at which all messages up to ``ahead``
rounds before have arrived at s,

    start = max(received of s, port out of s, port in of r),   end = start + o + n / R

and the message arrives at end + alpha: o is its overhead, n its bytes, R the bandwidth of its route, alpha the latency.
These are maxima and sums alone, so a collective is a linear map of the max-plus algebra, as others.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from syncline.sim.lockstep.recurrences import Ports
from syncline.sim.lockstep.routed import Contention, RoutedRound, RoutedRounds


def run_nccl(rounds: RoutedRounds, ports: Ports, rounds_ahead: int | None, call_s: float = 0.0) -> None:
    """Move the ports on to the end of a collective of NCCL.

    Args:
        rounds: rounds of the collective on a topology.
        ports: times at which each worker joins and its ports are free, ``(..., P)`` seconds; changed in place.
        rounds_ahead: a round starts when all messages up to this number of rounds before have arrived; None: no wait.
        call_s: seconds that every worker takes before its first round.

    Raises:
        Contention: messages share a channel.
    """
    if rounds.shares:
        raise Contention("workers share a channel, which only the events can follow")
    if not rounds.runs:
        return
    received_s = ports.received_s + call_s
    out_s, in_s = np.maximum(ports.out_s, received_s), ports.in_s
    recent_s: deque[np.ndarray] = deque(
        [received_s], maxlen=rounds_ahead
    )  # after each round; workers wait for the oldest
    for routed_round, times in rounds.runs:
        assert isinstance(routed_round, RoutedRound), "no collective of NCCL's is one message after another"
        senders, receivers, _ = routed_round.of
        occupied_s = routed_round.overhead_s + routed_round.flow_s
        for _ in range(times):
            start_s = np.maximum(recent_s[0][..., senders], out_s[..., senders])
            np.maximum(start_s, in_s[..., receivers], out=start_s)
            end_s = start_s + occupied_s
            out_s[..., senders] = end_s
            in_s[..., receivers] = end_s
            received_s = received_s.copy()
            received_s[..., receivers] = np.maximum(received_s[..., receivers], end_s + routed_round.latency_s)
            if rounds_ahead is not None:
                recent_s.append(received_s)
    ports.received_s, ports.out_s = received_s, out_s
