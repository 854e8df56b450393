"""The state of an event simulation: the run, its collectives, and each worker's streams."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import simpy
from numpy.typing import ArrayLike

from syncline.costmodel.collectives.gloo.costs import GlooCosts
from syncline.costmodel.collectives.hierarchical import node_size
from syncline.costmodel.network.topology import Topology
from syncline.errors import SynclineError
from syncline.sim.collectives.rounds import rounds
from syncline.sim.events.flows import AfterAll, Channels, Later
from syncline.sim.events.joints import Joint, promise
from syncline.sim.events.letters import Letter
from syncline.sim.events.members import PortIn
from syncline.sim.events.ports import Delay, Fabric, PortOut
from syncline.sim.events.steps import Role, Ways, roles
from syncline.sim.programs import Collective, Compute, First, Instruction, Program, Recv, Send, Stuck, Wait
from syncline.sim.starts import start_times
from syncline.sim.timeline import Timeline

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
        costs: GlooCosts,
        unnamed: Mapping[str, str],
    ) -> None:
        self.costs, self.unnamed = (
            costs,
            unnamed,
        )  # unnamed: algorithms of collectives that name none, but for the first
        self.workers = len(programs)
        self.env = simpy.Environment()
        self.fabric = Fabric(self.env, Channels(self.env, over.bandwidth_bytes_per_s.tolist()), eager, delay)
        self.ways = Ways(over, eager)
        self.node_size = node_size(over, self.workers)
        self.ports_out: dict[Stream, PortOut] = {}
        self.ports_in: dict[Stream, PortIn] = {}
        self.sent: dict[tuple[int, int, Hashable], Letter] = {}  # and not yet received
        self.expected: dict[tuple[int, int, Hashable], Callable[[float], object]] = {}  # asked for, and not yet sent
        self.joints: dict[Hashable, Joint] = {}
        self.spans: list[tuple[Any, ...]] = []
        self.roles = lru_cache(maxsize=64)(self._roles)
        starts = start_times(starts_s, self.workers).tolist()
        self.running = [Worker(self, w, program, starts[w]) for w, program in enumerate(programs)]

    def run(self) -> Timeline:
        """Run to the end."""
        self.env.run()
        at = {worker.worker: worker.program[worker.index] for worker in self.running if not worker.is_through}
        for worker in self.running:
            worker.check(at)
        for sender, receiver, tag in self.sent if not self.fabric.eager else ():
            raise SynclineError(f"worker {sender} never sends {tag!r} to {receiver}, which does not receive it")
        return Timeline.of(self.spans, self.workers)

    def port_out(self, worker: int, stream: str) -> PortOut:
        """The port out of a worker on a stream."""
        port = self.ports_out.get((worker, stream))
        if port is None:
            port = self.ports_out[worker, stream] = PortOut()
        return port

    def ports(self, worker: int, stream: str) -> tuple[PortOut, PortIn]:
        """The ports of a worker on a stream."""
        return self.port_out(worker, stream), self.ports_in.setdefault((worker, stream), PortIn())

    def joint(self, worker: int, collective: Collective) -> Joint:
        """The collective of this key, which is the same on every worker."""
        joint = self.joints.get(collective.key)
        if joint is None:
            joint = Joint(collective, self.roles_of(collective), self.fabric, self.ports, self.ways, self.costs)
            self.joints[collective.key] = joint
            for member in joint.members:
                number = self.running[member].number.get(collective.key)
                if number is not None:
                    joint.know(member, number)
        first = joint.collective
        if first is not collective and promise(first) != promise(collective):
            raise SynclineError(
                f"worker {worker} joins {first} with {collective}; "
                "expected the same kind, size and algorithm, group, stream and rounds"
            )
        if worker not in joint.members:
            raise SynclineError(f"worker {worker} joins {first}; expected a worker of its group")
        return joint

    def roles_of(self, collective: Collective) -> dict[int, Role]:
        """What each worker of its group does in a collective."""
        group = tuple(range(self.workers)) if collective.group is None else collective.group
        if len(set(group)) < len(group) or not all(0 <= worker < self.workers for worker in group):
            raise SynclineError(f"{collective} has the group {group}; expected different workers from 0")
        if collective.rounds is not None:
            return roles(collective.rounds, group, self.ways)
        return self.roles(collective.kind, collective.nbytes, collective.algorithm, group)

    def _roles(self, kind: str, nbytes: float, algorithm: str | None, group: tuple[int, ...]) -> dict[int, Role]:
        nodes_of = self.node_size if group == tuple(range(self.workers)) else None
        return roles(rounds(kind, len(group), nbytes, algorithm, nodes_of), group, self.ways)


class Joined:
    """A collective on a network stream of a worker, from when it has joined it."""

    __slots__ = ("after", "collective", "is_done", "joint", "simulation", "start_s", "then", "worker")

    def __init__(self, simulation: Simulation, worker: int, collective: Collective, joint: Joint) -> None:
        self.simulation, self.worker, self.collective, self.joint = simulation, worker, collective, joint
        self.is_done = False
        self.start_s = 0.0
        self.after: Joined | None = None  # the next on this stream
        self.then: Worker | None = None  # who waits for it

    def enter(self, _: Later | None = None) -> None:
        """The one before it on this stream is done."""
        self.start_s = self.simulation.env.now
        self.joint.members[self.worker].enter(self.done)

    def done(self) -> None:
        """The worker has no more to do in it."""
        self.is_done = True
        one, simulation, member = self.collective, self.simulation, self.joint.members[self.worker]
        now = simulation.env.now
        simulation.spans.append(
            (self.worker, one.stream, one.kind, one.label, self.start_s, now, member.nbytes, one.step)
        )
        if self.joint.done():
            del simulation.joints[one.key]
        del self.joint
        if self.after is not None:
            Later(simulation.env, 0.0, self.after.enter)
        if self.then is not None:
            self.then.waited()


class Worker:
    """The compute stream of a worker: its program, and where it is in it."""

    __slots__ = (
        "asked", "deciding", "index", "joined", "last", "number", "numbers", "program", "send_streams", "simulation",
        "start_s", "worker",
    )  # fmt: skip

    def __init__(self, simulation: Simulation, worker: int, program: Program, start_s: float) -> None:
        self.simulation, self.worker, self.program = simulation, worker, list(program)
        self.index = 0
        self.deciding = False
        self.asked: list[tuple[int, int, Hashable]] = []  # for the messages of a `First`
        self.start_s = start_s  # of the instruction it is at
        self.joined: dict[Hashable, Joined] = {}
        self.last: dict[str, Joined] = {}  # on each stream
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
        """Number the collectives that it will come to."""
        for instruction in program:
            if type(instruction) is Collective:
                stream, key = instruction.stream, instruction.key
                number = self.numbers.get(stream, 0)
                self.numbers[stream] = number + 1
                if key not in self.number:
                    self.number[key] = number
                    joint = self.simulation.joints.get(key)
                    if joint is not None:
                        joint.know(self.worker, number)
            elif type(instruction) is Send:
                self.send_streams.add(instruction.stream)
        for stream in sorted(self.send_streams.intersection(self.numbers)) if self.numbers else ():
            raise SynclineError(
                f"worker {self.worker} sends on {stream!r}; expected another stream than its collectives'"
            )

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
        channel = worker, to, send.tag
        if channel in simulation.sent or to == worker or not 0 <= to < simulation.workers:
            wanted = "a tag of its own for each message under way" if channel in simulation.sent else "another worker"
            raise SynclineError(f"worker {worker} sends {send.tag!r} to {to}; expected {wanted}")

        def sent(start_s: float) -> None:
            span = worker, send.stream, "send", str(send.tag), start_s, simulation.env.now, send.nbytes, send.step
            simulation.spans.append(span)

        out = simulation.port_out(worker, send.stream)
        letter = Letter(simulation.ways.between(worker, to), send.nbytes, simulation.fabric, (worker, to), out, sent)
        simulation.sent[channel] = letter
        reader = simulation.expected.pop(channel, None)
        if reader is not None:
            letter.read(reader)
        out.put(letter)

    def receive(self, recv: Recv) -> bool:
        """Whether the message is there already."""
        channel = recv.source, self.worker, recv.tag
        letter = self.simulation.sent.get(channel)
        if letter is None:
            self.simulation.expected[channel] = self.received
        elif letter.arrived:
            self.take(recv)
            self.index += 1
            return True
        else:
            letter.read(self.received)
        return False

    def received(self, _: float) -> None:
        """The message of the `Recv` that it is at is there."""
        recv: Any = self.program[self.index]
        self.take(recv)
        self.index += 1
        self.go_on()

    def take(self, recv: Recv) -> None:
        """Receive a message that is there."""
        simulation, worker = self.simulation, self.worker
        letter = simulation.sent.pop((recv.source, worker, recv.tag))
        now, label = simulation.env.now, str(recv.tag)
        simulation.spans.append((worker, "compute", "recv", label, self.start_s, now, letter.nbytes, recv.step))
        if recv.effect is not None:
            recv.effect()

    def decide(self, first: First, last: bool = False) -> bool:
        """Go on with the first option that can run, if any.

        Unless it is the first of all, this is only known when everything else of the instant has happened (``last``).
        """
        sent, expected = self.simulation.sent, self.simulation.expected
        for number, recv in enumerate(first.options):
            if recv is not None:
                letter = sent.get((recv.source, self.worker, recv.tag))
                if letter is None or not letter.arrived:
                    if not last and len(first.options) > 1:
                        if not self.deciding:
                            self.deciding = True
                            AfterAll(self.simulation.env, rank=1).callbacks.append(self.decided)
                        return False
                    continue
            for channel in self.asked:
                if channel in sent:
                    sent[channel].reader = None
                else:
                    del expected[channel]
            self.asked = []
            if recv is not None:
                self.take(recv)
            more = first.then(number)
            self.look_ahead(more)
            self.program = [*more, *self.program[self.index + 1 :]]  # what is done can be forgotten
            self.index = 0
            return True
        self.asked = [(recv.source, self.worker, recv.tag) for recv in first.options if recv is not None]
        for channel in self.asked:
            if channel in sent:
                sent[channel].read(self.offered)
            else:
                expected[channel] = self.offered
        return False

    def offered(self, _: float) -> None:
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
        if collective.key in self.joined:
            raise SynclineError(
                f"worker {self.worker} starts collective {collective.key!r} twice; expected a key of its own"
            )
        named = collective.algorithm is not None or collective.rounds is not None
        if self.simulation.unnamed and not named:
            collective = replace(collective, algorithm=self.simulation.unnamed.get(collective.kind))
        joint = self.simulation.joint(self.worker, collective)
        last = self.last.get(collective.stream)
        mine = self.joined[collective.key] = Joined(self.simulation, self.worker, collective, joint)
        self.last[collective.stream] = mine
        if last is None or last.is_done:
            mine.enter()
        else:
            last.after = mine

    def wait(self, wait: Wait) -> bool:
        """Whether the collective is done already."""
        if wait.key not in self.joined:
            raise SynclineError(f"worker {self.worker} waits for collective {wait.key!r}, which it has not started")
        joined = self.joined[wait.key]
        if not joined.is_done:
            joined.then = self
            return False
        self.span_of_wait(joined.collective, wait)
        return True

    def waited(self) -> None:
        """The collective of the `Wait` that it is at is done."""
        wait: Any = self.program[self.index]
        self.span_of_wait(self.joined[wait.key].collective, wait)
        self.go_on()

    def span_of_wait(self, collective: Collective, wait: Wait) -> None:
        """It has waited."""
        self.done("wait", collective.label, 0.0, collective.step if wait.step is None else wait.step)

    def check(self, at: dict[int, Instruction]) -> None:
        """It has done all it has to."""
        for joined in self.joined.values():
            if not joined.is_done:
                raise SynclineError(
                    f"worker {self.worker} never finishes {joined.collective}: "
                    "every worker must join it, in the same order"
                )
        if not self.is_through:
            line = f"worker {self.worker} never gets past {at[self.worker]}: nothing sends what it waits for"
            raise Stuck(line, at)
