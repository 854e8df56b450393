"""Messages outside of collectives."""

from __future__ import annotations

from collections.abc import Callable

from syncline.sim.events.flows import Flow, Later, Way
from syncline.sim.events.ports import Fabric, PortOut


class Letter(Flow):
    """A message outside of collectives.

    Args:
        way: its way.
        nbytes: its size.
        fabric: what it travels over.
        ends: its sender and its receiver.
        out: the sender's port out.
        sent: called with when it started, when its bytes have left.
    """

    __slots__ = ("after_s", "arrived", "ends", "fabric", "offered", "out", "reader", "sent", "start_s")

    def __init__(
        self,
        way: Way,
        nbytes: float,
        fabric: Fabric,
        ends: tuple[int, int],
        out: PortOut,
        sent: Callable[[float], object],
    ) -> None:
        self.way, self.nbytes = way, nbytes
        self.fabric, self.ends, self.out, self.sent = fabric, ends, out, sent
        self.reader: Callable[[float], object] | None = None
        self.offered = self.arrived = False

    def read(self, reader: Callable[[float], object]) -> None:
        """The receiver has come to it: ``reader`` is called with its size when it is there."""
        self.reader = reader
        if self.offered and not self.fabric.eager:
            self.start()

    def offer(self) -> None:
        """The port out is its own: start; by rendezvous, when the receiver has come to it."""
        self.offered = True
        if self.fabric.eager or self.reader is not None:
            self.start()

    def start(self) -> None:
        """Nothing is in its way."""
        self.start_s = self.fabric.env.now
        before_s, self.after_s = self.fabric.late(self.way, *self.ends)
        if before_s:
            Later(self.fabric.env, before_s, self.leave)
        else:
            self.fabric.channels.carry(self)

    def leave(self, _: Later) -> None:
        """The bytes can flow."""
        self.fabric.channels.carry(self)

    def drained(self) -> None:
        """The port out is free; the message arrives later."""
        Later(self.fabric.env, self.after_s, self.arrive)
        self.sent(self.start_s)
        self.out.free()

    def arrive(self, _: Later) -> None:
        """The receiver has it."""
        self.arrived = True
        if self.reader is not None:
            self.reader(self.nbytes)
