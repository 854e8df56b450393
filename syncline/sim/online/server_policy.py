"""Decisions of servers, independent of the clock: steps and models for workers, and new versions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from syncline.seeds import generator
from syncline.sim.online.server_interface import Contribution, EventObserver, ServerSettings


@dataclass
class ServerState:
    """The state of a server: of the only server, or of a local server of a group of workers.

    Args:
        idle: workers without a model to train, in the order in which they became idle; at first all the server's
            workers.
        versions: number of versions that the server has made.
        num_under_way: number of workers that compute or whose updates are on their way.
        buffered: workers whose updates wait for a version.
        version_in_grace: last version whose grace period has begun; 0 before the first.
        merged_versions: number of versions that the server had made when it last merged the upper server's model.
        upper_version: version of the last model that the upper server sent to this local server.
        is_merging: whether an update to the upper server, or the returned model, is on its way.
    """

    number: int
    idle: list[int]
    versions: int = 0
    num_under_way: int = 0
    buffered: list[int] = field(default_factory=list)
    version_in_grace: int = 0
    merged_versions: int = 0
    upper_version: int = 0
    is_merging: bool = False


class ServerClock(Protocol):
    """The surroundings of a `ServerPolicy`: simulated, or real processes.

    The policy asks for the time, for calls at later times, and for models to be sent to workers.
    """

    def time_s(self) -> float:
        """Return the seconds since the beginning of the training."""

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function after ``seconds``, once the servers have taken all updates that arrived before."""

    def release_model(self, worker: int) -> None:
        """Send a worker its next model; when the model leaves, `ServerPolicy.reply` is called."""

    def updates_taken(self, server: ServerState) -> None:
        """Send a local server's update to the upper server if it is due, after the server has taken all arrivals."""


class ServerPolicy:
    """The servers of workers at their own pace, in the simulator or between processes.

    Args:
        timing: the clock, and the sender of models.

    Attributes:
        steps_left: number of steps that no worker has been assigned.
        assigned: number of steps that each worker makes with its present model.
        model_version: version of each worker's model.
        begun_s: time in seconds at which each worker began the steps with its present model.
        sent_s: time in seconds at which each worker sent its last update.
        servers: the only server, or the local servers.
        server_of: server of each worker.
        contributions: updates in the order of arrival.
        end_s: time of the last step, arrival or version so far.
    """

    def __init__(self, settings: ServerSettings, observer: EventObserver, timing: ServerClock) -> None:
        self.settings, self.observer, self.timing = settings, observer, timing
        workers = settings.workers
        self.steps_left = settings.steps
        self.assigned, self.model_version = [0] * workers, [0] * workers
        self.begun_s, self.sent_s = [0.0] * workers, [0.0] * workers
        self.servers: list[ServerState] = []
        self.server_of: list[ServerState] = []
        for number, group_size in enumerate(settings.groups or (workers,)):
            first_worker = len(self.server_of)
            server = ServerState(number, idle=list(range(first_worker, first_worker + group_size)))
            self.servers.append(server)
            self.server_of += [server] * group_size
        self._last_contribution: dict[int, int] = {}  # index of each worker's last update in ``contributions``
        self.contributions: list[Contribution] = []
        self.draws = generator(settings.seed, "participants")
        self.failed: set[int] = set()  # failed workers that have no new model yet
        self.departed: set[int] = set()  # failed workers that do not come back
        self.sleeping: set[int] = set()  # workers without steps, until a failure returns steps
        self.end_s = 0.0

    def assign_first_steps(self) -> list[int]:
        """Assign the first steps, and return the workers that take part from the beginning."""
        first_workers: list[int] = []
        for server in self.servers:
            first_workers += self._take_idle(server)
        for worker in first_workers:
            self._assign(worker)
        return first_workers

    def take_updates(self, arrived: Sequence[int]) -> None:
        """Take the updates or failure notices of workers that have arrived at one instant."""
        now_s = self.timing.time_s()
        for worker in arrived:
            if worker in self.failed:
                self._take_failure_notice(worker)
                continue
            self.end_s = now_s
            server = self.server_of[worker]
            age = server.versions - self.model_version[worker]
            self._last_contribution[worker] = len(self.contributions)
            self.contributions.append(Contribution(
                worker, self.assigned[worker], begun_s=self.begun_s[worker], sent_s=self.sent_s[worker], age=age,
                arrived_s=now_s, model=self.model_version[worker], version=server.versions + 1, replied_s=math.nan,
            ))  # fmt: skip
            server.num_under_way -= 1
            self.observer.arrive(worker, age)
            server.buffered.append(worker)
            if not self.settings.synchronous:
                server.idle.append(worker)
            self._apply_updates_if_ready(server)
        for server in self.servers:
            self._send_due(server)

    def fail(self, worker: int, *, for_good: bool) -> None:
        """Take back the unsent steps of a failed worker; if ``for_good``, the worker never returns."""
        self.steps_left += self.assigned[worker]
        self.failed.add(worker)
        if for_good:
            self.departed.add(worker)
        self.observer.fail(worker)

    def leave(self, worker: int) -> None:
        """Remove a worker that is idle and does not come back."""
        self.departed.add(worker)
        server = self.server_of[worker]
        server.idle = [idle_worker for idle_worker in server.idle if idle_worker != worker]

    def wake(self) -> None:
        """Make the sleeping workers idle if steps of failed workers are left; then send due updates and models."""
        if self.steps_left:
            sleeping, self.sleeping = sorted(self.sleeping), set()
            for worker in sleeping:
                self.server_of[worker].idle.append(worker)
        for server in self.servers:
            self._send_due(server)

    def reply(self, worker: int) -> None:
        """Send a worker the current model, and assign its next steps."""
        if worker in self.departed:  # it gets no model any more
            return
        self.observer.reply(worker)
        server = self.server_of[worker]
        self.model_version[worker] = server.versions
        if worker in self._last_contribution:
            index = self._last_contribution[worker]
            self.contributions[index] = self.contributions[index]._replace(replied_s=self.timing.time_s())
        has_returned = worker in self.failed
        self.failed.discard(worker)
        if has_returned:  # an absent worker counts as under way, because versions wait for its return
            server.num_under_way -= 1
        self._assign(worker)
        # If the worker gets no steps, a version or an update to the upper server may have nothing left to wait for.
        if (self.settings.hierarchy is not None or has_returned) and not self.assigned[worker]:
            if server.buffered and self._is_last_version(server):
                self._make_version(server)
            self._send_due(server)

    def _take_idle(self, server: ServerState) -> list[int]:
        """Draw the next participants from the idle workers; remove and return them.

        If no steps are left, all idle workers are drawn and get the last model.
        """
        idle, num_present = server.idle, self.settings.workers - len(self.departed)
        num_participating = num_present - len(idle)
        num_drawn = self.settings.num_participants - num_participating
        if num_drawn >= len(idle) or not self.steps_left:
            server.idle = []
            return idle
        drawn_indices = set(self.draws.choice(len(idle), num_drawn, replace=False).tolist())
        server.idle = [worker for index, worker in enumerate(idle) if index not in drawn_indices]
        return [worker for index, worker in enumerate(idle) if index in drawn_indices]

    def _assign(self, worker: int) -> None:
        """Assign a worker its next local steps; none if no steps are left."""
        steps = min(self.settings.local_steps[worker], self.steps_left)
        self.assigned[worker] = steps
        self.steps_left -= steps
        if steps:  # a worker without steps sends no update
            self.server_of[worker].num_under_way += 1

    def _take_failure_notice(self, worker: int) -> None:
        """Process a failed worker's message: the worker asks for a model or departs."""
        server = self.server_of[worker]
        if worker not in self.departed:
            server.idle.append(worker)
            return
        server.num_under_way -= 1
        self.timing.release_model(worker)  # the handler of a departed worker ends
        if server.buffered:
            self._apply_updates_if_ready(server)

    def _is_last_version(self, server: ServerState) -> bool:
        """Return whether no further update can arrive before the next version of a server."""
        may_get_steps = self.steps_left and not self.settings.synchronous  # synchronous workers wait for the version
        return not server.num_under_way and not may_get_steps

    def _apply_updates_if_ready(self, server: ServerState) -> None:
        """Make a version if no further update can arrive, or if the buffer is full and any grace period is over."""
        is_full = len(server.buffered) >= self.settings.buffer_size
        if self._is_last_version(server) or (is_full and not self.settings.grace_period_s):
            self._make_version(server)
        elif is_full and server.version_in_grace <= server.versions:  # the next version's grace period has not begun
            version = server.version_in_grace = server.versions + 1
            self.timing.later(self.settings.grace_period_s, partial(self._end_grace_period, server, version))

    def _end_grace_period(self, server: ServerState, version: int) -> None:
        """End the grace period of a version: make the version from the updates so far, unless it exists already."""
        if server.versions < version:
            self.end_s = self.timing.time_s()  # that of the version
            self._make_version(server)
            self._send_due(server)

    def _make_version(self, server: ServerState) -> None:
        """Make a version of a server's buffered updates."""
        self.observer.version(len(server.buffered), server.number)
        server.versions += 1
        contributed, server.buffered = server.buffered, []
        if self.settings.synchronous:  # otherwise they became idle when their updates arrived
            server.idle += [worker for worker in contributed if worker not in self.departed]

    def _send_due(self, server: ServerState) -> None:
        """Send a server's update to the upper server if it is due, and models to the next participants."""
        self.timing.updates_taken(server)
        if server.idle:
            for worker in self._take_idle(server):
                self.timing.release_model(worker)
