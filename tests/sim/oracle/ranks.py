"""Ranks: the part of each worker in an active collective, by the eager and the rendezvous rule.

A worker has a port out, which serves one message at a time in the order of queueing, and a port in, which serves them
in the order in which the worker receives them by its program. A message starts when both are its own. By the
rendezvous rule a worker comes to one round after another, which keeps the ports in order by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from typing_extensions import override

from tests.sim.oracle.messages import Message
from tests.sim.oracle.ports import Fabric, PortIn, PortOut
from tests.sim.oracle.rank_rounds import RankRounds


class Rank:
    """The part of one worker in an active collective.

    Args:
        fabric: what messages travel over.
        worker: which.
        ranks: of this collective, in the order of its group.
        does: what it does in each round.
        out: its port out.
        port_in: its port in.
    """

    __slots__ = (
        "admitted", "at", "before", "done", "early", "fabric", "have", "nbytes", "need", "out", "port_in", "ranks",
        "receives", "rounds", "unsent", "waiting", "worker",
    )  # fmt: skip

    def __init__(
        self, fabric: Fabric, worker: int, ranks: list[Rank], does: RankRounds, out: PortOut, port_in: PortIn
    ) -> None:
        self.fabric, self.worker, self.ranks = fabric, worker, ranks
        self.rounds, self.before, self.nbytes = does
        self.out, self.port_in = out, port_in
        self.receives = self.before[-1]
        self.at = 0  # the round
        self.have = 0  # messages that have arrived, in order
        self.need: float = math.inf  # that must have before the next round; not before it enters
        self.early: set[int] = set()  # that have arrived before one that comes before them
        self.unsent = 0
        self.admitted = 0  # messages to it that may start or have
        self.waiting: dict[int, RankMessage] = {}  # to start, for their turn

    def enter(self, done: Callable[[], object]) -> None:
        """The worker has come to the collective; ``done`` is called when it has nothing more to do."""
        self.need, self.done = 0, done
        self.advance()

    def advance(self) -> None:
        """Go on until something has to be waited for."""
        rounds, eager = self.rounds, self.fabric.eager
        while self.have >= self.need and (eager or not self.unsent):
            at = self.at
            if at == len(rounds):
                if not self.unsent:
                    self.done()
                return
            self.at = at + 1
            sends, receives = rounds[at]
            self.need += receives
            self.unsent += len(sends)
            for to, place, nbytes, route in sends:
                receiver = self.ranks[to]
                self.out.put(RankMessage(route, nbytes, self, receiver, receiver.before[at] + place))
            if not eager:
                for _ in range(receives):
                    self.admit()

    def admit(self) -> None:
        """One more message to this worker may start."""
        turn = self.admitted
        self.admitted = turn + 1
        if self.waiting:
            message = self.waiting.pop(turn, None)
            if message is not None:
                message.start()

    def took(self) -> None:
        """The port in is free again."""
        if self.fabric.eager:
            if self.admitted < self.receives:
                self.admit()
            else:
                self.port_in.next()

    def left(self, _: Message) -> None:
        """A message of its own has left."""
        self.unsent -= 1
        self.out.free()
        if not self.unsent and self.have >= self.need:
            self.advance()

    def got(self, message: Message) -> None:
        """A message to it has arrived."""
        turn: int = message.tag
        if turn != self.have:
            self.early.add(turn)
            return
        self.have = turn + 1
        if self.early:
            while self.have in self.early:
                self.early.remove(self.have)
                self.have += 1
        if self.have >= self.need:
            self.advance()


class RankMessage(Message):
    """A message between ranks: it needs both ports."""

    __slots__ = ()

    @override
    def offer(self) -> None:
        if self.tag < self.receiver.admitted:
            self.start()
        else:
            self.receiver.waiting[self.tag] = self
