"""The recurrences of lockstep: the effect of a round on the workers' ports.

    eager:       start = max(received_s, port out_s, port in_r);     end = start + o + n / R
    rendezvous:  start = max(through_s, through_r);                  end = start + alpha + o + n / R

for a message of n bytes from sender s to receiver r, with its overhead o, the latency alpha and the bandwidth R of its
route. By the eager rule both ports are free at the end, and the message arrives alpha later. By the rendezvous rule
``through`` is the time at which a worker is done with its last message; both workers are done with this one at the end.

Transfers that begin together and share channels get max-min fair rates, as far as lockstep can follow them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.network.paths import Floats
from syncline.errors import require_one_of
from syncline.sim.lockstep.rings import eager_rounds, rendezvous_rounds
from syncline.sim.lockstep.routed import MANY_ROUNDS, Contention, Ints, RoutedRound, RoutedRounds, RoutedSequence
from syncline.sim.lockstep.shared_flow import SharedFlow

RULES = ("eager", "rendezvous")


@dataclass(eq=False)
class Ports:
    """The times until which P workers and their ports are busy, ``(..., P)`` seconds.

    Args:
        received_s: time at which all messages so far have arrived at a worker.
        out_s: time at which the worker's outgoing port is free.
        in_s: time at which the worker's incoming port is free.
        busy_s: time until which each of C channels carries bytes, ``(C + 1,)``; valid for shared channels only.
    """

    received_s: Floats
    out_s: Floats
    in_s: Floats
    busy_s: Floats

    @classmethod
    def at_entry(cls, entry_s: Floats, channels: int, before: Ports | None = None) -> Ports:
        """Return the ports of workers that enter a collective at ``entry_s``, ``(..., P)`` seconds.

        ``before``: the ports after the collective before; idle by default.
        """
        if before is None:
            in_s, busy_s = np.full(entry_s.shape, -np.inf), np.full(channels + 1, -np.inf)
        else:
            in_s, busy_s = before.in_s.copy(), before.busy_s.copy()
        return cls(received_s=entry_s.copy(), out_s=entry_s.copy(), in_s=in_s, busy_s=busy_s)

    @property
    def times_s(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return all arrays of times, in the order of the fields."""
        return self.received_s, self.out_s, self.in_s, self.busy_s

    def copy(self) -> Ports:
        """Return a copy of the ports' times."""
        return Ports(*(times_s.copy() for times_s in self.times_s))

    def shift_from(self, earlier: Ports) -> float | None:
        """Return the seconds by which all times are later than in ``earlier``; None if no one number fits all."""
        shift_s = float(self.out_s[0] - earlier.out_s[0])
        for times_s, earlier_s in zip(self.times_s, earlier.times_s, strict=True):
            is_used = np.isfinite(times_s)
            if times_s is self.busy_s:  # the times of channels that no round has used since do not change
                is_used &= times_s != earlier_s
            difference_s = times_s[is_used] - earlier_s[is_used] - shift_s
            if np.any(np.abs(difference_s) > np.spacing(np.abs(times_s[is_used]))):  # by more than rounding
                return None
        return shift_s

    def shift(self, seconds: float) -> None:
        """Make all of the ports' times later by some seconds."""
        for times_s in self.times_s:
            times_s += seconds  # noqa: PLW2901 - in place

    @property
    def done_s(self) -> Floats:
        """Return the time at which a worker has received and sent its last messages, ``(..., P)`` seconds."""
        return np.maximum(self.received_s, self.out_s)


def run_routed(rounds: RoutedRounds, ports: Ports, rule: Rule) -> None:
    """Run the rounds of a collective by a start rule; change the ports in place.

    Raises:
        SpecError: an unknown rule.
        Contention: transfers share a channel but do not begin and end together.
    """
    require_one_of("rule", rule, RULES)
    run_round, run_rings = _eager, _eager_rings
    if rule == "rendezvous":
        run_round, run_rings = _rendezvous, _rendezvous_rings
        ports.received_s = np.full_like(ports.out_s, -np.inf)  # unused until the end: the rule needs ``out_s`` alone
    for routed_round, repetitions in rounds.runs:
        if isinstance(routed_round, RoutedSequence):
            _run_one_by_one(routed_round, ports, rule)
            continue
        if routed_round.rings is not None and not routed_round.shares_channels and repetitions >= MANY_ROUNDS:
            run_rings(routed_round, routed_round.rings, ports, repetitions)
            continue
        shared_flow = _shared_flow(routed_round, rounds)
        for num_left in reversed(range(repetitions)):
            if not routed_round.shares_channels or not num_left:
                run_round(routed_round, ports, shared_flow)
                continue
            # Save computing: once a round shifts all times equally, each later round shifts them as much.
            ports_before = ports.copy()
            run_round(routed_round, ports, shared_flow)
            shift_s = ports.shift_from(ports_before)
            if shift_s is not None:
                ports.shift(num_left * shift_s)
                break
    if rule == "rendezvous":
        ports.received_s = ports.out_s.copy()


def _run_one_by_one(sequence: RoutedSequence, ports: Ports, rule: Rule) -> None:
    """Run rounds of one message each, with Python's floats: they are faster than arrays of one number."""
    senders, receivers, _ = sequence.messages
    columns = senders, receivers, sequence.overhead_s, sequence.flow_s, sequence.latency_s
    messages = list(zip(*(column.tolist() for column in columns), strict=True))
    is_eager = rule == "eager"
    for run in np.ndindex(ports.out_s.shape[:-1]):  # all axes but the last, the workers, are separate runs
        received_s, out_s, in_s = (times_s[run].tolist() for times_s in ports.times_s[:3])
        for sender, receiver, overhead_s, flow_s, latency_s in messages:
            if is_eager:
                start_s = max(received_s[sender], out_s[sender], in_s[receiver])
                end_s = start_s + overhead_s + flow_s
                out_s[sender] = in_s[receiver] = end_s
                received_s[receiver] = max(received_s[receiver], end_s + latency_s)
            else:
                start_s = max(out_s[sender], out_s[receiver])
                # Summed in the order of `_rendezvous`, so that all bits agree.
                out_s[sender] = out_s[receiver] = start_s + (latency_s + overhead_s) + flow_s
        ports.received_s[run], ports.out_s[run], ports.in_s[run] = received_s, out_s, in_s


def _shared_flow(routed_round: RoutedRound, rounds: RoutedRounds) -> SharedFlow | None:
    """Return how the messages of a round share channels; None if they share none."""
    if not routed_round.shares_channels:
        return None
    assert routed_round.channels is not None
    senders, _, nbytes = routed_round.messages
    copies = None if rounds.copies is None else rounds.copies[senders]
    message_bytes = np.broadcast_to(nbytes, senders.shape)
    return SharedFlow(message_bytes, routed_round.channels, rounds.bandwidth, rounds.is_shared, copies)


def _flow_end_s(routed_round: RoutedRound, ports: Ports, shared_flow: SharedFlow | None, begin_s: Floats) -> Floats:
    """Return the end of each flow of M messages from its begin, ``(..., M)`` seconds each."""
    if shared_flow is None:
        return begin_s + routed_round.flow_s
    if begin_s.ndim > 1:  # the rows of a max-plus matrix
        raise Contention("shared channels are no linear map")
    return shared_flow.end_s(begin_s, ports.busy_s)


def _eager(routed_round: RoutedRound, ports: Ports, shared_flow: SharedFlow | None = None) -> None:
    """Run one round by the eager rule; change the ports in place."""
    senders, receivers, _ = routed_round.messages
    sending = senders if routed_round.sender_to is None else slice(None)  # all workers: whole arrays save time
    start_s = np.maximum(ports.received_s[..., sending], ports.out_s[..., sending])
    np.maximum(start_s, ports.in_s.take(receivers, axis=-1), out=start_s)
    end_s = _flow_end_s(routed_round, ports, shared_flow, begin_s=start_s + routed_round.overhead_s)
    arrival_s = end_s + routed_round.latency_s
    ports.out_s[..., sending] = end_s
    if routed_round.sender_to is None:
        ports.in_s[..., receivers] = end_s
        ports.received_s[..., receivers] = np.maximum(ports.received_s[..., receivers], arrival_s)
    else:
        end_s.take(routed_round.sender_to, axis=-1, out=ports.in_s)
        arrival_s = arrival_s.take(routed_round.sender_to, axis=-1)
        np.maximum(ports.received_s, arrival_s, out=ports.received_s)


def _eager_rings(routed_round: RoutedRound, order: Ints, ports: Ports, repetitions: int) -> None:
    """Run equal rounds by the eager rule: the first and the last alone, and all others at once.

    After the first round a worker's incoming port is free when its sender's outgoing port is free. So one time per
    worker describes the state of the rounds between; the last round writes all times of the ports.
    """
    _eager(routed_round, ports)
    occupied_s = _along_rings(routed_round, order, routed_round.overhead_s + routed_round.flow_s)
    latency_s = _along_rings(routed_round, order, routed_round.latency_s)
    times_s = eager_rounds(_to_rings(ports.done_s, order), occupied_s, latency_s, repetitions=repetitions - 2)
    ports.out_s = _from_rings(times_s, order, ports.out_s.shape)  # when each worker can begin the last round
    ports.in_s[...] = -np.inf
    _eager(routed_round, ports)


def _rendezvous(routed_round: RoutedRound, ports: Ports, shared_flow: SharedFlow | None = None) -> None:
    """Run one round by the rendezvous rule; change only ``out_s`` of the ports, in place."""
    senders, receivers, _ = routed_round.messages
    through_s = ports.out_s  # the time at which a worker is done with its last message
    sending = senders if routed_round.sender_to is None else slice(None)  # all workers: whole arrays save time
    start_s = np.maximum(through_s[..., sending], through_s.take(receivers, axis=-1))
    begin_s = start_s + (routed_round.latency_s + routed_round.overhead_s)
    end_s = _flow_end_s(routed_round, ports, shared_flow, begin_s)
    if routed_round.sender_to is None:
        through_s[..., senders] = end_s
        through_s[..., receivers] = np.maximum(through_s[..., receivers], end_s)
    else:
        np.maximum(end_s, end_s.take(routed_round.sender_to, axis=-1), out=through_s)


def _rendezvous_rings(routed_round: RoutedRound, order: Ints, ports: Ports, repetitions: int) -> None:
    """Run equal rounds by the rendezvous rule, all at once; ``order`` has the workers along the rings."""
    cost_s = _along_rings(routed_round, order, routed_round.latency_s + routed_round.overhead_s + routed_round.flow_s)
    times_s = rendezvous_rounds(_to_rings(ports.out_s, order), cost_s, repetitions)
    ports.out_s = _from_rings(times_s, order, ports.out_s.shape)


def _to_rings(times_s: Floats, order: Ints) -> Floats:
    """Return the workers' times of N runs, ``(..., P)``, along M rings of G workers, as ``(G, M, N)``."""
    ring_times_s = times_s.reshape(-1, times_s.shape[-1])[:, order]  # (N, G, M)
    return np.ascontiguousarray(np.moveaxis(ring_times_s, 0, -1))


def _from_rings(ring_times_s: Floats, order: Ints, shape: tuple[int, ...]) -> Floats:
    """Return times along rings, ``(G, M, N)``, as times of workers, ``(..., P)``: the inverse of `_to_rings`."""
    times_s = np.empty(shape)
    times_s.reshape(-1, shape[-1])[:, order] = np.moveaxis(ring_times_s, -1, 0)
    return times_s


def _along_rings(routed_round: RoutedRound, order: Ints, values: float | Floats) -> float | Floats:
    """Return a value per message, ``(M G,)``, along M rings of G workers, as ``(G, M, 1)``; a number stays a number."""
    if isinstance(values, float):
        return values
    worker_values = np.empty(order.size)
    worker_values[routed_round.messages.senders] = values
    return worker_values[order][..., None]
