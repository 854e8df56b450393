"""The state of an event simulation: the run, its collectives, and each worker's streams."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import simpy
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.hierarchical import inner_sizes
from syncline.costmodel.collectives.table import default_algorithm
from syncline.costmodel.network.paths import Topology
from syncline.costmodel.network.software_costs import FREE
from syncline.errors import SynclineError
from syncline.sim.program.instructions import (
    Collective,
    Compute,
    First,
    Instruction,
    Program,
    Recv,
    Send,
    Stuck,
    Wait,
    start_times,
)
from syncline.sim.program.rounds import rounds
from syncline.sim.program.timeline import Timeline
from tests.sim.oracle.active import ActiveCollective, QueuedCollective, agreed
from tests.sim.oracle.flows import AfterAll, Channels, Later
from tests.sim.oracle.messages import PointToPoint
from tests.sim.oracle.ports import Delay, Fabric, PortIn, PortOut
from tests.sim.oracle.rank_rounds import RankRounds, Routes, rounds_by_rank

Stream: TypeAlias = tuple[int, str]


class Simulation:
    """The state of a run: the clock, the ports, the collectives and messages under way, and the spans so far."""

    def __init__(
        self,
        programs: Sequence[Program],
        over: Topology,
        starts_s: ArrayLike | None,
        eager: bool,
        delay: Delay | None,
    ) -> None:
        self.over = over
        self.workers = len(programs)
        self.env = simpy.Environment()
        self.fabric = Fabric(self.env, Channels(self.env, over.bandwidth_bytes_per_s.tolist()), eager, delay)
        self.routes = Routes(over, eager)
        self.node_size = inner_sizes(over, self.workers)
        self.ports_out: dict[Stream, PortOut] = {}
        self.ports_in: dict[Stream, PortIn] = {}
        self.sent: dict[tuple[int, int, Hashable], PointToPoint] = {}  # and not yet received
        self.expected: dict[tuple[int, int, Hashable], Callable[[], object]] = {}  # asked for, and not yet sent
        self.active: dict[Hashable, ActiveCollective] = {}
        self.spans: list[tuple[Any, ...]] = []
        self.rounds_of = lru_cache(maxsize=64)(self._rounds_of)
        starts = start_times(starts_s, self.workers).tolist()
        self.running = [WorkerProgram(self, w, program, starts[w]) for w, program in enumerate(programs)]

    def run(self) -> Timeline:
        """Run to the end."""
        self.env.run()
        at = {worker.worker: worker.program[worker.index] for worker in self.running if not worker.is_through}
        for worker in self.running:
            worker.check(at)
        for sender, receiver, tag in self.sent if not self.fabric.eager else ():
            raise SynclineError(f"worker {sender} never sends {tag!r} to {receiver}, which does not receive it")
        return Timeline.from_spans(self.spans, self.workers)

    def port_out(self, worker: int, stream: str) -> PortOut:
        """The port out of a worker on a stream."""
        port = self.ports_out.get((worker, stream))
        if port is None:
            port = self.ports_out[worker, stream] = PortOut()
        return port

    def ports(self, worker: int, stream: str) -> tuple[PortOut, PortIn]:
        """The ports of a worker on a stream."""
        return self.port_out(worker, stream), self.ports_in.setdefault((worker, stream), PortIn())

    def active_collective(self, worker: int, collective: Collective) -> ActiveCollective:
        """The collective of this key, which is the same on every worker."""
        active = self.active.get(collective.key)
        if active is None:
            does = self.by_rank(collective)
            gloo = self.over.gloo or FREE
            active = ActiveCollective(collective, does, self.fabric, self.ports, self.routes, gloo)
            self.active[collective.key] = active
            for member in active.ranks:
                number = self.running[member].number.get(collective.key)
                if number is not None:
                    active.know(member, number)
        first = active.collective
        if first is not collective and agreed(first) != agreed(collective):
            raise SynclineError(
                f"worker {worker} joins {first} with {collective}; "
                "expected the same kind, size and algorithm, group, stream and rounds"
            )
        if worker not in active.ranks:
            raise SynclineError(f"worker {worker} joins {first}; expected a worker of its group")
        return active

    def by_rank(self, collective: Collective) -> dict[int, RankRounds]:
        """What each worker of its group does in a collective."""
        group = tuple(range(self.workers)) if collective.group is None else collective.group
        if len(set(group)) < len(group) or not all(0 <= worker < self.workers for worker in group):
            expected = f"distinct workers of 0 to {self.workers - 1}"
            raise SynclineError(f"{collective} has the group {group}; expected {expected}")
        if collective.rounds is not None:
            return rounds_by_rank(collective.rounds, group, self.routes)
        return self.rounds_of(collective.kind, collective.nbytes, collective.algorithm, group)

    def _rounds_of(
        self, kind: str, nbytes: float, algorithm: str | None, group: tuple[int, ...]
    ) -> dict[int, RankRounds]:
        nodes_of = self.node_size if group == tuple(range(self.workers)) else None
        return rounds_by_rank(rounds(kind, len(group), nbytes, algorithm, nodes_of), group, self.routes)


class WorkerProgram:
    """The compute stream of a worker: its program, and where it is in it."""

    __slots__ = (
        "asked", "deciding", "fabric", "index", "last", "number", "numbers", "program", "queued", "send_streams",
        "simulation", "start_s", "worker",
    )  # fmt: skip

    def __init__(self, simulation: Simulation, worker: int, program: Program, start_s: float) -> None:
        self.simulation, self.worker, self.program = simulation, worker, list(program)
        self.fabric = simulation.fabric
        self.index = 0
        self.deciding = False
        self.asked: list[tuple[int, int, Hashable]] = []  # for the messages of a `First`
        self.start_s = start_s  # of the instruction it is at
        self.queued: dict[Hashable, QueuedCollective] = {}
        self.last: dict[str, QueuedCollective] = {}  # on each stream
        self.number: dict[Hashable, int] = {}  # of each collective, on its stream
        self.numbers: dict[str, int] = {}  # of collectives on each stream
        self.send_streams: set[str] = set()
        self.look_ahead(program)
        Later(simulation.env, start_s, self.go_on)

    @property
    def is_through(self) -> bool:
        """Whether it has nothing left to do."""
        return self.index == len(self.program)

    def look_ahead(self, program: Program) -> None:
        """Number the collectives that it will come to, in whose order its port in serves them."""
        for instruction in program:
            if type(instruction) is Collective:
                stream, key = instruction.stream, instruction.key
                number = self.numbers.setdefault(stream, 0)
                if key not in self.number and self.receives(instruction):
                    self.numbers[stream] = number + 1
                    self.number[key] = number
                    active = self.simulation.active.get(key)
                    if active is not None:
                        active.know(self.worker, number)
            elif type(instruction) is Send:
                self.send_streams.add(instruction.stream)
        for stream in sorted(self.send_streams.intersection(self.numbers)) if self.numbers else ():
            raise SynclineError(
                f"worker {self.worker} sends on {stream!r}; expected another stream than its collectives'"
            )

    def receives(self, collective: Collective) -> bool:
        """Whether messages of it come to this worker; of one among all, nobody is ahead who has not joined it."""
        if collective.group is None:
            return True
        does = self.simulation.by_rank(collective).get(self.worker)
        return does is None or does.before[-1] > 0

    def go_on(self, _: Later | None = None) -> None:
        """Run the program until something has to be waited for."""
        program, simulation = self.program, self.simulation
        self.start_s = simulation.env.now
        while self.index < len(program):
            instruction: Any = program[self.index]
            kind = type(instruction)
            if kind is Compute:
                Later(simulation.env, instruction.seconds, self.computed)
                return
            if kind is Send:
                self.send(instruction)
                self.index += 1
            elif kind is Collective:
                self.join(instruction)
                self.index += 1
            elif kind is First:
                if not self.decide(instruction):
                    return
                program = self.program
            elif not (self.receive(instruction) if kind is Recv else self.wait(instruction)):
                return

    def done(self, what: str, label: str, nbytes: float, step: int) -> None:
        """The instruction it is at is done, and held the program until now."""
        instruction, simulation = self.program[self.index], self.simulation
        now = simulation.env.now
        simulation.spans.append((self.worker, "compute", what, label, self.start_s, now, nbytes, step))
        self.index += 1
        if instruction.effect is not None:  # type: ignore[union-attr]
            instruction.effect()  # type: ignore[union-attr]

    def computed(self, _: Later) -> None:
        """A `Compute` is done."""
        instruction: Any = self.program[self.index]
        self.done(instruction.what, instruction.label, 0.0, instruction.step)
        self.go_on()

    def send(self, send: Send) -> None:
        """Queue a message."""
        simulation, worker, to = self.simulation, self.worker, send.to
        address = worker, to, send.tag
        if address in simulation.sent or to == worker or not 0 <= to < simulation.workers:
            wanted = "a different tag for each message in flight" if address in simulation.sent else "another worker"
            raise SynclineError(f"worker {worker} sends {send.tag!r} to {to}; expected {wanted}")

        message = PointToPoint(send, simulation.routes.between(worker, to), self, simulation.running[to])
        simulation.sent[address] = message
        reader = simulation.expected.pop(address, None)
        if reader is not None:
            message.read(reader)
        simulation.port_out(worker, send.stream).put(message)

    def left(self, message: PointToPoint) -> None:
        """A message of its own has left."""
        simulation, send = self.simulation, message.send
        span = (
            self.worker,
            send.stream,
            "send",
            str(send.tag),
            message.start_s,
            simulation.env.now,
            send.nbytes,
            send.step,
        )
        simulation.spans.append(span)
        simulation.port_out(self.worker, send.stream).free()

    def took(self) -> None:
        """It receives messages through no port."""

    def got(self, message: PointToPoint) -> None:
        """A message to it has arrived."""
        message.arrived = True
        if message.reader is not None:
            message.reader()

    def receive(self, recv: Recv) -> bool:
        """Whether the message is there already."""
        address = recv.source, self.worker, recv.tag
        message = self.simulation.sent.get(address)
        if message is None:
            self.simulation.expected[address] = self.received
        elif message.arrived:
            self.take(recv)
            self.index += 1
            return True
        else:
            message.read(self.received)
        return False

    def received(self) -> None:
        """The message of the `Recv` that it is at is there."""
        recv: Any = self.program[self.index]
        self.take(recv)
        self.index += 1
        self.go_on()

    def take(self, recv: Recv) -> None:
        """Receive a message that is there."""
        simulation, worker = self.simulation, self.worker
        message = simulation.sent.pop((recv.source, worker, recv.tag))
        now, label = simulation.env.now, str(recv.tag)
        simulation.spans.append((worker, "compute", "recv", label, self.start_s, now, message.nbytes, recv.step))
        if recv.effect is not None:
            recv.effect()

    def decide(self, first: First, last: bool = False) -> bool:
        """Go on with the first option that can run, if any.

        Unless it is the first of all, this is only known when everything else of the instant has happened (``last``).
        """
        sent, expected = self.simulation.sent, self.simulation.expected
        for number, recv in enumerate(first.options):
            if recv is not None:
                message = sent.get((recv.source, self.worker, recv.tag))
                if message is None or not message.arrived:
                    if not last and len(first.options) > 1:
                        if not self.deciding:
                            self.deciding = True
                            AfterAll(self.simulation.env, order=1).callbacks.append(self.decided)
                        return False
                    continue
            for address in self.asked:
                if address in sent:
                    sent[address].reader = None
                else:
                    del expected[address]
            self.asked = []
            if recv is not None:
                self.take(recv)
            more = first.then(number)
            self.look_ahead(more)
            self.program = [*more, *self.program[self.index + 1 :]]  # what is done can be forgotten
            self.index = 0
            return True
        self.asked = [(recv.source, self.worker, recv.tag) for recv in first.options if recv is not None]
        for address in self.asked:
            if address in sent:
                sent[address].read(self.offered)
            else:
                expected[address] = self.offered
        return False

    def offered(self) -> None:
        """The message of one of the options of the `First` that it is at is there."""
        first: Any = self.program[self.index]
        if not self.deciding and self.decide(first):
            self.go_on()

    def decided(self, _: Any) -> None:
        """Everything else of this instant has happened."""
        self.deciding = False
        first: Any = self.program[self.index]
        if self.decide(first, last=True):
            self.go_on()

    def join(self, collective: Collective) -> None:
        """Start a collective when the one before it on its stream is done."""
        if collective.key in self.queued:
            raise SynclineError(
                f"worker {self.worker} starts collective {collective.key!r} twice; expected an unused key"
            )
        named = collective.algorithm is not None or collective.rounds is not None
        over = self.simulation.over
        if over.gloo is not None and not named:
            collective = replace(collective, algorithm=default_algorithm(collective.kind, over))
        active = self.simulation.active_collective(self.worker, collective)
        last = self.last.get(collective.stream)
        mine = self.queued[collective.key] = QueuedCollective(self.simulation, self.worker, collective, active)
        self.last[collective.stream] = mine
        if last is None or last.is_done:
            mine.enter()
        else:
            last.after = mine

    def wait(self, wait: Wait) -> bool:
        """Whether the collective is done already."""
        if wait.key not in self.queued:
            raise SynclineError(f"worker {self.worker} waits for collective {wait.key!r}, which it has not started")
        queued = self.queued[wait.key]
        if not queued.is_done:
            queued.then = self
            return False
        self.span_of_wait(queued.collective, wait)
        return True

    def waited(self) -> None:
        """The collective of the `Wait` that it is at is done."""
        wait: Any = self.program[self.index]
        self.span_of_wait(self.queued[wait.key].collective, wait)
        self.go_on()

    def span_of_wait(self, collective: Collective, wait: Wait) -> None:
        """It has waited."""
        self.done("wait", collective.label, 0.0, collective.step if wait.step is None else wait.step)

    def check(self, at: dict[int, Instruction]) -> None:
        """It has done all it has to."""
        for queued in self.queued.values():
            if not queued.is_done:
                raise SynclineError(
                    f"worker {self.worker} never finishes {queued.collective}: "
                    "every worker must join it, in the same order"
                )
        if not self.is_through:
            line = f"worker {self.worker} never gets past {at[self.worker]}: no worker sends what it waits for"
            raise Stuck(line, at)
