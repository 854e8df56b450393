"""Active collectives, that some worker of their group has joined and not all are done with, and each worker's queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from syncline.costmodel.collectives.table import is_gloo
from syncline.costmodel.network.software_costs import GlooCosts
from syncline.sim.program.instructions import Collective
from tests.sim.oracle.flows import Later
from tests.sim.oracle.gloo import Connections, GlooRank
from tests.sim.oracle.ports import Fabric, PortIn, PortOut
from tests.sim.oracle.rank_rounds import RankRounds, Routes
from tests.sim.oracle.ranks import Rank

if TYPE_CHECKING:
    from tests.sim.oracle.simulation import Simulation, WorkerProgram


class ActiveCollective:
    """A collective that some worker has joined: the rank of each, also of those who come later.

    Args:
        collective: which.
        does: what each worker of its group does.
        fabric: what its messages travel over.
        ports: the ports out and in of a worker on a stream.
        routes: between workers.
        gloo: what its software takes, for what it runs.
    """

    def __init__(
        self,
        collective: Collective,
        does: Mapping[int, RankRounds],
        fabric: Fabric,
        ports: Callable[[int, str], tuple[PortOut, PortIn]],
        routes: Routes,
        gloo: GlooCosts,
    ) -> None:
        self.collective = collective
        self.ports_in = {worker: ports(worker, collective.stream)[1] for worker in does} if fabric.eager else {}
        self.ranks: dict[int, Rank | GlooRank] = {}
        if is_gloo(collective.kind, collective.algorithm):
            on_gloo: list[GlooRank] = []
            call_s = float(gloo.software_s(collective.kind, len(does), collective.nbytes)) if len(does) > 1 else 0.0
            connections = Connections(fabric, routes, gloo.message_s, call_s)
            for worker, rounds in does.items():
                on_gloo.append(GlooRank(connections, worker, on_gloo, rounds, collective.kind, len(does)))
            for gloo_rank in on_gloo:
                gloo_rank.look_ahead()
            self.ranks.update(zip(does, on_gloo, strict=True))
        else:
            ranks: list[Rank] = []
            for worker, rounds in does.items():
                ranks.append(Rank(fabric, worker, ranks, rounds, *ports(worker, collective.stream)))
            self.ranks.update(zip(does, ranks, strict=True))
        self.left = len(self.ranks)  # that are not done

    def know(self, worker: int, number: int) -> None:
        """The worker comes to it as its ``number``-th on this stream."""
        rank = self.ranks.get(worker)
        if rank is not None and worker in self.ports_in:
            self.ports_in[worker].know(number, rank)

    def done(self) -> bool:
        """One more worker is done; whether that was the last."""
        self.left -= 1
        return not self.left


class QueuedCollective:
    """A collective on a network stream of a worker, from when the program starts it."""

    __slots__ = ("active", "after", "collective", "is_done", "simulation", "start_s", "then", "worker")

    def __init__(self, simulation: Simulation, worker: int, collective: Collective, active: ActiveCollective) -> None:
        self.simulation, self.worker, self.collective, self.active = simulation, worker, collective, active
        self.is_done = False
        self.start_s = 0.0
        self.after: QueuedCollective | None = None  # the next on this stream
        self.then: WorkerProgram | None = None  # who waits for it

    def enter(self, _: Later | None = None) -> None:
        """The one before it on this stream is done."""
        self.start_s = self.simulation.env.now
        self.active.ranks[self.worker].enter(self.done)

    def done(self) -> None:
        """The worker has no more to do in it."""
        self.is_done = True
        one, simulation, rank = self.collective, self.simulation, self.active.ranks[self.worker]
        now = simulation.env.now
        simulation.spans.append(
            (self.worker, one.stream, one.kind, one.label, self.start_s, now, rank.nbytes, one.step)
        )
        if self.active.done():
            del simulation.active[one.key]
        del self.active
        if self.after is not None:
            Later(simulation.env, 0.0, self.after.enter)
        if self.then is not None:
            self.then.waited()


def agreed(of: Collective) -> tuple[Any, ...]:
    """What all workers must say of a collective."""
    return of.kind, of.nbytes, of.algorithm, of.group, of.stream, id(of.rounds)
