"""Collectives, worker by worker: who sends and receives what when.

A worker has a port out, which serves one message at a time in the order of queueing, and a port in, which serves them
in the order in which the worker receives them by its program. A message starts when both are its own. By the
rendezvous rule a worker comes to one round after another, which keeps the ports in order by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from syncline.sim.events.flows import Flow, Later, Way
from syncline.sim.events.ports import Fabric, PortOut
from syncline.sim.events.steps import Role


class Receiving(Protocol):
    """What a worker receives through its port in for a collective."""

    receives: int

    def admit(self) -> None:
        """The port is its own."""


class PortIn:
    """Serves the collectives of one stream of a worker one after another: which is next, and which are known."""

    __slots__ = ("members", "serving")

    def __init__(self) -> None:
        self.serving = 0
        self.members: dict[int, Receiving] = {}

    def know(self, number: int, member: Receiving) -> None:
        """The worker takes part in a collective, its ``number``-th on this stream."""
        self.members[number] = member
        if number == self.serving:
            self._serve()

    def next(self) -> None:
        """The collective has no more messages to this worker."""
        del self.members[self.serving]
        self.serving += 1
        self._serve()

    def _serve(self) -> None:
        while (member := self.members.get(self.serving)) is not None:
            if member.receives:
                member.admit()
                return
            del self.members[self.serving]
            self.serving += 1


class Member:
    """The part of one worker in one collective.

    Args:
        fabric: what messages travel over.
        worker: which.
        members: of this collective, in the order of its group.
        role: what it does in each round.
        out: its port out.
        port_in: its port in.
    """

    __slots__ = (
        "admitted", "at", "before", "done", "early", "fabric", "have", "members", "nbytes", "need", "out", "port_in",
        "receives", "steps", "unsent", "waiting", "worker",
    )  # fmt: skip

    def __init__(
        self, fabric: Fabric, worker: int, members: list[Member], role: Role, out: PortOut, port_in: PortIn
    ) -> None:
        self.fabric, self.worker, self.members = fabric, worker, members
        self.steps, self.before, self.nbytes = role
        self.out, self.port_in = out, port_in
        self.receives = role.before[-1]
        self.at = 0  # the step
        self.have = 0  # messages that have arrived, in order
        self.need: float = math.inf  # that must have before the next step; not before it enters
        self.early: set[int] = set()  # that have arrived before one that comes before them
        self.unsent = 0
        self.admitted = 0  # messages to it that may start or have
        self.waiting: dict[int, Part] = {}  # to start, for their turn

    def enter(self, done: Callable[[], object]) -> None:
        """The worker has come to the collective; ``done`` is called when it has nothing more to do."""
        self.need, self.done = 0, done
        self.advance()

    def advance(self) -> None:
        """Go on until something has to be waited for."""
        steps, eager = self.steps, self.fabric.eager
        while self.have >= self.need and (eager or not self.unsent):
            at = self.at
            if at == len(steps):
                if not self.unsent:
                    self.done()
                return
            self.at = at + 1
            sends, receives = steps[at]
            self.need += receives
            self.unsent += len(sends)
            for to, place, nbytes, way in sends:
                receiver = self.members[to]
                self.out.put(Part(way, nbytes, self, receiver, receiver.before[at] + place))
            if not eager:
                for _ in range(receives):
                    self.admit()

    def admit(self) -> None:
        """One more message to this worker may start."""
        turn = self.admitted
        self.admitted = turn + 1
        if self.waiting:
            part = self.waiting.pop(turn, None)
            if part is not None:
                part.start()

    def took(self) -> None:
        """The port in is free again."""
        if self.fabric.eager:
            if self.admitted < self.receives:
                self.admit()
            else:
                self.port_in.next()

    def left(self) -> None:
        """A message of its own has left."""
        self.unsent -= 1
        self.out.free()
        if not self.unsent and self.have >= self.need:
            self.advance()

    def got(self, turn: int) -> None:
        """A message to it has arrived."""
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


class Part(Flow):
    """A message of a collective; ``turn`` is its place among those that its receiver gets."""

    __slots__ = ("after_s", "receiver", "sender", "turn")

    def __init__(self, way: Way, nbytes: float, sender: Member, receiver: Member, turn: int) -> None:
        self.way, self.nbytes, self.sender, self.receiver, self.turn = way, nbytes, sender, receiver, turn

    def offer(self) -> None:
        """The port out is its own: start, or wait for the port in."""
        if self.turn < self.receiver.admitted:
            self.start()
        else:
            self.receiver.waiting[self.turn] = self

    def start(self) -> None:
        """Both ports are its own."""
        fabric, way = self.sender.fabric, self.way
        before_s, self.after_s = way.before_s, way.after_s
        if fabric.delay is not None:
            before_s, self.after_s = fabric.late(way, self.sender.worker, self.receiver.worker)
        if before_s:
            Later(fabric.env, before_s, self.leave)
        else:
            fabric.channels.carry(self)

    def leave(self, _: Later) -> None:
        """The bytes can flow."""
        self.sender.fabric.channels.carry(self)

    def drained(self) -> None:
        """Both ports are free; the message arrives later."""
        Later(self.sender.fabric.env, self.after_s, self.arrive)
        self.sender.left()
        self.receiver.took()

    def arrive(self, _: Later) -> None:
        """The receiver has it."""
        self.receiver.got(self.turn)
