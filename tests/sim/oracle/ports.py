"""What messages travel over, and the ports by which they leave a worker and reach it, one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import simpy

from tests.sim.oracle.flows import Channels, Route

Delay: TypeAlias = Callable[[int, int], float]
"""Seconds by which a message from one worker to another is late, called once per message when it starts."""


class Fabric(NamedTuple):
    """What messages travel over.

    Attributes:
        env: the clock.
        channels: the channels.
        eager: the start rule: eager, or rendezvous.
        delay: by how much a message is late, if any ever is.
    """

    env: simpy.Environment
    channels: Channels
    eager: bool
    delay: Delay | None

    def late(self, route: Route, sender: int, receiver: int) -> tuple[float, float]:
        """How long before and after its bytes flow a message takes that starts now, with its delay."""
        late_s = 0.0 if self.delay is None else self.delay(sender, receiver)
        return (route.before_s, route.after_s + late_s) if self.eager else (route.before_s + late_s, route.after_s)


class Queued(Protocol):
    """A message that queues on a port."""

    def offer(self) -> None:
        """The port is its own until it frees it."""


class PortOut:
    """Serves messages one at a time, in the order of queueing."""

    __slots__ = ("busy", "queue")

    def __init__(self) -> None:
        self.busy = False
        self.queue: deque[Queued] = deque()

    def put(self, message: Queued) -> None:
        """Queue a message."""
        if self.busy:
            self.queue.append(message)
        else:
            self.busy = True
            message.offer()

    def free(self) -> None:
        """The message has left."""
        if self.queue:
            self.queue.popleft().offer()
        else:
            self.busy = False


class Receiving(Protocol):
    """What a worker receives through its port in for a collective."""

    receives: int

    def admit(self) -> None:
        """The port is its own."""


class PortIn:
    """Serves the collectives of one stream of a worker one after another: which is next, and which are known."""

    __slots__ = ("known", "serving")

    def __init__(self) -> None:
        self.serving = 0
        self.known: dict[int, Receiving] = {}

    def know(self, number: int, rank: Receiving) -> None:
        """The worker takes part in a collective, its ``number``-th on this stream."""
        self.known[number] = rank
        if number == self.serving:
            self._serve()

    def next(self) -> None:
        """The collective has no more messages to this worker."""
        del self.known[self.serving]
        self.serving += 1
        self._serve()

    def _serve(self) -> None:
        while (rank := self.known.get(self.serving)) is not None:
            if rank.receives:
                rank.admit()
                return
            del self.known[self.serving]
            self.serving += 1
