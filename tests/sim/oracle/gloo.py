"""Collectives of gloo, message by message: what leaves is what its receiver has posted.

A rank comes to a round when all has arrived that it was to receive up to ``ahead`` rounds before, and in a ring all
has left that it was to send up to then: it posts its receives of that round, each of which tells the sender so by a
clear-to-send, and issues its sends. A message that is issued and clear to send queues on the connection of the two, as
the clear-to-send did in the other direction. A connection carries one message at a time each way; connections share
links by max-min fairness, as many TCP connections do; no rank has a port.

What a rank posts and issues at one instant queues in the order of its program, a round's clear-to-send before its
message where it sums, behind it elsewhere; messages that it had issued before, which become clear to send at that
instant, go first. A route's overhead counts as latency, of messages and of clears-to-send. What the software takes
(`GlooCosts`) is likewise per message and clear-to-send; per call and byte it comes before a rank's first round.

| algorithm                | rounds                                                           | ahead               |
|--------------------------|------------------------------------------------------------------|---------------------|
| `gloo-ring` (all-reduce) | a segment each, to the worker before: summed, then handed on     | 2; 1 at the halfway |
| `gloo-all-reduce`        | the same                                                         | the same            |
| `gloo-reduce`            | such a ring, whose segments then go to the root                  | 2, then all         |
| `gloo-ring` (all-gather) | half a part each, to the worker after                            | 2                   |
| `gloo-posted`            | i to i + 1 + k in round k; of a gather, each worker to the first | all                 |
| `gloo-tree`              | i < 2^k to i + 2^k in round k                                    | 1                   |

Source: as `syncline.costmodel.collectives.gloo`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from typing_extensions import override

from tests.sim.oracle.flows import AfterAll, Later, Route
from tests.sim.oracle.messages import Message
from tests.sim.oracle.ports import Fabric, PortOut
from tests.sim.oracle.rank_rounds import RankRounds, Routes


def rounds_ahead(kind: str, rounds: int, workers: int) -> list[int]:
    """In each round of a collective of gloo, the number of rounds before it up to which all must have arrived."""
    if kind in ("all_reduce", "reduce_scatter"):
        half = rounds // 2
        return [1 if half and at == half else 2 for at in range(rounds)]
    if kind == "all_gather":
        return [2] * rounds
    if kind == "reduce":  # its last rounds are what each rank but the root sends to the root, at once
        ring = max(rounds - workers + 1, 0)
        return [2] * ring + [at + 1 for at in range(rounds - ring)]
    if kind == "broadcast":
        return [1] * rounds
    return [at + 1 for at in range(rounds)]


def waits_for_sends(kind: str) -> bool:
    """Whether a rank also waits for what it sends: in rings."""
    return kind in ("all_reduce", "reduce_scatter", "all_gather", "reduce")


def posts_first(kind: str) -> bool:
    """Whether a rank posts its receives of a round before it issues its sends."""
    return kind in ("all_reduce", "reduce_scatter", "reduce")


class Connection(PortOut):
    """One direction of a connection: what queues on it leaves one after another.

    Args:
        route: on which all but the bytes' own time comes after them, as latency.
    """

    __slots__ = ("route",)

    def __init__(self, route: Route) -> None:
        super().__init__()
        self.route = route


class Connections:
    """The connections of a collective's ranks, both directions of each.

    Args:
        fabric: what they go over.
        routes: between workers.
        message_s: that every message and clear-to-send takes beside its route.
        call_s: that every rank takes before it comes to the first round.
    """

    def __init__(self, fabric: Fabric, routes: Routes, message_s: float = 0.0, call_s: float = 0.0) -> None:
        self.fabric = fabric._replace(eager=True)  # which way a delay counts; no start rule holds here
        self.call_s = call_s
        self._routes, self._message_s = routes, message_s
        self._open: dict[tuple[int, int], Connection] = {}

    def between(self, sender: int, receiver: int) -> Connection:
        """The direction from one worker to another."""
        known = self._open.get((sender, receiver))
        if known is None:
            route = self._routes.between(sender, receiver)
            after_s = route.before_s + route.after_s + self._message_s
            known = self._open[sender, receiver] = Connection(route._replace(before_s=0.0, after_s=after_s))
        return known


class GlooRank:
    """The part of one worker in an active collective of gloo.

    Args:
        connections: of the collective.
        worker: which.
        ranks: of this collective, in the order of its group.
        does: what it does in each round.
        kind: of the collective.
        workers: of the collective.
    """

    receives: int = 0  # through a port in, of which it has none

    def __init__(
        self,
        connections: Connections,
        worker: int,
        ranks: Sequence[GlooRank],
        does: RankRounds,
        kind: str,
        workers: int,
    ) -> None:
        self.connections, self.worker, self.ranks = connections, worker, ranks
        self.fabric = connections.fabric
        self.rounds, self.before, self.nbytes = does
        self.ahead, self.posts_first = rounds_ahead(kind, len(self.rounds), workers), posts_first(kind)
        sends = (len(one.sends) for one in self.rounds)
        self.sends_before = list(accumulate(sends, initial=0)) if waits_for_sends(kind) else [0] * len(self.before)
        self.at = 0
        self.have = 0
        self.early: set[int] = set()
        self.issues = self.sent = 0
        self.entered = False
        self.senders: dict[int, GlooRank] = {}  # of the messages to it, by their turn
        self.clear: set[tuple[int, int]] = set()  # messages that it may send, by receiver and turn
        self.issued: dict[tuple[int, int], GlooMessage] = {}  # that are not yet clear to send

    def admit(self) -> None:
        """It has no port in."""

    def look_ahead(self) -> None:
        """Tell the receivers who sends them what."""
        for at, one in enumerate(self.rounds):
            for to, place, _, _ in one.sends:
                receiver = self.ranks[to]
                receiver.senders[receiver.before[at] + place] = self

    def enter(self, done: Callable[[], object]) -> None:
        """The worker has come to the collective; ``done`` is called when it has nothing more to do."""
        self.done = done
        if self.connections.call_s:
            Later(self.fabric.env, self.connections.call_s, self.begin)
        else:
            self.begin()

    def begin(self, _: Later | None = None) -> None:
        """The first round is next."""
        self.entered = True
        self.advance()

    def _may_go_on(self) -> bool:
        until = max(self.at + 1 - self.ahead[self.at], 0)
        return self.entered and self.have >= self.before[until] and self.sent >= self.sends_before[until]

    def advance(self) -> None:
        """Go on until something has to be waited for."""
        while self.at < len(self.rounds) and self._may_go_on():
            at, self.at = self.at, self.at + 1
            if self.posts_first:
                self.post(at)
                self.issue(at)
            else:
                self.issue(at)
                self.post(at)
        if self.entered and self.at == len(self.rounds) and self.have == self.before[-1] and self.sent == self.issues:
            self.entered = False
            self.done()

    def post(self, at: int) -> None:
        """Tell the senders of a round's messages that there is room for them."""
        for turn in range(self.before[at], self.before[at + 1]):
            sender = self.senders[turn]
            connection = self.connections.between(self.worker, sender.worker)
            self._queue_last(ClearToSend(connection, 0.0, self, sender, turn))

    def issue(self, at: int) -> None:
        """Send a round's messages, those at once that are clear to send."""
        for to, place, nbytes, _ in self.rounds[at].sends:
            receiver = self.ranks[to]
            key = receiver.worker, receiver.before[at] + place
            connection = self.connections.between(self.worker, receiver.worker)
            message = GlooMessage(connection, nbytes, self, receiver, key[1])
            self.issues += 1
            if key in self.clear:
                self.clear.remove(key)
                self._queue_last(message)
            else:
                self.issued[key] = message

    def cleared(self, receiver: int, turn: int) -> None:
        """There is room for a message at its receiver."""
        message = self.issued.pop((receiver, turn), None)
        if message is None:
            self.clear.add((receiver, turn))
        elif message.issued_s < self.fabric.env.now:
            message.queue()
        else:
            self._queue_last(message)

    def _queue_last(self, message: GlooMessage) -> None:
        """In the order of the program, when all else of this instant has happened."""
        AfterAll(self.fabric.env).callbacks.append(message.queue)

    def left(self, message: GlooMessage) -> None:
        """A message of its own has left."""
        self.sent += 1
        message.connection.free()
        self.advance()

    def took(self) -> None:
        """It has no port in."""

    def got(self, message: Message) -> None:
        """A message has arrived."""
        self.early.add(message.tag)
        while self.have in self.early:
            self.early.remove(self.have)
            self.have += 1
        self.advance()


class GlooMessage(Message):
    """A message of a collective of gloo: it queues when it is clear to send, and then asks nothing more."""

    __slots__ = ("connection", "issued_s")

    def __init__(self, connection: Connection, nbytes: float, sender: GlooRank, receiver: GlooRank, tag: int) -> None:
        super().__init__(connection.route, nbytes, sender, receiver, tag)
        self.connection, self.issued_s = connection, sender.fabric.env.now

    def queue(self, _: object = None) -> None:
        """Go, behind what is on this side of the connection."""
        self.connection.put(self)


class ClearToSend(GlooMessage):
    """That its sender has room for the message of this tag: without bytes, it takes no time to leave."""

    __slots__ = ()

    @override
    def start(self) -> None:
        Later(self.sender.fabric.env, self.route.after_s, self.arrive)
        self.connection.free()

    @override
    def arrive(self, _: Later) -> None:
        self.receiver.cleared(self.sender.worker, self.tag)
