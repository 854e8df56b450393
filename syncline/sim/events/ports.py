"""What messages travel over, and the port by which those of a worker leave it, one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import simpy

from syncline.sim.events.flows import Channels, Way

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

    def late(self, way: Way, sender: int, receiver: int) -> tuple[float, float]:
        """How long before and after its bytes flow a message takes that starts now, with its delay."""
        late_s = 0.0 if self.delay is None else self.delay(sender, receiver)
        return (way.before_s, way.after_s + late_s) if self.eager else (way.before_s + late_s, way.after_s)


class Offered(Protocol):
    """A message that queues on a port."""

    def offer(self) -> None:
        """The port is its own until it frees it."""


class PortOut:
    """Serves messages one at a time, in the order of queueing."""

    __slots__ = ("busy", "queue")

    def __init__(self) -> None:
        self.busy = False
        self.queue: deque[Offered] = deque()

    def put(self, message: Offered) -> None:
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
