"""Decisions of servers, independent of the clock: steps and models for workers, and new versions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from syncline.seeds import generator
from syncline.sim.online.server_interface import Contribution, EventObserver, ServerSettings
from syncline.sim.online.server_state import ServerState, server_states


class ServerClock(Protocol):
    """A clock that also carries models."""

    def time_s(self) -> float:
        """Return the seconds since the beginning."""

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function after ``seconds``, once the servers have taken all updates that arrived by then."""

    def release_model(self, worker: int) -> None:
        """Release a worker's next model; `Serving.replied` is called when it leaves."""

    def updates_taken(self, desk: ServerState) -> None:
        """Process that a server has taken all arrived updates and may have an update to send above."""


class ServerPolicy:
    """The servers of workers at their own pace, in the simulator or between processes.

    Args:
        served: settings of the workers and servers.
        observer: observer of the events.
        timing: the clock.
    """

    def __init__(self, served: ServerSettings, observer: EventObserver, timing: ServerClock) -> None:
        self.served, self.watching, self.timing = served, observer, timing
        workers = served.workers
        self.left = served.steps  # steps that no worker has been handed
        self.granted, self.model = [0] * workers, [0] * workers
        self.begun_s, self.sent_s = [0.0] * workers, [0.0] * workers
        self.desks = server_states(workers, served.groups)
        self.of = [desk for desk in self.desks for _ in desk.idle]
        self.at: dict[int, int] = {}  # index of each worker's last update among all
        self.noted: list[Contribution] = []
        self.draws = generator(served.seed, "participants")
        self.failed: set[int] = set()  # failed workers that have no new model yet
        self.gone: set[int] = set()  # failed workers that do not come back
        self.asleep: set[int] = set()  # workers without steps, until a failure returns some
        self.end_s = 0.0

    def begin(self) -> list[int]:
        """Hand out the first steps; return the workers that take part at once with the first model."""
        at_once = [worker for desk in self.desks for worker in self._idle_to_start(desk)]
        for worker in at_once:
            self._grant(worker)
        return at_once

    def take(self, arrived: Sequence[int]) -> None:
        """Take updates that have arrived, or messages of workers that are back after a failure."""
        now_s = self.timing.time_s()
        for worker in arrived:
            if worker in self.failed:
                self._is_back(worker)
                continue
            self.end_s = now_s
            desk = self.of[worker]
            age = desk.versions - self.model[worker]
            self.at[worker] = len(self.noted)
            self.noted.append(
                Contribution(
                    worker, self.granted[worker], self.begun_s[worker], self.sent_s[worker], now_s,
                    self.model[worker], desk.versions + 1, age, math.nan,
                )
            )  # fmt: skip
            desk.under_way -= 1
            self.watching.arrive(worker, age)
            desk.buffered.append(worker)
            if not self.served.synchronous:
                desk.idle.append(worker)
            self._apply_updates_if_ready(desk)
        for desk in self.desks:
            self._send_due(desk)

    def fail(self, worker: int, *, for_good: bool) -> None:
        """Return the steps of a worker to the pool, because it failed before its update was made."""
        self.left += self.granted[worker]
        self.failed.add(worker)
        if for_good:
            self.gone.add(worker)
        self.watching.fail(worker)

    def leave(self, worker: int) -> None:
        """Remove a worker that is not under way and does not come back."""
        self.gone.add(worker)
        desk = self.of[worker]
        desk.idle = [other for other in desk.idle if other != worker]

    def wake(self) -> None:
        """Offer returned steps to the workers that had none, unless others have taken them; let all servers go on."""
        if self.left:
            asleep, self.asleep = sorted(self.asleep), set()
            for worker in asleep:
                self.of[worker].idle.append(worker)
        for desk in self.desks:
            self._send_due(desk)

    def replied(self, worker: int) -> None:
        """Send a worker the current model and its next steps."""
        if worker in self.gone:
            return
        self.watching.reply(worker)
        desk = self.of[worker]
        self.model[worker] = desk.versions
        if worker in self.at:
            self.noted[self.at[worker]] = self.noted[self.at[worker]]._replace(replied_s=self.timing.time_s())
        has_returned = worker in self.failed
        self.failed.discard(worker)
        desk.under_way -= has_returned  # it counted as under way, so that no version was made without it
        self._grant(worker)
        # Others may have been handed the last steps meanwhile.
        if (self.served.hierarchy is not None or has_returned) and not self.granted[worker]:
            if desk.buffered and self._is_last_version(desk):
                self._version(desk)
            self._send_due(desk)

    def _idle_to_start(self, desk: ServerState) -> list[int]:
        """Return the idle workers that go on: as many as there are free places, or all if no steps are left."""
        idle, present = desk.idle, self.served.workers - len(self.gone)
        places = self.served.at_a_time - present + len(idle)
        if places >= len(idle) or not self.left:
            desk.idle = []
            return idle
        drawn = set(self.draws.choice(len(idle), places, replace=False).tolist())
        desk.idle = [worker for i, worker in enumerate(idle) if i not in drawn]
        return [worker for i, worker in enumerate(idle) if i in drawn]

    def _grant(self, worker: int) -> None:
        """Hand a worker its next local steps, if any are left."""
        steps = min(self.served.local_steps[worker], self.left)
        self.granted[worker], self.left = steps, self.left - steps
        self.of[worker].under_way += steps > 0

    def _is_back(self, worker: int) -> None:
        """Process a worker's request for a model after a failure; stop waiting for a worker that does not come back."""
        desk = self.of[worker]
        if worker not in self.gone:
            desk.idle.append(worker)
            return
        desk.under_way -= 1
        self.timing.release_model(worker)
        if desk.buffered:
            self._apply_updates_if_ready(desk)

    def _is_last_version(self, desk: ServerState) -> bool:
        """Return whether no further update can arrive, because no worker is under way or can get more steps."""
        return not desk.under_way and (self.served.synchronous or not self.left)

    def _apply_updates_if_ready(self, desk: ServerState) -> None:
        """Make a version once the quorum has arrived or no further update can arrive."""
        full = len(desk.buffered) >= self.served.buffer_size
        if self._is_last_version(desk) or (full and not self.served.grace_period_s):
            self._version(desk)
        elif full and desk.closing != desk.versions + 1:
            desk.closing = desk.versions + 1
            self.timing.later(self.served.grace_period_s, partial(self._close, desk, desk.closing))

    def _close(self, desk: ServerState, version: int) -> None:
        """End the grace period of a version."""
        if desk.versions < version:
            self.end_s = self.timing.time_s()
            self._version(desk)
            self._send_due(desk)

    def _version(self, desk: ServerState) -> None:
        self.watching.version(len(desk.buffered), desk.number)
        desk.versions += 1
        contributed, desk.buffered = desk.buffered, []
        if self.served.synchronous:
            desk.idle += [worker for worker in contributed if worker not in self.gone]

    def _send_due(self, desk: ServerState) -> None:
        """Send the update that is due above, and give models to idle workers."""
        self.timing.updates_taken(desk)
        for worker in self._idle_to_start(desk) if desk.idle else ():
            self.timing.release_model(worker)
