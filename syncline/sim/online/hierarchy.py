"""A server above local ones: what they send up, the versions that it makes of that, and what comes back."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

from simpy.events import EventPriority

from syncline.sim.online.gates import gate
from syncline.sim.online.served import Above, Merge, Served, Watching
from syncline.sim.programs import First, Instruction, Recv, Send

if TYPE_CHECKING:
    from syncline.sim.online.desks import Desk
    from syncline.sim.online.gates import GatedSimulation
    from syncline.sim.online.serving import Serving

ARRIVALS_ABOVE = EventPriority(10)
"""They are taken when all of their instant have come, as those of workers."""


class Playing(Protocol):
    """Who plays the workers and their local servers."""

    served: Served
    watching: Watching
    serving: Serving
    simulation: GatedSimulation


class ServerAbove:
    """Each local server has a program that sends up, and a lane at the server above, which wait at gates meanwhile.

    Args:
        play: who plays the rest.
        above: how they go on.
    """

    def __init__(self, play: Playing, above: Above) -> None:
        self.play, self.above = play, above
        self.noted: list[Merge] = []
        self.versions = 0
        self.arrived: list[int] = []
        self.sent_s = [0.0] * len(above.groups)
        self.sent = [0] * len(above.groups)  # versions that it is of
        self.at = [-1] * len(above.groups)  # of each one's last update, its number among all
        self.over = [False] * len(above.groups)

    def programs(self) -> list[list[Instruction]]:
        """Of each local server what it sends, then of each its lane above; none of those whose workers do nothing."""
        self.over = [not desk.under_way for desk in self.play.serving.desks]
        numbers = range(len(self.over))
        sending = [[] if self.over[s] else self._sending(s, 0) for s in numbers]
        return sending + [[] if self.over[s] else self._lane(s, 0) for s in numbers]

    def go_on(self, desk: Desk) -> None:
        """Send what is due; when nothing more can come, what there is, and then end.

        With the last steps so do the others, of whose workers nobody may be left to say so.
        """
        self._go_on(desk)
        if not self.play.serving.left:
            for other in self.play.serving.desks:
                if other is not desk:
                    self._go_on(other)

    def _go_on(self, desk: Desk) -> None:
        number = desk.number
        if desk.away or self.over[number]:
            return
        new = desk.versions - desk.merged
        ended = not (desk.under_way or desk.buffered or self.play.serving.left)
        if new >= self.above.every or (ended and new):
            desk.away = True
        elif ended:
            self.over[number] = True
        else:
            return
        for gated in (self._program(number), self._program(number) + len(self.above.groups)):
            self.play.simulation.let_through(gated)

    def _program(self, number: int) -> int:
        return 2 * self.play.served.workers + number

    # A local server.

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

    # The server above.

    def _lane(self, number: int, taken: int) -> list[Instruction]:
        local = self._program(number)

        def takes(_: int) -> list[Instruction]:
            if self.over[number]:
                return []
            return [
                Recv(local, ("up", taken), effect=partial(self._has_arrived, number)),
                gate(partial(self._replied, number)),
                Send(local, self.play.served.model_bytes, ("down", taken), label=f"model {taken + 1}"),
                *self._lane(number, taken + 1),
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
