"""The streams of a worker: its program, and the collectives that it has joined."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from syncline.errors import SynclineError
from syncline.sim.flows import Later
from syncline.sim.letters import Letter
from syncline.sim.programs import Collective, Compute, Program, Recv, Send, Wait

if TYPE_CHECKING:
    from syncline.sim.events import Joint, Simulation


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
