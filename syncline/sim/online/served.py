"""Workers who share a server: what is asked for, who is told what happens, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from syncline.costmodel.network.topology import Floats, Ints
from syncline.errors import SpecError
from syncline.sim.failures.outcome import FailureCosts
from syncline.sim.timeline import Timeline


@dataclass(frozen=True)
class Above:
    """A server above local ones, each of which serves a group of workers.

    After every so many versions of its own a local server sends what came of them since it last had the model from
    above, and goes on meanwhile; the server above makes a version of each such update, and sends its model back, which
    the local one merges into its own.

    Args:
        groups: workers of each local server, one after another.
        every: versions of a local server from one merge to what it sends.

    Raises:
        SpecError: a number below 1.
    """

    groups: tuple[int, ...]
    every: int

    def __post_init__(self) -> None:
        if not self.groups or min(self.groups) < 1:
            raise SpecError("groups", self.groups, "the workers of each local server, at least 1")
        if self.every < 1:
            raise SpecError("every", self.every, "at least 1")


@dataclass(frozen=True)
class Served:
    """How workers and their server go on.

    A worker takes the server's model, makes its local steps, sends what came of them, and waits for the next model. The
    server makes a new version of the model of every ``buffer`` updates that arrive, and of those that come within
    ``grace_s`` after them. Where fewer than all take part at a time, it draws who of the idle goes on.

    Args:
        workers: P.
        steps: that all workers make together; the server hands them out, so a fast worker makes more of them.
        local_steps: of each worker from one model to the next, ``(P,)``, each at least 1.
        buffer: updates of which the server makes one version, the quorum; what is left at the end makes the last.
        waits: whether a worker gets its model when there is a version that its update is in; else at once, which is
            when everything else of that instant has arrived.
        update_bytes: of what a worker sends.
        model_bytes: of what it gets.
        grace_s: seconds after the last of the buffer in which more updates come into the version; it is over at once
            when nobody else is under way.
        participants: workers that take part at a time; all if none. Each gets the model when it is drawn: all who do
            at the beginning have it.
        seed: of these draws.
        above: what joins the servers of groups of workers; none: all workers have the same.

    Raises:
        SpecError: a number below 1, a time below 0, more participants than workers, or a buffer that never fills as
            all of those who could fill it wait.
    """

    workers: int
    steps: int
    local_steps: Sequence[int]
    buffer: int = 1
    waits: bool = False
    update_bytes: float = 0.0
    model_bytes: float = 0.0
    grace_s: float = 0.0
    participants: int | None = None
    seed: int = 0
    above: Above | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "steps", "buffer"):
            if getattr(self, name) < 1:
                raise SpecError(name, getattr(self, name), "at least 1")
        if not 1 <= self.at_a_time <= self.workers:
            raise SpecError("participants", self.participants, f"from 1 to {self.workers}, the workers")
        if self.above is not None and (sum(self.above.groups) != self.workers or self.participants is not None):
            raise SpecError(
                "above.groups", self.above.groups, f"all {self.workers} workers, who take part at all times"
            )
        if not (math.isfinite(self.grace_s) and self.grace_s >= 0):
            raise SpecError("grace", self.grace_s, "seconds, finite and at least 0")
        if len(self.local_steps) != self.workers or min(self.local_steps) < 1:
            raise SpecError("local_steps", list(self.local_steps), f"{self.workers} numbers of at least 1")
        if self.waits and self.buffer > min(self.groups, default=self.at_a_time):
            who = "the participants" if self.participants is not None else "the workers"
            fewest = min(self.groups, default=self.at_a_time)
            raise SpecError("buffer", self.buffer, f"at most {fewest}, {who}, who wait until it is full")

    @property
    def groups(self) -> tuple[int, ...]:
        """Workers of each local server; none: there is one server."""
        return () if self.above is None else self.above.groups

    @property
    def at_a_time(self) -> int:
        """Workers that take part at a time."""
        return self.workers if self.participants is None else self.participants


class EndPlay(Exception):
    """Raised by who listens, to end it there."""


class Watching(Protocol):
    """Who is told what happens, in the order of events: the math. It may raise `EndPlay`."""

    def step(self, worker: int, number: int) -> None:
        """A worker has made its local step of this number, from 0."""

    def arrive(self, worker: int, age: int) -> None:
        """Its update is there; since its model, the server has made ``age`` other versions."""

    def version(self, count: int, server: int) -> None:
        """The server, or the local one of this number, makes a version of the last ``count`` updates."""

    def reply(self, worker: int) -> None:
        """It is given its server's model, as that is now."""

    def send_up(self, server: int) -> None:
        """A local server sends what came of its versions since it last had the model from above."""

    def arrive_up(self, server: int, age: int) -> None:
        """That is there, and makes a version above, which has made ``age`` others since."""

    def reply_up(self, server: int) -> None:
        """The local server is sent the model from above, as that is now."""

    def merge(self, server: int) -> None:
        """It has come, and is merged."""

    def fail(self, worker: int) -> None:
        """Its machine fails, with all that it has not sent; when it is back, it begins with a model of the server."""


class Nobody:
    """Who listens where only times are asked for."""

    def step(self, worker: int, number: int) -> None:
        """Nothing."""

    def arrive(self, worker: int, age: int) -> None:
        """Nothing."""

    def version(self, count: int, server: int) -> None:
        """Nothing."""

    def reply(self, worker: int) -> None:
        """Nothing."""

    def fail(self, worker: int) -> None:
        """Nothing."""

    def send_up(self, server: int) -> None:
        """Nothing."""

    def arrive_up(self, server: int, age: int) -> None:
        """Nothing."""

    def reply_up(self, server: int) -> None:
        """Nothing."""

    def merge(self, server: int) -> None:
        """Nothing."""


class Contribution(NamedTuple):
    """An update on its way from a worker to the server.

    Attributes:
        worker: whose.
        steps: local steps that it is of.
        begun_s: when its worker began them, with its model.
        sent_s: when it was sent.
        arrived_s: when the server had it.
        model: version that its worker began with.
        version: that it is in, from 1.
        age: versions that others made meanwhile, ``version - 1 - model``.
        replied_s: when the server sent the next model; NaN if never.
    """

    worker: int
    steps: int
    begun_s: float
    sent_s: float
    arrived_s: float
    model: int
    version: int
    age: int
    replied_s: float


class Merge(NamedTuple):
    """What a local server sent to the one above, and the model that came back.

    Attributes:
        server: which local one.
        versions: its own, of which it is.
        sent_s: when it was sent.
        arrived_s: when the server above had it.
        version: that it made there, from 1.
        age: versions that others made there since the last model that came from there was sent.
        merged_s: when the model that came back was merged; NaN if never.
    """

    server: int
    versions: int
    sent_s: float
    arrived_s: float
    version: int
    age: int
    merged_s: float


@dataclass(frozen=True, eq=False)
class PlayedApart:
    """What came of it.

    Args:
        step_end_s: when each step ended, of whichever worker, ``(N,)`` seconds in order.
        step_worker: whose it was, ``(N,)``.
        contributions: as they arrived.
        versions: that the server made, or all local ones together.
        end_s: when the last of them was made, or the last step ended.
        compute_s: seconds that each worker computes, ``(P,)``.
        wait_s: seconds that each waits for a model, its update's way included, ``(P,)``.
        timeline: of P + 1 workers; the last is the server, with a stream for what it sends to each worker; or of P + S
            + 1, S local servers, which have one to the server above, and that.
        interrupted: whether the user stopped it; everything above is then what there was.
        merges: of local servers, as they arrived above.
        failed: what failures cost, where machines may fail.
    """

    step_end_s: Floats
    step_worker: Ints
    contributions: tuple[Contribution, ...]
    versions: int
    end_s: float
    compute_s: Floats
    wait_s: Floats
    timeline: Timeline
    interrupted: bool = False
    merges: tuple[Merge, ...] = ()
    failed: FailureCosts | None = None

    def columns(self) -> dict[str, np.ndarray]:
        """The contributions as columns."""
        rows = list(zip(*self.contributions, strict=True)) or [()] * len(Contribution._fields)
        return {name: np.array(column) for name, column in zip(Contribution._fields, rows, strict=True)}

    def ages(self) -> Ints:
        """How many updates were of each age, from 0 on."""
        return np.bincount(self.columns()["age"].astype(np.int64), minlength=1)

    def waited_for_s(self, workers: int, groups: Sequence[int] = ()) -> Floats:
        """Seconds that each worker's updates lay at the server until another's had come, ``(P, P)``: who, for whom.

        That is the last one of their version; what comes after it, a grace, is nobody's. Of the updates whose workers
        were given another model.

        Args:
            workers: P.
            groups: workers of each local server, one after another; none: there is one server.
        """
        server = [s for s, size in enumerate(groups or (workers,)) for _ in range(size)]
        last: dict[tuple[int, int], Contribution] = {}
        for one in self.contributions:  # as they arrived
            last[server[one.worker], one.version] = one
        waited_s: Floats = np.zeros((workers, workers))
        for one in self.contributions:
            awaited = last[server[one.worker], one.version]
            if one.replied_s >= awaited.arrived_s:  # neither at once, nor never
                waited_s[one.worker, awaited.worker] += awaited.arrived_s - one.arrived_s
        return waited_s

    def steps_of(self, workers: int) -> Ints:
        """Local steps that each worker made, ``(P,)``."""
        return np.bincount(self.step_worker, minlength=workers)
