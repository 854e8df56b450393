"""A collective under way: the part of each of its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syncline.sim.members import Member, PortIn
from syncline.sim.ports import Fabric, PortOut
from syncline.sim.programs import Collective
from syncline.sim.steps import Role


class Joint:
    """A collective that some worker has joined: the part of each, also of those who come later.

    Args:
        collective: which.
        of: the role of each worker of its group.
        fabric: what its messages travel over.
        ports: the ports out and in of a worker on a stream.
    """

    def __init__(
        self,
        collective: Collective,
        of: Mapping[int, Role],
        fabric: Fabric,
        ports: Callable[[int, str], tuple[PortOut, PortIn]],
    ) -> None:
        self.collective = collective
        self.eager = fabric.eager
        members: list[Member] = []
        for worker, role in of.items():
            members.append(Member(fabric, worker, members, role, *ports(worker, collective.stream)))
        self.members = dict(zip(of, members, strict=True))
        self.left = len(members)  # that are not done

    def know(self, worker: int, number: int) -> None:
        """The worker comes to it as its ``number``-th on this stream."""
        member = self.members.get(worker)
        if self.eager and member is not None:
            member.port_in.know(number, member)

    def done(self) -> bool:
        """One more worker is done; whether that was the last."""
        self.left -= 1
        return not self.left


def promise(of: Collective) -> tuple[Any, ...]:
    """What all workers must say of a collective."""
    return of.kind, of.nbytes, of.algorithm, of.group, of.stream, id(of.rounds)
