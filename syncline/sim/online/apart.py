"""Workers at their own pace, each with the server's model of its time: events decide what the math sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from simpy.events import EventPriority

from syncline.sim.failures.absences import Absences, Away
from syncline.sim.online.desks import Desk
from syncline.sim.online.fates import AWAY, LOST, Fates
from syncline.sim.online.gates import GatedSimulation, gate
from syncline.sim.online.hierarchy import ServerAbove
from syncline.sim.online.lanes import ServerLanes
from syncline.sim.online.lines import with_servers
from syncline.sim.online.served import EndPlay, Nobody, PlayedApart, Served, Watching
from syncline.sim.online.serving import Serving
from syncline.sim.programs import Compute, Delay, First, Instruction, Recv, Send, Stuck

ARRIVALS = EventPriority(10)
"""Arrivals are taken when all of their instant have come, and before replies."""

StepSeconds = Callable[[int, int], float]
"""Seconds of a worker's local step of some number, from 0."""


def play_apart(
    served: Served,
    pace: StepSeconds,
    over: ServerLanes,
    watching: Watching | None = None,
    *,
    starts_s: Sequence[float] | None = None,
    delay: Delay | None = None,
    keep_steps: int | None = None,
    absences: Absences | None = None,
) -> PlayedApart:
    """Play workers and their servers, message by message, and tell who listens what happens in the order of events.

    Updates and models are messages as those of `syncline.sim.run_events`, eager ones: they share channels max-min
    fairly. Of what happens in one instant steps come first, in one fixed order, then what arrives, by worker, then
    replies.

    Args:
        served: how they go on.
        pace: of the workers.
        over: what joins them, see `syncline.sim.online.lanes.server_lanes`.
        watching: who is told; nobody, where only times are asked for.
        starts_s: when each worker begins, ``(P,)`` seconds; at 0 unless given.
        delay: by how much a message is late, as `syncline.sim.run_events` asks, between places.
        keep_steps: of how many of each worker's steps to keep the timeline; of all if none.
        absences: of workers whose machines fail. What such a worker has not sent is lost, and its steps are anybody's
            again; when it is back it asks for a model. A machine that fails while an update or a model is on its way is
            away from when the model comes.
    """
    return _Play(served, pace, watching or Nobody(), absences).run(over, starts_s, delay, keep_steps)


class _Play:
    def __init__(self, served: Served, pace: StepSeconds, watching: Watching, absences: Absences | None) -> None:
        self.served, self.pace, self.watching = served, pace, watching
        workers = served.workers
        self.fates = Fates(workers, pace, absences)
        self.serving = Serving(served, watching, self)
        self.made, self.round = [0] * workers, [0] * workers
        self.arrived: list[int] = []  # workers whose updates arrived at this instant
        self.above = ServerAbove(self, served.above) if served.above is not None else None
        self.step_end_s: list[float] = []
        self.step_worker: list[int] = []

    def run(
        self, over: ServerLanes, starts_s: Sequence[float] | None, delay: Delay | None, keep_steps: int | None
    ) -> PlayedApart:
        """Play to the end."""
        workers, serving = self.served.workers, self.serving
        at_once = serving.begin()
        late = None if delay is None else lambda a, b: delay(over.place_of(a), over.place_of(b))
        begins = None if starts_s is None else [*starts_s, *[0.0] * len(over.places)]
        serving.begun_s = [0.0] * workers if starts_s is None else list(starts_s)
        if self.fates.absences is not None:
            serving.asleep = {m for m in at_once if not serving.granted[m]}
        begin = [m in at_once and m not in serving.asleep for m in range(workers)]
        programs = [self._work(m) if begin[m] else self._waiting(m, -1, -1) for m in range(workers)]
        programs += [self._lane(m) if begin[m] else self._replying(m, -1, -1) for m in range(workers)]
        programs += self.above.programs() if self.above else []
        self.simulation = GatedSimulation(programs, over, begins, True, late)
        interrupted = self.is_through = False
        try:
            timeline = self.simulation.run()
            self.is_through = True
        except (EndPlay, KeyboardInterrupt) as end:
            timeline, interrupted = self.simulation.timeline_so_far(), isinstance(end, KeyboardInterrupt)
        except Stuck:
            # Nothing else comes: not for who sleeps, nor for a local server whose workers are gone for good, which
            # keeps what is of no whole version.
            if self.fates.absences is None or not (serving.asleep or self.above):
                raise
            timeline, self.is_through = self.simulation.timeline_so_far(), True
        return PlayedApart(
            np.array(self.step_end_s),
            np.array(self.step_worker, dtype=np.int64),
            tuple(serving.noted),
            sum(desk.versions for desk in serving.desks),
            serving.end_s,
            timeline.compute_s()[:workers] - self.fates.not_computing_s(),
            timeline.exposed_communication_s()[:workers],
            with_servers(timeline, self.served, keep_steps),
            interrupted,
            tuple(self.above.noted) if self.above else (),
            self.fates.outcome(serving.end_s, len(self.step_end_s), serving.left if self.is_through else 0),
        )

    # Who keeps the time for the servers.

    def time_s(self) -> float:
        """Seconds from the beginning, at an event of a server."""
        return float(self.simulation.env.now)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call after so many seconds; what arrives at that instant is still in time."""

        def called(_: object) -> None:
            if self.arrived:
                self._take(None)
            call()

        self.simulation.env.later(seconds, called, ARRIVALS)

    def let_go(self, worker: int) -> None:
        """Open the gate of a worker's lane."""
        self.simulation.let_through(self.served.workers + worker)

    def went_on(self, desk: Desk) -> None:
        """Send what is due above."""
        if self.above:
            self.above.go_on(desk)

    # A worker.

    def _work(self, worker: int) -> list[Instruction]:
        """What a worker does with a model."""
        serving = self.serving
        steps, made, number = serving.granted[worker], self.made[worker], self.round[worker]
        if not steps:
            return []
        if (away := self.fates.next_of(worker, serving.begun_s[worker], range(made, made + steps))) is not None:
            return self._fails(worker, away)
        lane, last = self.served.workers + worker, made + steps - 1
        program: list[Instruction] = [
            Compute(self.pace(worker, t), step=t, effect=partial(self._stepped, worker, t))
            for t in range(made, made + steps)
        ]
        program.append(Send(lane, self.served.update_bytes, ("update", number), last, label=f"update {number}"))
        self.made[worker] += steps
        self.round[worker] += 1
        return program + self._waiting(worker, number, last)

    def _fails(self, worker: int, away: Away) -> list[Instruction]:
        """What a worker does whose machine fails before its update is made: when it is back it asks for a model."""
        begun_s, number, made = self.serving.begun_s[worker], self.round[worker], self.made[worker]
        lane, from_s = self.served.workers + worker, max(away.from_s, begun_s)
        self.round[worker] += 1
        program: list[Instruction] = [
            Compute(from_s - begun_s, step=made, what=LOST, effect=partial(self._failed, worker, away))
        ]
        word = Send(lane, 0.0, ("update", number), made, label="leaves" if math.isinf(away.back_s) else "is back")
        if math.isinf(away.back_s):
            return [*program, word]
        return [
            *program,
            Compute(away.back_s - from_s, step=made, what=AWAY),
            word,
            *self._waiting(worker, number, made),
        ]

    def _failed(self, worker: int, away: Away) -> None:
        self.fates.fail(worker, self.serving.begun_s[worker], away)
        self.serving.fail(worker, for_good=math.isinf(away.back_s))
        if self.serving.asleep:
            self.simulation.env.later(0.0, lambda _: self.serving.wake(), ARRIVALS)

    def _waiting(self, worker: int, number: int, last: int) -> list[Instruction]:
        """A worker waits for its next model."""

        def goes_on(_: int) -> list[Instruction]:
            self.serving.begun_s[worker] = self.simulation.now_s
            return self._work(worker)

        lane = self.served.workers + worker
        return [Recv(lane, ("model", number), last, label=f"model {number + 1}"), First([None], goes_on)]

    def _stepped(self, worker: int, number: int) -> None:
        self.serving.end_s = self.serving.sent_s[worker] = now_s = self.simulation.now_s
        self.step_end_s.append(now_s)
        self.step_worker.append(worker)
        self.watching.step(worker, number)

    # The server's lane of a worker.

    def _lane(self, worker: int) -> list[Instruction]:
        """What the server does for a worker that has begun: take its update, give it the next model, and so on."""
        if not self.serving.granted[worker]:
            return []
        return self._taking(worker, self.round[worker] - 1, self.made[worker] - 1)

    def _taking(self, worker: int, number: int, last: int) -> list[Instruction]:
        return [
            Recv(worker, ("update", number), last, partial(self._arrived, worker)),
            *self._replying(worker, number, last),
        ]

    def _replying(self, worker: int, number: int, last: int) -> list[Instruction]:
        return [
            gate(partial(self.serving.replied, worker), last),
            First([None], lambda _: self._giving(worker, number, last)),
        ]

    def _giving(self, worker: int, number: int, last: int) -> list[Instruction]:
        if worker in self.serving.gone:
            return []
        if not self.serving.granted[worker] and self.fates.absences is not None:
            self.serving.asleep.add(worker)
            return self._replying(worker, number, last)
        send = Send(worker, self.served.model_bytes, ("model", number), last, label=f"model {number + 1}")
        more = self.serving.granted[worker]
        return [send, *(self._taking(worker, number + 1, last + more) if more else [])]

    def _arrived(self, worker: int) -> None:
        """Updates that arrive at the same instant are taken at its end, by worker."""
        if not self.arrived:
            self.simulation.env.later(0.0, self._take, ARRIVALS)
        self.arrived.append(worker)

    def _take(self, _: object) -> None:
        arrived, self.arrived = sorted(self.arrived), []
        self.serving.take(arrived)
