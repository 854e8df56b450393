"""An upper server above local servers: the local servers' updates, the upper server's versions and its models.

Servers wait at *gates*: instructions that are done when a caller opens them (`GatedSimulation`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from simpy.events import EventPriority
from typing_extensions import override

from syncline.sim.events.codes import TIMER
from syncline.sim.events.simulation import CHOICES, Simulation
from syncline.sim.online.server_interface import EventObserver, Merge, ServerSettings, UpperServer
from syncline.sim.online.server_policy import ServerPolicy, ServerState
from syncline.sim.program.instructions import Compute, First, Instruction, Recv, Send

ARRIVALS = EventPriority(10)
"""Priority of arrivals: servers take arrivals after all other events of an instant, and before replies."""

GATE = "gate"
"""Name of the spans of gates; a gate is a `Compute` of no time that is done when `open_gate` is called."""


def gate(effect: Callable[[], object], step: int = -1) -> Compute:
    """Return a gate: an instruction that ends, and calls ``effect()``, when `GatedSimulation.open_gate` is called."""
    return Compute(0.0, effect=effect, what=GATE, step=step)


def continue_with(make_rest: Callable[[], Sequence[Instruction]]) -> First:
    """Return an instruction that calls a function for the rest of a program, when the program comes to it."""
    return First([None], lambda _: make_rest())  # a single option, which waits for nothing


class GatedSimulation(Simulation):
    """A simulation whose gates open when `open_gate` is called."""

    @property
    def now_s(self) -> float:
        """Return the seconds since the beginning of the simulation."""
        return float(self.core["now"])

    def open_gate(self, program: int) -> None:
        """Open the gate at which a program waits, at the end of this instant."""
        self.env.call_later(0.0, partial(self._complete_compute, program), CHOICES)

    @override
    def _act(self, reason: int) -> None:
        """Do what compiled code cannot do; a worker at a gate waits for `open_gate`."""
        if reason == TIMER:  # a `Compute` with an effect has begun, such as a gate, which no timer ends
            instruction: Any = self._instruction(int(self.core["stream"]))
            if instruction.what == GATE:
                return
        super()._act(reason)


class UpperServerPrograms:
    """The programs of local servers that send updates to the upper server, and of its handlers that receive them.

    The upper server has a *handler* for each local server: a program that takes its updates and returns models.
    """

    simulation: GatedSimulation

    def __init__(
        self, settings: ServerSettings, upper: UpperServer, observer: EventObserver, policy: ServerPolicy
    ) -> None:
        self.settings, self.upper, self.observer, self.policy = settings, upper, observer, policy
        self.merges: list[Merge] = []
        servers = len(upper.groups)
        self._versions = 0  # number of the upper server's versions
        self._arrivals: list[int] = []  # servers whose updates arrived at this instant
        self._sent_s = [0.0] * servers
        self._sent_versions = [0] * servers  # number of versions in the update under way
        self._merge_index = [-1] * servers  # index of each server's last update in ``merges``
        self._has_ended = [False] * servers

    def programs(self) -> list[list[Instruction]]:
        """Return the sending programs of the local servers, then their handlers at the upper server."""
        self._has_ended = [not server.num_under_way for server in self.policy.servers]  # their workers got no steps
        programs: list[list[Instruction]] = []
        for make_program in (self._send_program, self._handler_program):
            for server_number, has_ended in enumerate(self._has_ended):
                programs.append([] if has_ended else make_program(server_number, 0))
        return programs

    def send_due(self, server: ServerState) -> None:
        """Send the update of a local server if it is due, or if no more updates of its workers can arrive.

        Once all steps are assigned, also check the other local servers, whose workers may send nothing more.
        """
        others = [] if self.policy.steps_left else [other for other in self.policy.servers if other is not server]
        for checked_server in (server, *others):
            self._send_if_due(checked_server)

    def _send_if_due(self, server: ServerState) -> None:
        """Open the gates of a local server's sender and handler: for a due update, or to end these two programs."""
        server_number = server.number
        if server.is_merging or self._has_ended[server_number]:  # an update is under way, or none can follow
            return
        new_versions = server.versions - server.merged_versions
        is_at_end = not (server.num_under_way or server.buffered or self.policy.steps_left)  # no version can come
        if new_versions >= self.upper.merge_period or (is_at_end and new_versions):
            server.is_merging = True
        elif is_at_end:
            self._has_ended[server_number] = True
        else:
            return
        for program in (self._sender_number(server_number), self._handler_number(server_number)):
            self.simulation.open_gate(program)

    def _sender_number(self, server_number: int) -> int:
        """Return the number of a local server's sending program; P workers and P handlers come before."""
        return 2 * self.settings.workers + server_number

    def _handler_number(self, server_number: int) -> int:
        """Return the number of the program of the upper server's handler for a local server."""
        return self._sender_number(server_number) + len(self.upper.groups)

    # Instructions and effects of a local server.

    def _send_program(self, server_number: int, update: int) -> list[Instruction]:
        """Return the program with which a local server sends its updates, from ``update`` on, to the upper server.

        The program waits at a gate until `_send_if_due` opens it, sends an update to the upper server's handler,
        receives the upper server's model, merges it into the local model, and begins again with the next update.
        """
        handler = self._handler_number(server_number)

        def after_gate() -> list[Instruction]:
            """Return the instructions that send an update once it is due; none if the local server has ended."""
            if self._has_ended[server_number]:
                return []
            send = Send(handler, self.settings.model_bytes, ("up", update), label=f"update {update}")
            merge = partial(self._merge, server_number)
            receive = Recv(handler, ("down", update), effect=merge, label=f"model {update + 1}")
            return [send, receive, *self._send_program(server_number, update + 1)]

        return [gate(partial(self._note_send, server_number)), continue_with(after_gate)]

    def _note_send(self, server_number: int) -> None:
        """Note when a local server's update leaves, and how many versions of its model it covers."""
        if not self._has_ended[server_number]:  # otherwise the gate has opened to end the program
            server = self.policy.servers[server_number]
            self._sent_s[server_number] = self.simulation.now_s
            self._sent_versions[server_number] = server.versions - server.merged_versions
            self.observer.send_up(server_number)

    def _merge(self, server_number: int) -> None:
        """Merge the upper server's model into the model of a local server when it arrives there."""
        server, merge_index = self.policy.servers[server_number], self._merge_index[server_number]
        self.observer.merge(server_number)
        self.merges[merge_index] = self.merges[merge_index]._replace(merged_s=self.simulation.now_s)
        server.merged_versions, server.is_merging = server.versions, False
        self.send_due(server)

    # Instructions and effects of the upper server.

    def _handler_program(self, server_number: int, update: int) -> list[Instruction]:
        """Return the upper server's handler of a local server: take an update, send the model, await the next."""
        sender = self._sender_number(server_number)

        def after_gate() -> list[Instruction]:
            """Return the instructions that take an update once it is due; none if the local server has ended."""
            if self._has_ended[server_number]:
                return []
            return [
                Recv(sender, ("up", update), effect=partial(self._queue_arrival, server_number)),
                gate(partial(self._begin_reply, server_number)),
                Send(sender, self.settings.model_bytes, ("down", update), label=f"model {update + 1}"),
                *self._handler_program(server_number, update + 1),
            ]

        return [gate(lambda: None), continue_with(after_gate)]  # `_send_if_due` opens the gate

    def _queue_arrival(self, server_number: int) -> None:
        """Note that a local server's update has arrived, for processing at the end of this instant, in server order."""
        if not self._arrivals:  # the first of this instant
            self.simulation.env.call_later(0.0, self._take_arrivals, ARRIVALS)
        self._arrivals.append(server_number)

    def _take_arrivals(self, _: object) -> None:
        """Apply the updates that have arrived at the upper server at this instant; each makes a version."""
        arrivals, self._arrivals = sorted(self._arrivals), []
        self.policy.end_s = now_s = float(self.simulation.env.now)
        for server_number in arrivals:
            age = self._versions - self.policy.servers[server_number].upper_version
            self.observer.arrive_up(server_number, age)
            self._versions += 1
            self._merge_index[server_number] = len(self.merges)
            self.merges.append(Merge(
                server_number, self._sent_versions[server_number], self._sent_s[server_number], arrived_s=now_s,
                version=self._versions, age=age, merged_s=math.nan,
            ))  # fmt: skip
            self.simulation.open_gate(self._handler_number(server_number))  # the handler replies

    def _begin_reply(self, server_number: int) -> None:
        """Note which version of the upper server's model leaves for a local server."""
        self.observer.reply_up(server_number)
        self.policy.servers[server_number].upper_version = self._versions
