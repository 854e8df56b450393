"""Collectives of gloo, message by message: what leaves is what its receiver has posted.

A worker comes to a round when all has arrived that it was to receive up to ``ahead`` rounds before, and in a ring all
has left that it was to send up to then: it posts what it receives in that round, which tells each sender so by a
notice, and issues what it sends. A message that is issued, and whose notice has come, queues on the connection of the
two, as the notice did in the other direction. A connection carries one message at a time each way; connections share
links by max-min fairness, as many TCP connections do; no worker has a port.

What a worker posts and issues at one instant queues in the order of its program, a round's notice before its message
where it sums, behind it elsewhere; messages that it had issued before, whose notice comes at that instant, go first. A
way's overhead counts as latency, of messages and of notices. What the software takes (`GlooCosts`) is likewise per
message and notice; per call and byte it comes before a worker's first round.

| algorithm                | rounds                                                           | ahead               |
|--------------------------|------------------------------------------------------------------|---------------------|
| `gloo-ring` (all-reduce) | a segment each, to the worker before: summed, then handed on     | 2; 1 at the halfway |
| `gloo-all-reduce`        | the same                                                         | the same            |
| `gloo-ring` (all-gather) | half a part each, to the worker after                            | 2                   |
| `gloo-posted`            | i to i + 1 + k in round k; of a gather, each worker to the first | all                 |
| `gloo-tree`              | i < 2^k to i + 2^k in round k                                    | 1                   |

Source: as `syncline.costmodel.collectives.gloo.times`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from syncline.sim.events.flows import AfterAll, Flow, Later, Way
from syncline.sim.events.ports import Fabric, PortOut
from syncline.sim.events.steps import Role, Ways


def rounds_ahead(kind: str, rounds: int) -> list[int]:
    """In each round of a collective of gloo, the number of rounds before it up to which all must have arrived."""
    if kind in ("all_reduce", "reduce_scatter"):
        half = rounds // 2
        return [1 if half and at == half else 2 for at in range(rounds)]
    if kind == "all_gather":
        return [2] * rounds
    if kind == "broadcast":
        return [1] * rounds
    return [at + 1 for at in range(rounds)]


def waits_for_sends(kind: str) -> bool:
    """Whether a worker also waits for what it sends: in rings."""
    return kind in ("all_reduce", "reduce_scatter", "all_gather")


def posts_first(kind: str) -> bool:
    """Whether a worker posts what it receives in a round before it issues what it sends."""
    return kind in ("all_reduce", "reduce_scatter")


class Sockets:
    """The connections of a collective's workers, both directions of each.

    Args:
        fabric: what they go over.
        ways: between workers.
        message_s: that every message and notice takes beside its way.
        call_s: that every worker takes before it comes to the first round.
    """

    def __init__(self, fabric: Fabric, ways: Ways, message_s: float = 0.0, call_s: float = 0.0) -> None:
        self.fabric, self.ways, self.message_s, self.call_s = fabric, ways, message_s, call_s
        self._open: dict[tuple[int, int], PortOut] = {}

    def between(self, sender: int, receiver: int) -> PortOut:
        """The direction from one worker to another."""
        return self._open.setdefault((sender, receiver), PortOut())


class Poster:
    """The part of one worker in a collective of gloo.

    Args:
        sockets: the connections.
        worker: which.
        members: of this collective, in the order of its group.
        role: what it does in each round.
        kind: of the collective.
    """

    receives: int = 0  # through a port in, of which it has none

    def __init__(self, sockets: Sockets, worker: int, members: Sequence[Poster], role: Role, kind: str) -> None:
        self.sockets, self.worker, self.members = sockets, worker, members
        self.steps, self.before, self.nbytes = role
        self.ahead, self.posts_first = rounds_ahead(kind, len(self.steps)), posts_first(kind)
        sends = (len(step.sends) for step in self.steps)
        self.sends_before = list(accumulate(sends, initial=0)) if waits_for_sends(kind) else [0] * len(self.before)
        self.at = 0
        self.have = 0
        self.early: set[int] = set()
        self.issues = self.sent = 0
        self.entered = False
        self.senders: dict[int, Poster] = {}  # of the messages to it, by their turn
        self.noticed: set[tuple[int, int]] = set()  # messages that it may send, by receiver and turn
        self.issued: dict[tuple[int, int], Message] = {}  # that wait for their notice

    def admit(self) -> None:
        """It has no port in."""

    def look_ahead(self) -> None:
        """Tell the receivers who sends them what."""
        for at, step in enumerate(self.steps):
            for to, place, _, _ in step.sends:
                receiver = self.members[to]
                receiver.senders[receiver.before[at] + place] = self

    def enter(self, done: Callable[[], object]) -> None:
        """The worker has come to the collective; ``done`` is called when it has nothing more to do."""
        self.done = done
        if self.sockets.call_s:
            Later(self.sockets.fabric.env, self.sockets.call_s, self.begin)
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
        while self.at < len(self.steps) and self._may_go_on():
            at, self.at = self.at, self.at + 1
            if self.posts_first:
                self.post(at)
                self.issue(at)
            else:
                self.issue(at)
                self.post(at)
        if self.entered and self.at == len(self.steps) and self.have == self.before[-1] and self.sent == self.issues:
            self.entered = False
            self.done()

    def post(self, at: int) -> None:
        """Tell the senders of a round's messages that there is room for them."""
        for turn in range(self.before[at], self.before[at + 1]):
            self._queue_last(Notice(self, self.senders[turn], turn))

    def issue(self, at: int) -> None:
        """Send a round's messages, or wait for their notices."""
        for to, place, nbytes, way in self.steps[at].sends:
            receiver = self.members[to]
            key = receiver.worker, receiver.before[at] + place
            message = Message(way, nbytes, self, receiver, key[1])
            self.issues += 1
            if key in self.noticed:
                self.noticed.remove(key)
                self._queue_last(message)
            else:
                self.issued[key] = message

    def notice(self, receiver: int, turn: int) -> None:
        """There is room for a message at its receiver."""
        message = self.issued.pop((receiver, turn), None)
        if message is None:
            self.noticed.add((receiver, turn))
        elif message.issued_s < self.sockets.fabric.env.now:
            message.queue()
        else:
            self._queue_last(message)

    def _queue_last(self, what: Message | Notice) -> None:
        """In the order of the program, when all else of this instant has happened."""
        AfterAll(self.sockets.fabric.env).callbacks.append(what.queue)

    def got(self, turn: int) -> None:
        """A message has arrived."""
        self.early.add(turn)
        while self.have in self.early:
            self.early.remove(self.have)
            self.have += 1
        self.advance()


class Notice:
    """That there is room for a message, on its way to the sender."""

    __slots__ = ("receiver", "sender", "turn")

    def __init__(self, receiver: Poster, sender: Poster, turn: int) -> None:
        self.receiver, self.sender, self.turn = receiver, sender, turn

    @property
    def _socket(self) -> PortOut:
        return self.receiver.sockets.between(self.receiver.worker, self.sender.worker)

    def queue(self, _: object = None) -> None:
        """Go, behind what is on this side of the connection."""
        self._socket.put(self)

    def offer(self) -> None:
        """Nothing is before it: it takes no time to leave."""
        sockets = self.receiver.sockets
        way = sockets.ways.between(self.receiver.worker, self.sender.worker)
        Later(sockets.fabric.env, way.before_s + way.after_s + sockets.message_s, self.arrive)
        self._socket.free()

    def arrive(self, _: Later) -> None:
        """The sender knows."""
        self.sender.notice(self.receiver.worker, self.turn)


class Message(Flow):
    """A message of a collective of gloo."""

    __slots__ = ("issued_s", "receiver", "sender", "turn")

    def __init__(self, way: Way, nbytes: float, sender: Poster, receiver: Poster, turn: int) -> None:
        self.way, self.nbytes, self.sender, self.receiver, self.turn = way, nbytes, sender, receiver, turn
        self.issued_s = sender.sockets.fabric.env.now

    @property
    def _socket(self) -> PortOut:
        return self.sender.sockets.between(self.sender.worker, self.receiver.worker)

    def queue(self, _: object = None) -> None:
        """Go, behind what is on this side of the connection."""
        self._socket.put(self)

    def offer(self) -> None:
        """Nothing is before it."""
        self.sender.sockets.fabric.channels.carry(self)

    def drained(self) -> None:
        """It has left; it arrives later."""
        fabric, sender = self.sender.sockets.fabric, self.sender
        late_s = 0.0 if fabric.delay is None else fabric.delay(sender.worker, self.receiver.worker)
        Later(fabric.env, self.way.before_s + self.way.after_s + sender.sockets.message_s + late_s, self.arrive)
        sender.sent += 1
        self._socket.free()
        sender.advance()

    def arrive(self, _: Later) -> None:
        """The receiver has it."""
        self.receiver.got(self.turn)
