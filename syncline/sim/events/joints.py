"""A collective under way: the part of each of its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syncline.costmodel.collectives.gloo.costs import GlooCosts
from syncline.costmodel.collectives.table import is_posted
from syncline.sim.events.members import Member, PortIn
from syncline.sim.events.ports import Fabric, PortOut
from syncline.sim.events.posted import Poster, Sockets
from syncline.sim.events.steps import Role, Ways
from syncline.sim.programs import Collective


class Joint:
    """A collective that some worker has joined: the part of each, also of those who come later.

    Args:
        collective: which.
        of: the role of each worker of its group.
        fabric: what its messages travel over.
        ports: the ports out and in of a worker on a stream.
        ways: between workers.
        gloo: what its software takes, for what it runs.
    """

    def __init__(
        self,
        collective: Collective,
        of: Mapping[int, Role],
        fabric: Fabric,
        ports: Callable[[int, str], tuple[PortOut, PortIn]],
        ways: Ways,
        gloo: GlooCosts,
    ) -> None:
        self.collective = collective
        self.ports_in = {worker: ports(worker, collective.stream)[1] for worker in of} if fabric.eager else {}
        self.members: dict[int, Member | Poster] = {}
        if is_posted(collective.kind, collective.algorithm):
            posters: list[Poster] = []
            call_s = float(gloo.beside_s(collective.kind, len(of), collective.nbytes)) if len(of) > 1 else 0.0
            sockets = Sockets(fabric, ways, gloo.message_s, call_s)
            for worker, role in of.items():
                posters.append(Poster(sockets, worker, posters, role, collective.kind))
            for poster in posters:
                poster.look_ahead()
            self.members.update(zip(of, posters, strict=True))
        else:
            members: list[Member] = []
            for worker, role in of.items():
                members.append(Member(fabric, worker, members, role, *ports(worker, collective.stream)))
            self.members.update(zip(of, members, strict=True))
        self.left = len(self.members)  # that are not done

    def know(self, worker: int, number: int) -> None:
        """The worker comes to it as its ``number``-th on this stream."""
        member = self.members.get(worker)
        if member is not None and worker in self.ports_in:
            self.ports_in[worker].know(number, member)

    def done(self) -> bool:
        """One more worker is done; whether that was the last."""
        self.left -= 1
        return not self.left


def promise(of: Collective) -> tuple[Any, ...]:
    """What all workers must say of a collective."""
    return of.kind, of.nbytes, of.algorithm, of.group, of.stream, id(of.rounds)
