"""The event simulation: workers run their programs over a network, message by message."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import simpy
from numpy.typing import ArrayLike

from syncline.costmodel.hierarchy import node_size
from syncline.costmodel.link import Link
from syncline.costmodel.topology import Network, Topology, topology
from syncline.errors import SpecError, SynclineError, one_of
from syncline.sim.flows import Channels
from syncline.sim.letters import Letter
from syncline.sim.members import Member, PortIn
from syncline.sim.ports import Delay, Fabric, PortOut
from syncline.sim.programs import Collective, Program
from syncline.sim.recurrences import RULES, Rule
from syncline.sim.rounds import rounds
from syncline.sim.starts import start_times
from syncline.sim.steps import Role, Ways, roles
from syncline.sim.timeline import Timeline
from syncline.sim.workers import Worker

Stream: TypeAlias = tuple[int, str]


def run_events(
    programs: Sequence[Program],
    network: Link | Sequence[Link] | Network | Topology,
    starts_s: ArrayLike | None = None,
    rule: Rule = "eager",
    delay: Delay | None = None,
) -> Timeline:
    """What happens when each worker runs its program.

    Channels are shared: concurrent transfers have max-min fair rates. On each stream a worker has one port out, which
    serves its messages in the order of queueing, and for collectives one port in, which serves them in the order in
    which the worker's programs receive them. By the rule

    - *eager*, a message starts when its sender has queued it and both ports are free, whatever its receiver's program
      is at: ``start``, the sender is busy for the overhead o, the bytes flow, both ports are free, and the message
      arrives alpha later;
    - *rendezvous*, it starts when both ends have come to it, a worker to all messages of a round at once when those of
      its rounds before are over: ``start``, alpha + o pass, the bytes flow, both ends go on.

    A worker is done with a collective when its last message has arrived and its own last has left. What happens at the
    same instant happens in one fixed order.

    Args:
        programs: one per worker.
        network: the link that every worker has, or one per worker; a network; or a topology.
        starts_s: when each worker begins, ``(P,)`` seconds; at 0 unless given.
        rule: ``eager`` or ``rendezvous``.
        delay: seconds, at least 0, by which a message from one worker to another is late on top of its latency; called
            as ``delay(sender, receiver)`` once per message, in the order in which they start.

    Raises:
        SpecError: an argument that cannot be used.
        SynclineError: programs that cannot finish, or that disagree about a collective.
    """
    if rule not in RULES:
        raise SpecError("rule", rule, one_of(RULES, str(rule)))
    return Simulation(programs, topology(network, len(programs)), starts_s, rule == "eager", delay).run()


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
