"""The collectives of gloo, of NCCL and of hivemind in lockstep: the times of the event simulation, by recurrences.

**gloo's rings.** For the message of round i from sender s to receiver r, with ``ready_i`` the time at which a worker
comes to round i,

    start = max(ready_i of s, clear + alpha, end of the previous message on this connection),   end = start + n / R
    clear = ready_i of r, or if r's message to s is leaving then (two workers, in step), the end of that message

and the message arrives at end + alpha: n are its bytes, R the bandwidth of its route and alpha the latency.

**NCCL over sockets.** For the message of a round from sender s to receiver r, with ``received`` the time at which all
messages up to ``ahead`` rounds before have arrived at s,

    start = max(received of s, outgoing port of s, incoming port of r),   end = start + o + n / R

and the message arrives at end + alpha, with o its overhead. These are maxima and sums alone, so a collective is a
linear map of the max-plus algebra, as others.

**A direct exchange**, as in hivemind: the messages of each half begin together and share channels by equal parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.paths import Floats, Ints, Topology, narrowest
from syncline.costmodel.network.software_costs import FREE, GlooCosts
from syncline.sim.lockstep.recurrences import Ports
from syncline.sim.lockstep.routed import Contention, RoutedRound, RoutedRounds, channel_bandwidths, shared_channels
from syncline.sim.lockstep.shared_flow import TOLERANCE, SharedFlow
from syncline.sim.program.library_rounds import RINGS_OF_GLOO, gloo_rounds_ahead
from syncline.sim.program.rounds import software_s


class _LastMessages(NamedTuple):
    """The start and the end of a message of each worker, ``(P,)`` seconds each."""

    start_s: Floats
    end_s: Floats


def run_gloo(kind: str, nbytes: float, rounds: Sequence[Round], topology: Topology, ports: Ports) -> None:
    """Run a collective of gloo: change each worker's times to those of its last messages.

    Args:
        topology: the network of the workers, with the costs of gloo's software.
        ports: ports of the workers that enter, ``(P,)`` seconds; changed in place.

    Raises:
        Contention: the collective is no ring, so a worker's messages share its link; routes share a channel; or two
            workers are not in step, so a clear-to-send waits behind data.
    """
    entry_s, workers, costs = ports.received_s, topology.workers, topology.gloo or FREE
    not_in_step = "clears-to-send queue behind data on one connection, which only the events can follow"
    if workers > 2 and kind in ("all_to_all", "broadcast", "gather", "reduce"):
        raise Contention("connections share a link, which only the events can follow")
    if workers == 2 and entry_s[0] != entry_s[1]:
        raise Contention(not_in_step)
    if shared_channels([rounds], topology).any():
        raise Contention("workers share a channel, which only the events can follow")
    if rounds:  # a collective without rounds costs nothing
        entry_s = entry_s + float(costs.software_s(kind, workers, nbytes))
    complete_s = [entry_s]  # times at which a worker has all messages of the first 0, 1, 2, ... rounds
    received_s, sent_s = entry_s.copy(), entry_s.copy()
    never_s = np.full(workers, -np.inf)
    previous = latest = _LastMessages(never_s, never_s)  # the last two messages that each worker sent
    round_costs: dict[int, tuple[Floats, Floats, Floats]] = {}
    rounds_ahead = gloo_rounds_ahead(kind, len(rounds), workers)
    for round_number, (round_, ahead) in enumerate(zip(rounds, rounds_ahead, strict=True)):
        senders, receivers, _ = round_
        if id(round_) not in round_costs:
            round_costs[id(round_)] = _gloo_costs(round_, topology, costs)
        flow_s, latency_s, latency_back_s = round_costs[id(round_)]
        if workers == 2 and len(senders) == 2 and (np.ptp(flow_s) or np.ptp(latency_s)):  # unequal messages
            raise Contention(not_in_step)
        num_complete = max(round_number + 1 - ahead, 0)  # rounds that a worker completes before it comes to this round
        ready_s = complete_s[num_complete]
        clear_s = ready_s[receivers]  # when the receiver sends the clear-to-send
        if workers == 2:  # on the only connection a clear-to-send waits until the receiver's own message has left
            for messages in (previous, latest):
                is_leaving = messages.start_s[receivers] <= ready_s[receivers] * (1 + TOLERANCE)
                clear_s = np.where(is_leaving, np.maximum(clear_s, messages.end_s[receivers]), clear_s)
        start_s = np.maximum(ready_s[senders], clear_s + latency_back_s)
        start_s = np.maximum(start_s, latest.end_s[senders])
        end_s = start_s + flow_s
        previous, latest = latest, _LastMessages(latest.start_s.copy(), latest.end_s.copy())
        latest.start_s[senders], latest.end_s[senders] = start_s, end_s
        received_s[receivers] = np.maximum(received_s[receivers], end_s + latency_s)
        sent_s[senders] = np.maximum(sent_s[senders], end_s)
        complete_s.append(np.maximum(received_s, sent_s) if kind in RINGS_OF_GLOO else received_s.copy())
    ports.received_s, ports.out_s = received_s, sent_s


def _gloo_costs(round_: Round, topology: Topology, costs: GlooCosts) -> tuple[Floats, Floats, Floats]:
    """Return the seconds of M messages' flows, of their latencies, and of their clears-to-send's, ``(M,)`` each."""
    senders, receivers, nbytes = round_
    forward, backward = topology.paths(senders, receivers), topology.paths(receivers, senders)
    latency_factor, message_s = 1 + costs.latency_part, costs.message_s
    return (
        np.broadcast_to(nbytes, senders.shape)
        / np.minimum(narrowest(forward, channel_bandwidths(topology)), costs.flow_bytes_per_s),
        latency_factor * forward.latency_s + forward.overhead_s + message_s,
        latency_factor * backward.latency_s + backward.overhead_s + message_s,
    )


def run_nccl(rounds: RoutedRounds, ports: Ports, rounds_ahead: int | None, call_s: float) -> None:
    """Run a collective of NCCL: change the workers' and ports' times to those at its end.

    Args:
        ports: ports of the workers that enter, ``(..., P)`` seconds; changed in place.
        rounds_ahead: number of rounds that a worker may be ahead of the messages it received; None: it never waits.
        call_s: seconds that every worker takes before its first round.

    Raises:
        Contention: messages share a channel.
    """
    if rounds.shares_channels:
        raise Contention("workers share a channel, which only the events can follow")
    if not rounds.runs:  # without messages, NCCL takes no time
        return
    received_s = ports.received_s + call_s
    out_s, in_s = np.maximum(ports.out_s, received_s), ports.in_s
    # The times after each of the last ``rounds_ahead`` rounds: workers wait for the first of them. Without a limit the
    # queue keeps the times of the entry, so that workers wait for no message.
    recent_received_s: deque[np.ndarray] = deque([received_s], maxlen=rounds_ahead)
    for routed_round, repetitions in rounds.runs:
        assert isinstance(routed_round, RoutedRound), "no collective of NCCL's is one message after another"
        senders, receivers, _ = routed_round.messages
        occupied_s = routed_round.overhead_s + routed_round.flow_s
        for _ in range(repetitions):
            start_s = np.maximum(recent_received_s[0][..., senders], out_s[..., senders])
            np.maximum(start_s, in_s[..., receivers], out=start_s)
            end_s = start_s + occupied_s
            out_s[..., senders] = end_s
            in_s[..., receivers] = end_s
            received_s = received_s.copy()
            received_s[..., receivers] = np.maximum(received_s[..., receivers], end_s + routed_round.latency_s)
            if rounds_ahead is not None:
                recent_received_s.append(received_s)
    ports.received_s, ports.out_s = received_s, out_s


def run_direct(nbytes: float, rounds: Sequence[Round], topology: Topology, ports: Ports) -> None:
    """Run a direct exchange: change each worker's times to those of its last messages.

    The first half of the rounds sends parts to their owners, the second half sends the owners' sums, see
    `syncline.sim.program.rounds`. A message begins when its sender has received all messages of the half before, and
    the previous message on its connection has left.

    Args:
        topology: the network of the workers, with the costs of hivemind's software.
        ports: ports of the workers that enter, ``(P,)`` seconds; changed in place.

    Raises:
        Contention: messages of unequal sizes or begin times share a channel that limits them.
    """
    received_s = ports.received_s + software_s(topology, topology.workers, nbytes)
    ports.received_s, ports.out_s = received_s, received_s.copy()
    middle = len(rounds) // 2
    if not middle:  # a single worker sends nothing
        return
    halves = [_joined_messages(half) for half in (rounds[:middle], rounds[middle:])]
    bandwidth = channel_bandwidths(topology)
    paths = [topology.paths(senders, receivers) for senders, receivers, _ in halves]
    can_limit = _limiting_channels([path.channels for path in paths], bandwidth)
    channel_busy_s = np.full(len(bandwidth), -np.inf)
    connection_busy_s = np.full((topology.workers, topology.workers), -np.inf)  # by sender and receiver
    for (senders, receivers, sizes), path in zip(halves, paths, strict=True):
        begin_s = np.maximum(ports.received_s[senders], connection_busy_s[senders, receivers])
        end_s = SharedFlow(sizes, path.channels, bandwidth, shared=can_limit).end_s(begin_s, channel_busy_s)
        connection_busy_s[senders, receivers] = end_s
        np.maximum.at(ports.received_s, receivers, end_s + path.latency_s + path.overhead_s)
        np.maximum.at(ports.out_s, senders, end_s)


def _joined_messages(rounds: Sequence[Round]) -> tuple[Ints, Ints, Floats]:
    """Return the senders, the receivers and the bytes of all M messages of these rounds, ``(M,)`` each."""
    senders = np.concatenate([round_.senders for round_ in rounds])
    receivers = np.concatenate([round_.receivers for round_ in rounds])
    sizes = [np.broadcast_to(np.float64(round_.nbytes), round_.senders.shape) for round_ in rounds]
    return senders, receivers, np.concatenate(sizes)


def _limiting_channels(channels_of_halves: Sequence[Ints], bandwidth: Floats) -> NDArray[np.bool_]:
    """Return whether each channel can limit messages if the two halves are under way at once, ``(C + 1,)``.

    A message is no faster than the narrowest of its other channels. A channel that can carry all its messages at these
    rates limits none of them.

    Args:
        channels_of_halves: for each half, the at most H channels of M messages, ``(M, H)``, padded with -1.
        bandwidth: bytes per second of C channels and of channel -1, which is infinite, ``(C + 1,)``.
    """
    demand, count = np.zeros(len(bandwidth)), np.zeros(len(bandwidth))  # of each channel: rates, and messages
    for channels in channels_of_halves:
        rates = bandwidth[channels]
        for column in range(channels.shape[1]):
            rate_elsewhere = np.delete(rates, column, axis=1).min(axis=1, initial=np.inf)
            np.add.at(demand, channels[:, column], rate_elsewhere)
            np.add.at(count, channels[:, column], 1)
    limits = (count > 1) & (demand > bandwidth)
    limits[-1] = False  # channel -1, none
    return limits
