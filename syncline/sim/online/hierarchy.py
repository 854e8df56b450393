"""A server above local servers: their updates, its versions, and the models that it returns."""

from __future__ import annotations

import math
from functools import partial

from simpy.events import EventPriority

from syncline.sim.online.gates import GatedSimulation, gate
from syncline.sim.online.server_interface import EventObserver, Merge, ServerSettings, UpperServer
from syncline.sim.online.server_policy import ServerPolicy, ServerState
from syncline.sim.program.instructions import First, Instruction, Recv, Send

ARRIVALS_ABOVE = EventPriority(10)
"""Priority of arrivals above: the server takes them after all of one instant have come, as those of workers."""


class UpperServerPrograms:
    """The programs of the local servers that send updates up, and the lanes of the server above; both wait at gates.

    Args:
        settings: settings of the workers and servers.
        above: settings of the hierarchy.
        observer: observer of the events.
        policy: the local servers.

    Attributes:
        simulation: the simulation that runs the programs, set before it starts.
        merges: the updates of local servers.
    """

    simulation: GatedSimulation

    def __init__(
        self, settings: ServerSettings, above: UpperServer, observer: EventObserver, policy: ServerPolicy
    ) -> None:
        self.settings, self.above, self.observer, self.policy = settings, above, observer, policy
        self.merges: list[Merge] = []
        servers = len(above.groups)
        self._versions = 0
        self._arrived: list[int] = []  # servers whose updates arrived at this instant
        self._sent_s = [0.0] * servers
        self._sent_versions = [0] * servers  # number of versions in the update under way
        self._last_merge = [-1] * servers  # index of each server's last update among all
        self._ended = [False] * servers

    def programs(self) -> list[list[Instruction]]:
        """Return the sending program of each local server, then its lane above; idle servers have empty ones."""
        self._ended = [not server.under_way for server in self.policy.servers]
        numbers = range(len(self._ended))
        sending = [[] if self._ended[s] else self._sending(s, 0) for s in numbers]
        return sending + [[] if self._ended[s] else self._lane(s, 0) for s in numbers]

    def send_due(self, server: ServerState) -> None:
        """Send the update that is due; if no further update can come, send the rest and then end.

        With the last steps the other local servers do the same, because they may have no worker left that triggers it.
        """
        self._send_if_due(server)
        for other in self.policy.servers if not self.policy.steps_left else ():
            if other is not server:
                self._send_if_due(other)

    def _send_if_due(self, server: ServerState) -> None:
        number = server.number
        if server.away or self._ended[number]:
            return
        new_versions = server.versions - server.merged
        ended = not (server.under_way or server.buffered or self.policy.steps_left)
        if new_versions >= self.above.merge_period or (ended and new_versions):
            server.away = True
        elif ended:
            self._ended[number] = True
        else:
            return
        for program in (self._program(number), self._lane_above(number)):
            self.simulation.open_gate(program)

    def _program(self, number: int) -> int:
        """Return the number of a local server's sending program."""
        return 2 * self.settings.workers + number

    def _lane_above(self, number: int) -> int:
        """Return the number of a local server's lane at the server above."""
        return self._program(number) + len(self.above.groups)

    # Instructions and effects of a local server.

    def _sending(self, number: int, sent: int) -> list[Instruction]:
        """Return the instructions that send an update up, merge the returned model, and send the next update."""
        lane = self._lane_above(number)

        def send(_: int) -> list[Instruction]:
            if self._ended[number]:
                return []
            return [
                Send(lane, self.settings.model_bytes, ("up", sent), label=f"update {sent}"),
                Recv(lane, ("down", sent), effect=partial(self._merge, number), label=f"model {sent + 1}"),
                *self._sending(number, sent + 1),
            ]

        return [gate(partial(self._send, number)), First([None], send)]

    def _send(self, number: int) -> None:
        if not self._ended[number]:
            server = self.policy.servers[number]
            self._sent_s[number], self._sent_versions[number] = self.simulation.now_s, server.versions - server.merged
            self.observer.send_up(number)

    def _merge(self, number: int) -> None:
        server, last = self.policy.servers[number], self._last_merge[number]
        self.observer.merge(number)
        self.merges[last] = self.merges[last]._replace(merged_s=self.simulation.now_s)
        server.merged, server.away = server.versions, False
        self.send_due(server)

    # Instructions and effects of the server above.

    def _lane(self, number: int, count: int) -> list[Instruction]:
        """Return the instructions that take a local server's update, return a model, and take the next update."""
        local = self._program(number)

        def take(_: int) -> list[Instruction]:
            if self._ended[number]:
                return []
            return [
                Recv(local, ("up", count), effect=partial(self._arrive, number)),
                gate(partial(self._reply, number)),
                Send(local, self.settings.model_bytes, ("down", count), label=f"model {count + 1}"),
                *self._lane(number, count + 1),
            ]

        return [gate(lambda: None), First([None], take)]

    def _arrive(self, number: int) -> None:
        if not self._arrived:
            self.simulation.env.later(0.0, self._take, ARRIVALS_ABOVE)
        self._arrived.append(number)

    def _take(self, _: object) -> None:
        """Make a version of each update that has arrived at this instant."""
        arrived, self._arrived = sorted(self._arrived), []
        self.policy.end_s = now_s = float(self.simulation.env.now)
        for number in arrived:
            age = self._versions - self.policy.servers[number].above
            self.observer.arrive_up(number, age)
            self._versions += 1
            self._last_merge[number] = len(self.merges)
            sent = self._sent_versions[number], self._sent_s[number]
            self.merges.append(Merge(number, *sent, now_s, self._versions, age, math.nan))
            self.simulation.open_gate(self._lane_above(number))

    def _reply(self, number: int) -> None:
        self.observer.reply_up(number)
        self.policy.servers[number].above = self._versions
