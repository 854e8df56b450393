"""Messages: one state machine for those of collectives, of gloo and of pipelines.

    queued on a port  ->  offered  ->  started  ->  its bytes flow  ->  drained  ->  arrived

A message is offered when the port is its own, and starts when its receiver is ready as well: what that asks is all in
which kinds of messages differ. It is drained when its last byte has left, which frees both ports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from typing_extensions import override

from syncline.sim.program.instructions import Send
from tests.sim.oracle.flows import Flow, Later, Route
from tests.sim.oracle.ports import Fabric


class End(Protocol):
    """Who sends messages and receives them: a rank of a collective, or a worker's program."""

    worker: int

    @property
    def fabric(self) -> Fabric:
        """What messages travel over."""
        ...

    def left(self, message: Any) -> None:
        """A message of its own has left."""

    def took(self) -> None:
        """The bytes of a message to it are through."""

    def got(self, message: Any) -> None:
        """A message to it has arrived."""


class Message(Flow):
    """A message between two ends; by itself it asks nothing of its receiver.

    Args:
        route: its route.
        nbytes: its size.
        sender: who sends it.
        receiver: who receives it.
        tag: what its receiver knows it by; in a collective, its place among those that the receiver gets.
    """

    __slots__ = ("after_s", "receiver", "sender", "tag")

    def __init__(self, route: Route, nbytes: float, sender: Any, receiver: Any, tag: Any) -> None:
        self.route, self.nbytes, self.sender, self.receiver, self.tag = route, nbytes, sender, receiver, tag

    def offer(self) -> None:
        """The port out is its own."""
        self.start()

    def start(self) -> None:
        """Nothing is in its way."""
        fabric, route = self.sender.fabric, self.route
        before_s, self.after_s = route.before_s, route.after_s
        if fabric.delay is not None:
            before_s, self.after_s = fabric.late(route, self.sender.worker, self.receiver.worker)
        if before_s:
            Later(fabric.env, before_s, self.flow)
        else:
            fabric.channels.carry(self)

    def flow(self, _: Later) -> None:
        """The bytes can flow."""
        self.sender.fabric.channels.carry(self)

    @override
    def drained(self) -> None:
        Later(self.sender.fabric.env, self.after_s, self.arrive)
        self.sender.left(self)
        self.receiver.took()

    def arrive(self, _: Later) -> None:
        """The receiver has it."""
        self.receiver.got(self)


class PointToPoint(Message):
    """A message of a `Send`: by the rendezvous rule it starts when its receiver has come to the `Recv`.

    Args:
        send: the instruction.
        others: of `Message`, but for the size and the tag.
    """

    __slots__ = ("arrived", "offered", "reader", "send", "start_s", "started")

    def __init__(self, send: Send, route: Route, sender: End, receiver: End) -> None:
        super().__init__(route, send.nbytes, sender, receiver, send.tag)
        self.send = send
        self.reader: Callable[[], object] | None = None
        self.offered = self.arrived = self.started = False

    def read(self, reader: Callable[[], object]) -> None:
        """The receiver has come to it: ``reader`` is called when it is there."""
        self.reader = reader
        if self.offered and not self.sender.fabric.eager and not self.started:
            self.start()

    @override
    def offer(self) -> None:
        self.offered = True
        if self.sender.fabric.eager or self.reader is not None:
            self.start()

    @override
    def start(self) -> None:
        self.started = True
        self.start_s = self.sender.fabric.env.now
        super().start()
