"""A server above local servers: their updates, its versions, and the models that it returns."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

from simpy.events import EventPriority

from syncline.sim.online.gates import GatedSimulation, gate
from syncline.sim.online.server_interface import EventObserver, Merge, ServerSettings, UpperServer
from syncline.sim.program.instructions import First, Instruction, Recv, Send

if TYPE_CHECKING:
    from syncline.sim.online.server_policy import ServerPolicy
    from syncline.sim.online.server_state import ServerState

ARRIVALS_ABOVE = EventPriority(10)
"""Priority of arrivals above: the server takes them after all of one instant have come, as those of workers."""


class AsyncSimulation(Protocol):
    """The simulation of the workers and their local servers."""

    served: ServerSettings
    watching: EventObserver
    serving: ServerPolicy
    simulation: GatedSimulation


class UpperServerPrograms:
    """The programs of the local servers that send updates up, and the lanes of the server above; both wait at gates.

    Args:
        play: simulation of the workers and local servers.
        above: settings of the servers.
    """

    def __init__(self, play: AsyncSimulation, above: UpperServer) -> None:
        self.play, self.above = play, above
        self.noted: list[Merge] = []
        self.versions = 0
        self.arrived: list[int] = []
        self.sent_s = [0.0] * len(above.groups)
        self.sent = [0] * len(above.groups)  # number of versions in the update under way
        self.at = [-1] * len(above.groups)  # index of each server's last update among all
        self.over = [False] * len(above.groups)

    def programs(self) -> list[list[Instruction]]:
        """Return the sending program of each local server, then its lane above; idle servers have empty ones."""
        self.over = [not desk.under_way for desk in self.play.serving.desks]
        numbers = range(len(self.over))
        sending = [[] if self.over[s] else self._sending(s, 0) for s in numbers]
        return sending + [[] if self.over[s] else self._lane(s, 0) for s in numbers]

    def go_on(self, desk: ServerState) -> None:
        """Send the update that is due; if no further update can come, send the rest and then end.

        With the last steps the other local servers do the same, because they may have no worker left that triggers it.
        """
        self._go_on(desk)
        if not self.play.serving.left:
            for other in self.play.serving.desks:
                if other is not desk:
                    self._go_on(other)

    def _go_on(self, desk: ServerState) -> None:
        number = desk.number
        if desk.away or self.over[number]:
            return
        new_versions = desk.versions - desk.merged
        ended = not (desk.under_way or desk.buffered or self.play.serving.left)
        if new_versions >= self.above.merge_period or (ended and new_versions):
            desk.away = True
        elif ended:
            self.over[number] = True
        else:
            return
        for gated in (self._program(number), self._program(number) + len(self.above.groups)):
            self.play.simulation.let_through(gated)

    def _program(self, number: int) -> int:
        return 2 * self.play.served.workers + number

    # Instructions and effects of a local server.

    def _sending(self, number: int, sent: int) -> list[Instruction]:
        lane = self._program(number) + len(self.above.groups)

        def sends(_: int) -> list[Instruction]:
            if self.over[number]:
                return []
            return [
                Send(lane, self.play.served.model_bytes, ("up", sent), label=f"update {sent}"),
                Recv(lane, ("down", sent), effect=partial(self._merged, number), label=f"model {sent + 1}"),
                *self._sending(number, sent + 1),
            ]

        return [gate(partial(self._sent, number)), First([None], sends)]

    def _sent(self, number: int) -> None:
        if not self.over[number]:
            desk = self.play.serving.desks[number]
            self.sent_s[number], self.sent[number] = self.play.simulation.now_s, desk.versions - desk.merged
            self.play.watching.send_up(number)

    def _merged(self, number: int) -> None:
        desk = self.play.serving.desks[number]
        self.play.watching.merge(number)
        self.noted[self.at[number]] = self.noted[self.at[number]]._replace(merged_s=self.play.simulation.now_s)
        desk.merged, desk.away = desk.versions, False
        self.go_on(desk)

    # Instructions and effects of the server above.

    def _lane(self, number: int, count: int) -> list[Instruction]:
        local = self._program(number)

        def takes(_: int) -> list[Instruction]:
            if self.over[number]:
                return []
            return [
                Recv(local, ("up", count), effect=partial(self._has_arrived, number)),
                gate(partial(self._replied, number)),
                Send(local, self.play.served.model_bytes, ("down", count), label=f"model {count + 1}"),
                *self._lane(number, count + 1),
            ]

        return [gate(lambda: None), First([None], takes)]

    def _has_arrived(self, number: int) -> None:
        if not self.arrived:
            self.play.simulation.env.later(0.0, self._take, ARRIVALS_ABOVE)
        self.arrived.append(number)

    def _take(self, _: object) -> None:
        arrived, self.arrived = sorted(self.arrived), []
        play = self.play
        play.serving.end_s = now_s = float(play.simulation.env.now)
        for number in arrived:
            desk = play.serving.desks[number]
            age = self.versions - desk.above
            play.watching.arrive_up(number, age)
            self.versions += 1
            self.at[number] = len(self.noted)
            sent = self.sent[number], self.sent_s[number]
            self.noted.append(Merge(number, *sent, now_s, self.versions, age, math.nan))
            play.simulation.let_through(self._program(number) + len(self.above.groups))

    def _replied(self, number: int) -> None:
        self.play.watching.reply_up(number)
        self.play.serving.desks[number].above = self.versions
