"""The recurrences of lockstep: what a round does to the workers' ports.

    eager:       start = max(received_s, port out_s, port in_r);     end = start + o + n / R
    rendezvous:  start = max(through_s, through_r);                  end = start + alpha + o + n / R

of a message from s to r. By the eager rule both ports are free at the end, and it has arrived alpha later; by the
rendezvous rule both ends are through with it at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.network.paths import Floats
from syncline.errors import SpecError, one_of
from syncline.sim.lockstep import rings as cycles
from syncline.sim.lockstep.routed import MANY_ROUNDS, Contention, Ints, RoutedRound, RoutedRounds
from syncline.sim.lockstep.shares import shared_flow_s

__all__ = ["RULES", "Ports", "Rule", "run_routed"]

RULES = ("eager", "rendezvous")


@dataclass(eq=False)
class Ports:
    """The state of all workers: times in seconds, ``(..., P)``. The arrays are changed in place.

    Args:
        received_s: when all that a worker was to receive so far has arrived.
        out_s: when its port out is free.
        in_s: when its port in is free.
        busy_s: ``(C + 1,)``, until when each channel carries bytes; kept of shared channels only.
    """

    received_s: Floats
    out_s: Floats
    in_s: Floats
    busy_s: Floats

    @classmethod
    def at(cls, entry_s: Floats, channels: int, before: Ports | None = None) -> Ports:
        """Workers that enter a collective at these times, ``(..., P)``, after another one on the same ports."""
        if before is None:
            ports_in, busy_s = np.full(entry_s.shape, -np.inf), np.full(channels + 1, -np.inf)
        else:
            ports_in, busy_s = before.in_s.copy(), before.busy_s.copy()
        return cls(entry_s.copy(), entry_s.copy(), ports_in, busy_s)

    @property
    def times_s(self) -> tuple[Floats, Floats, Floats, Floats]:
        """All of it."""
        return self.received_s, self.out_s, self.in_s, self.busy_s

    def copy(self) -> Ports:
        """The same times."""
        return Ports(*(each.copy() for each in self.times_s))

    def moved_s(self, before: Ports) -> float | None:
        """By how much all times are later than before, if by the same: the state is the same, only later."""
        shift_s = float(self.out_s[0] - before.out_s[0])
        for now, then in zip(self.times_s, before.times_s, strict=True):
            used = np.isfinite(now)
            if now is self.busy_s:
                used &= now != then
            late = now[used] - then[used] - shift_s
            if not np.all(np.abs(late) <= np.spacing(np.abs(now[used]))):
                return None
        return shift_s

    def move(self, by_s: float) -> None:
        """Make it later."""
        for times_s in self.times_s:
            times_s += by_s  # noqa: PLW2901 - in place

    @property
    def done_s(self) -> Floats:
        """When each worker's last message has arrived and its own last has left."""
        return np.maximum(self.received_s, self.out_s)


def run_routed(of: RoutedRounds, ports: Ports, rule: Rule) -> None:
    """Move the ports on to the end of a collective.

    Raises:
        SpecError: an unknown rule.
        Contention: transfers that share a channel, and do not begin and end together.
    """
    if rule not in RULES:
        raise SpecError("rule", rule, one_of(RULES, rule))
    round_, many = (_eager, _eager_rings) if rule == "eager" else (_rendezvous, _rendezvous_rings)
    if rule == "rendezvous":
        ports.received_s = np.full_like(ports.out_s, -np.inf)  # one time per worker is the whole state
    for one, times in of.runs:
        if one.rings is not None and not one.shared and times >= MANY_ROUNDS:
            many(one, one.rings, ports, times, of)
            continue
        for left in reversed(range(times)):
            before = ports.copy() if left and one.shared else None
            round_(one, ports, of)
            shift_s = None if before is None else ports.moved_s(before)
            if shift_s is not None:  # as this round moved all, so will each to come
                ports.move(left * shift_s)
                break
    if rule == "rendezvous":
        ports.received_s = ports.out_s.copy()


def _flow_end_s(one: RoutedRound, ports: Ports, among: RoutedRounds, begin_s: Floats) -> Floats:
    if not one.shared:
        return begin_s + one.flow_s
    if begin_s.ndim > 1:
        raise Contention("shared channels are no linear map")
    senders, receivers, nbytes = one.of
    return shared_flow_s(
        begin_s,
        np.broadcast_to(nbytes, senders.shape),
        among.topology.paths(senders, receivers).channels,
        np.append(among.topology.bandwidth_bytes_per_s, np.inf),
        np.append(among.shared, False),
        ports.busy_s,
    )


def _eager(one: RoutedRound, ports: Ports, among: RoutedRounds) -> None:
    senders, receivers, _ = one.of
    if one.source is not None:  # all at once, in the order of the workers
        start_s = np.maximum(ports.received_s, ports.out_s)
        np.maximum(start_s, ports.in_s.take(receivers, axis=-1), out=start_s)
        end_s = _flow_end_s(one, ports, among, start_s + one.overhead_s)
        ports.out_s[...] = end_s
        end_s.take(one.source, axis=-1, out=ports.in_s)
        np.maximum(ports.received_s, (end_s + one.latency_s).take(one.source, axis=-1), out=ports.received_s)
        return
    start_s = np.maximum(ports.received_s[..., senders], ports.out_s[..., senders])
    np.maximum(start_s, ports.in_s[..., receivers], out=start_s)
    end_s = _flow_end_s(one, ports, among, start_s + one.overhead_s)
    ports.out_s[..., senders] = end_s
    ports.in_s[..., receivers] = end_s
    ports.received_s[..., receivers] = np.maximum(ports.received_s[..., receivers], end_s + one.latency_s)


def _eager_rings(one: RoutedRound, order: Ints, ports: Ports, times: int, among: RoutedRounds) -> None:
    """All but the first and the last at once: after the first, a worker's port in is free when its sender's out is."""
    _eager(one, ports, among)
    occupied_s, latency_s = (_along(one, order, each) for each in (one.overhead_s + one.flow_s, one.latency_s))
    x = cycles.eager(_columns(ports.done_s, order), occupied_s, latency_s, times - 2)
    ports.out_s = _back(x, order, ports.out_s.shape)
    ports.in_s[...] = -np.inf
    _eager(one, ports, among)


def _rendezvous(one: RoutedRound, ports: Ports, among: RoutedRounds) -> None:
    senders, receivers, _ = one.of
    through_s = ports.out_s
    if one.source is not None:
        start_s = np.maximum(through_s, through_s.take(receivers, axis=-1))
        end_s = _flow_end_s(one, ports, among, start_s + (one.latency_s + one.overhead_s))
        np.maximum(end_s, end_s.take(one.source, axis=-1), out=through_s)
        return
    start_s = np.maximum(through_s[..., senders], through_s[..., receivers])
    end_s = _flow_end_s(one, ports, among, start_s + (one.latency_s + one.overhead_s))
    through_s[..., senders] = end_s
    through_s[..., receivers] = np.maximum(through_s[..., receivers], end_s)


def _rendezvous_rings(one: RoutedRound, order: Ints, ports: Ports, times: int, among: RoutedRounds) -> None:
    cost_s = _along(one, order, one.latency_s + one.overhead_s + one.flow_s)
    ports.out_s = _back(cycles.rendezvous(_columns(ports.out_s, order), cost_s, times), order, ports.out_s.shape)


def _columns(times_s: Floats, order: Ints) -> Floats:
    """``(..., P)`` as ``(G, M, N)``: along each of M rings of G, N times."""
    return np.ascontiguousarray(np.moveaxis(times_s.reshape(-1, times_s.shape[-1])[:, order], 0, -1))


def _back(x: Floats, order: Ints, shape: tuple[int, ...]) -> Floats:
    times_s = np.empty(shape)
    times_s.reshape(-1, shape[-1])[:, order] = np.moveaxis(x, -1, 0)
    return times_s


def _along(one: RoutedRound, order: Ints, values: float | Floats) -> float | Floats:
    """Of the messages of the workers along the rings: one number, or ``(G, M, 1)``."""
    if isinstance(values, float):
        return values
    of_worker = np.empty(order.size)
    of_worker[one.of.senders] = values
    return of_worker[order][..., None]
