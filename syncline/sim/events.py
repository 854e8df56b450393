"""The event simulation: workers run their programs over their links, message by message."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import simpy
from numpy.typing import ArrayLike

from syncline.costmodel.link import Link
from syncline.errors import SynclineError
from syncline.sim.programs import Collective, Compute, Instruction, Program, Recv, Send, Wait, messages
from syncline.sim.rounds import rounds
from syncline.sim.timeline import Span, Timeline
from syncline.sim.uplinks import Uplinks, start_times

Steps: TypeAlias = Generator[simpy.Event, Any, None]
Channel: TypeAlias = tuple[int, int, Hashable]


def run_events(
    programs: Sequence[Program], links: Link | Sequence[Link], starts_s: ArrayLike | None = None
) -> Timeline:
    """What happens when each worker runs its program.

    A message starts when its sender has queued it and the sender's link is free, in the order of queueing; it arrives
    ``n / B + alpha`` later whether or not its receiver waits for it. A worker is done with a collective when its last
    message has arrived and its own last has left. What happens at the same instant happens in one fixed order.

    Args:
        programs: one per worker.
        links: the link that every worker has, or one per worker (its own messages travel over it).
        starts_s: when each worker begins, ``(P,)`` seconds; at 0 unless given.

    Raises:
        SynclineError: programs that cannot finish, or that disagree about a collective.
    """
    return _Simulation(programs, links, starts_s).run()


class _Simulation:
    """The state of a run: the clock, the links, the messages under way, and the spans so far."""

    def __init__(
        self, programs: Sequence[Program], links: Link | Sequence[Link], starts_s: ArrayLike | None = None
    ) -> None:
        self.programs, self.workers = programs, len(programs)
        self.env = simpy.Environment()
        uplinks = Uplinks.of(links, self.workers)
        self.latency_s = uplinks.latency_s.tolist()
        self.bandwidth = uplinks.bandwidth_bytes_per_s.tolist()
        self.starts_s = start_times(starts_s, self.workers).tolist()
        self.free_s = [0.0] * self.workers  # when each link has sent all that is queued on it
        self.arriving: dict[Channel, simpy.Event] = {}  # sent, and not yet asked for
        self.expected: dict[Channel, simpy.Event] = {}  # asked for, and not yet sent
        self.collectives: dict[Hashable, Collective] = {}
        self.joined: list[dict[Hashable, tuple[Collective, simpy.Process]]] = [{} for _ in programs]
        self.at: list[Instruction | None] = [None] * self.workers
        self.spans: list[Span] = []
        self.messages = lru_cache(maxsize=64)(
            lambda kind, nbytes, algorithm: messages(rounds(kind, self.workers, nbytes, algorithm), self.workers)
        )

    def run(self) -> Timeline:
        """Run to the end."""
        running = [self.env.process(self.worker(w, program)) for w, program in enumerate(self.programs)]
        self.env.run()
        for w, process in enumerate(running):
            for collective, network in self.joined[w].values():
                if network.is_alive:
                    raise SynclineError(
                        f"worker {w} never finishes {collective}: every worker must join it, in the same order"
                    )
            if process.is_alive:
                raise SynclineError(f"worker {w} never gets past {self.at[w]}: nothing sends what it waits for")
        return Timeline.of(self.spans, self.workers)

    def worker(self, w: int, program: Program) -> Steps:
        """The compute stream of worker ``w``."""
        network: simpy.Process | None = None
        yield self.env.timeout(self.starts_s[w])
        for instruction in program:
            self.at[w], start_s = instruction, self.env.now
            match instruction:
                case Compute(seconds, label, step):
                    yield self.env.timeout(seconds)
                    self.span(w, "compute", "compute", label, start_s, self.env.now, 0.0, step)
                case Send(to, nbytes, tag, step):
                    leaves_s, left_s = self.send(w, to, nbytes, tag)
                    self.span(w, "send", "send", str(tag), leaves_s, left_s, nbytes, step)
                case Recv(source, tag, step):
                    nbytes = yield self.arrival(source, w, tag)
                    self.span(w, "compute", "recv", str(tag), start_s, self.env.now, nbytes, step)
                case Collective(key=key):
                    self.agree(w, instruction)
                    network = self.env.process(self.network(w, instruction, after=network))
                    self.joined[w][key] = instruction, network
                case Wait(key):
                    if key not in self.joined[w]:
                        raise SynclineError(f"worker {w} waits for collective {key!r}, which it has not started")
                    collective, done = self.joined[w][key]
                    yield done
                    self.span(w, "compute", "wait", collective.label, start_s, self.env.now, 0.0, collective.step)
            effect = getattr(instruction, "effect", None)
            if effect is not None:
                effect()

    def network(self, w: int, collective: Collective, after: simpy.Process | None) -> Steps:
        """A collective on the network stream of worker ``w``: a program of messages, after the collective before it."""
        if after is not None:
            yield after
        start_s = left_s = self.env.now
        total_bytes = 0.0
        for message in self.messages(collective.kind, collective.nbytes, collective.algorithm)[w]:
            tag = collective.key, message.tag
            if isinstance(message, Send):
                _, left_s = self.send(w, message.to, message.nbytes, tag)
                total_bytes += message.nbytes
            else:
                yield self.arrival(message.source, w, tag)
        if left_s > self.env.now:
            yield self.env.timeout(left_s - self.env.now)
        self.span(w, "network", collective.kind, collective.label, start_s, self.env.now, total_bytes, collective.step)

    def send(self, w: int, to: int, nbytes: float, tag: Hashable) -> tuple[float, float]:
        """Queue a message on the link of worker ``w``: when it will start, and when it will have left."""
        start_s = max(self.env.now, self.free_s[w])
        self.free_s[w] = left_s = start_s + nbytes / self.bandwidth[w]
        arrival = self.env.timeout(left_s + self.latency_s[w] - self.env.now, value=nbytes)
        channel = (w, to, tag)
        if channel in self.expected:
            arrival.callbacks.append(self.expected.pop(channel).trigger)
        elif channel in self.arriving or not 0 <= to < self.workers:
            wanted = "a tag of its own for each message under way" if channel in self.arriving else "a worker"
            raise SynclineError(f"worker {w} sends {tag!r} to {to}; expected {wanted}")
        else:
            self.arriving[channel] = arrival
        return start_s, left_s

    def arrival(self, source: int, w: int, tag: Hashable) -> simpy.Event:
        """The arrival at worker ``w`` of the message with this tag; its value is the size in bytes."""
        channel = (source, w, tag)
        if channel in self.arriving:
            return self.arriving.pop(channel)
        return self.expected.setdefault(channel, self.env.event())

    def agree(self, w: int, collective: Collective) -> None:
        """A key names one collective, the same on every worker."""
        if collective.key in self.joined[w]:
            raise SynclineError(f"worker {w} starts collective {collective.key!r} twice; expected a key of its own")
        first = self.collectives.setdefault(collective.key, collective)
        one, other = ((each.kind, each.nbytes, each.algorithm) for each in (first, collective))
        if one != other:
            raise SynclineError(
                f"worker {w} joins {first} with {collective}; expected the same kind, size and algorithm"
            )

    def span(self, *values: Any) -> None:
        """Note that something happened."""
        self.spans.append(Span(*values))
