"""The state of an event simulation: the run, its collectives, and each worker's streams."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import simpy
from numpy.typing import ArrayLike

from syncline.costmodel.hierarchy import node_size
from syncline.costmodel.topology import Topology
from syncline.errors import SynclineError
from syncline.sim.flows import Channels, Later
from syncline.sim.letters import Letter
from syncline.sim.members import Member, PortIn
from syncline.sim.ports import Delay, Fabric, PortOut
from syncline.sim.programs import Collective, Compute, Program, Recv, Send, Wait
from syncline.sim.rounds import rounds
from syncline.sim.starts import start_times
from syncline.sim.steps import Role, Ways, roles
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
    ) -> None:
        self.workers = len(programs)
        self.env = simpy.Environment()
        self.fabric = Fabric(self.env, Channels(self.env, over.bandwidth_bytes_per_s.tolist()), eager, delay)
        self.ways = Ways(over, eager)
        self.node_size = node_size(over, self.workers)
        self.ports_out: dict[Stream, PortOut] = {}
        self.ports_in: dict[Stream, PortIn] = {}
        self.sent: dict[tuple[int, int, Hashable], Letter] = {}  # and not yet asked for
        self.expected: dict[tuple[int, int, Hashable], Worker] = {}  # asked for, and not yet sent
        self.joints: dict[Hashable, Joint] = {}
        self.spans: list[tuple[Any, ...]] = []
        self.roles = lru_cache(maxsize=64)(self._roles)
        starts = start_times(starts_s, self.workers).tolist()
        self.running = [Worker(self, w, program, starts[w]) for w, program in enumerate(programs)]

    def run(self) -> Timeline:
        """Run to the end."""
        self.env.run()
        for worker in self.running:
            worker.check()
        for sender, receiver, tag in self.sent if not self.fabric.eager else ():
            raise SynclineError(f"worker {sender} never sends {tag!r} to {receiver}, which does not receive it")
        return Timeline.of(self.spans, self.workers)

    def port_out(self, worker: int, stream: str) -> PortOut:
        """The port out of a worker on a stream."""
        return self.ports_out.setdefault((worker, stream), PortOut())

    def port_in(self, worker: int, stream: str) -> PortIn:
        """The port in of a worker on a stream."""
        return self.ports_in.setdefault((worker, stream), PortIn())

    def joint(self, worker: int, collective: Collective) -> Joint:
        """The collective of this key, which is the same on every worker."""
        joint = self.joints.get(collective.key)
        if joint is None:
            joint = self.joints[collective.key] = Joint(self, collective)
        first = joint.collective
        if first is not collective and _promise(first) != _promise(collective):
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


class Joint:
    """A collective that some worker has joined: the part of each, also of those who come later."""

    def __init__(self, simulation: Simulation, collective: Collective) -> None:
        self.collective = collective
        of = simulation.roles_of(collective)
        members: list[Member] = []
        for worker, role in of.items():
            members.append(
                Member(
                    simulation.fabric,
                    worker,
                    members,
                    role,
                    simulation.port_out(worker, collective.stream),
                    simulation.port_in(worker, collective.stream),
                )
            )
        self.members = dict(zip(of, members, strict=True))
        if simulation.fabric.eager:
            for worker, member in self.members.items():
                number = simulation.running[worker].number.get(collective.key)
                if number is not None:
                    member.port_in.know(number, member)
        self.left = len(members)  # that are not done

    def done(self) -> bool:
        """One more worker is done; whether that was the last."""
        self.left -= 1
        return not self.left


def _promise(of: Collective) -> tuple[Any, ...]:
    return of.kind, of.nbytes, of.algorithm, of.group, of.stream, id(of.rounds)


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

    __slots__ = ("at", "index", "joined", "last", "number", "program", "simulation", "start_s", "worker")

    def __init__(self, simulation: Simulation, worker: int, program: Program, start_s: float) -> None:
        self.simulation, self.worker, self.program = simulation, worker, program
        self.index = 0
        self.start_s = start_s  # of the instruction it is at
        self.joined: dict[Hashable, Joined] = {}
        self.last: dict[str, Joined] = {}  # on each stream
        self.number: dict[Hashable, int] = {}  # of each collective, on its stream
        streams: dict[str, int] = {}
        send_streams: set[str] = set()
        for instruction in program:
            if type(instruction) is Collective:
                number = streams.get(instruction.stream, 0)
                streams[instruction.stream] = number + 1
                self.number.setdefault(instruction.key, number)
            elif type(instruction) is Send:
                send_streams.add(instruction.stream)
        for stream in sorted(send_streams.intersection(streams)):
            raise SynclineError(f"worker {worker} sends on {stream!r}; expected another stream than its collectives'")
        Later(simulation.env, start_s, self.go_on)

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
        self.done("compute", instruction.label, 0.0, instruction.step)
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
        reader = simulation.expected.pop(channel, None)
        if reader is None:
            simulation.sent[channel] = letter
        else:
            letter.read(reader.received)
        out.put(letter)

    def receive(self, recv: Recv) -> bool:
        """Whether the message is there already."""
        channel = recv.source, self.worker, recv.tag
        letter = self.simulation.sent.pop(channel, None)
        if letter is None:
            self.simulation.expected[channel] = self
        elif letter.arrived:
            self.done("recv", str(recv.tag), letter.nbytes, recv.step)
            return True
        else:
            letter.read(self.received)
        return False

    def received(self, nbytes: float) -> None:
        """The message of the `Recv` that it is at is there."""
        recv: Any = self.program[self.index]
        self.done("recv", str(recv.tag), nbytes, recv.step)
        self.go_on()

    def join(self, collective: Collective) -> None:
        """Start a collective when the one before it on its stream is done."""
        if collective.key in self.joined:
            raise SynclineError(
                f"worker {self.worker} starts collective {collective.key!r} twice; expected a key of its own"
            )
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

    def check(self) -> None:
        """It has done all it has to."""
        for joined in self.joined.values():
            if not joined.is_done:
                raise SynclineError(
                    f"worker {self.worker} never finishes {joined.collective}: "
                    "every worker must join it, in the same order"
                )
        if self.index < len(self.program):
            raise SynclineError(
                f"worker {self.worker} never gets past {self.program[self.index]}: nothing sends what it waits for"
            )
