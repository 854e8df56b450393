"""What servers decide: who gets steps and models when, and when versions are made, whoever keeps the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from syncline.seeds import generator
from syncline.sim.online.desks import Desk, desks_of
from syncline.sim.online.served import Contribution, Served, Watching


class ServerTime(Protocol):
    """Who keeps the time, and carries models."""

    def time_s(self) -> float:
        """Seconds from the beginning."""

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call after so many seconds, once everything that has arrived by then is taken."""

    def let_go(self, worker: int) -> None:
        """Let a worker's next model go; when it does, `Serving.replied` is called."""

    def went_on(self, desk: Desk) -> None:
        """A server has taken what there was: it may have something to send above."""


class Serving:
    """The servers of workers at their own pace, in the simulator or between processes.

    Args:
        served: how they go on.
        watching: who is told.
        timing: who keeps the time.
    """

    def __init__(self, served: Served, watching: Watching, timing: ServerTime) -> None:
        self.served, self.watching, self.timing = served, watching, timing
        workers = served.workers
        self.left = served.steps  # that nobody has been handed
        self.granted, self.model = [0] * workers, [0] * workers
        self.begun_s, self.sent_s = [0.0] * workers, [0.0] * workers
        self.desks = desks_of(workers, served.groups)
        self.of = [desk for desk in self.desks for _ in desk.idle]
        self.at: dict[int, int] = {}  # of each worker's last update, its number among all
        self.noted: list[Contribution] = []
        self.draws = generator(served.seed, "participants")
        self.failed: set[int] = set()  # who has failed, and has no model yet
        self.gone: set[int] = set()  # of these, who does not come back
        self.asleep: set[int] = set()  # for whom no steps were left, until a failure gives some back
        self.end_s = 0.0

    def begin(self) -> list[int]:
        """Hand out the first steps; who takes part at once, with the first model."""
        at_once = [worker for desk in self.desks for worker in self._chosen(desk)]
        for worker in at_once:
            self._grant(worker)
        return at_once

    def take(self, arrived: Sequence[int]) -> None:
        """Updates have arrived, or words of workers that are back after a failure."""
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
            if not self.served.waits:
                desk.idle.append(worker)
            self._has_come(desk)
        for desk in self.desks:
            self._go_on(desk)

    def fail(self, worker: int, *, for_good: bool) -> None:
        """A worker that has a model fails before its update is made: its steps are anybody's again."""
        self.left += self.granted[worker]
        self.failed.add(worker)
        if for_good:
            self.gone.add(worker)
        self.watching.fail(worker)

    def leave(self, worker: int) -> None:
        """A worker that is not under way does not come back."""
        self.gone.add(worker)
        desk = self.of[worker]
        desk.idle = [one for one in desk.idle if one != worker]

    def wake(self) -> None:
        """Steps that have come free are for those who had none, unless others have taken them; all go on."""
        if self.left:
            asleep, self.asleep = sorted(self.asleep), set()
            for worker in asleep:
                self.of[worker].idle.append(worker)
        for desk in self.desks:
            self._go_on(desk)

    def replied(self, worker: int) -> None:
        """A worker's model leaves, as it is now, with its next steps."""
        if worker in self.gone:
            return
        self.watching.reply(worker)
        desk = self.of[worker]
        self.model[worker] = desk.versions
        if worker in self.at:
            self.noted[self.at[worker]] = self.noted[self.at[worker]]._replace(replied_s=self.timing.time_s())
        back = worker in self.failed
        self.failed.discard(worker)
        desk.under_way -= back  # which it was all the time, so that nobody made a version without it
        self._grant(worker)
        # Others may have been handed the last steps meanwhile.
        if (self.served.above is not None or back) and not self.granted[worker]:
            if desk.buffered and self._is_over(desk):
                self._version(desk)
            self._go_on(desk)

    def _chosen(self, desk: Desk) -> list[int]:
        """Who of the idle goes on: as many as there are places; all, where no steps are left."""
        idle, there = desk.idle, self.served.workers - len(self.gone)
        places = self.served.at_a_time - there + len(idle)
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
        """A worker asks for a model after a failure; one that does not come back is nobody's to wait for."""
        desk = self.of[worker]
        if worker not in self.gone:
            desk.idle.append(worker)
            return
        desk.under_way -= 1
        self.timing.let_go(worker)
        if desk.buffered:
            self._has_come(desk)

    def _is_over(self, desk: Desk) -> bool:
        """Whether nobody is under way, and nobody who is about to get a model has steps left: nothing else comes."""
        return not desk.under_way and (self.served.waits or not self.left)

    def _has_come(self, desk: Desk) -> None:
        """Make a version, if it is time for one."""
        full = len(desk.buffered) >= self.served.buffer
        if self._is_over(desk) or (full and not self.served.grace_s):
            self._version(desk)
        elif full and desk.closing != desk.versions + 1:
            desk.closing = desk.versions + 1
            self.timing.later(self.served.grace_s, partial(self._close, desk, desk.closing))

    def _close(self, desk: Desk, version: int) -> None:
        """The grace of a version is over."""
        if desk.versions < version:
            self.end_s = self.timing.time_s()
            self._version(desk)
            self._go_on(desk)

    def _version(self, desk: Desk) -> None:
        self.watching.version(len(desk.buffered), desk.number)
        desk.versions += 1
        contributed, desk.buffered = desk.buffered, []
        if self.served.waits:
            desk.idle += [worker for worker in contributed if worker not in self.gone]

    def _go_on(self, desk: Desk) -> None:
        """Send what is due above, and give models to who is idle."""
        self.timing.went_on(desk)
        for worker in self._chosen(desk) if desk.idle else ():
            self.timing.let_go(worker)
