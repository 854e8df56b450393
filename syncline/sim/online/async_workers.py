"""Asynchronous training simulated event by event: workers at their own pace, and servers that update their models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from simpy.events import EventPriority

from syncline.sim.failures.roster import AbsencePeriod, Absences
from syncline.sim.online.gates import GatedSimulation, gate
from syncline.sim.online.hierarchy import UpperServerPrograms
from syncline.sim.online.server_channels import ServerTopology
from syncline.sim.online.server_interface import AsyncResult, EndSimulation, EventObserver, NullObserver, ServerSettings
from syncline.sim.online.server_policy import ServerPolicy
from syncline.sim.online.server_state import ServerState
from syncline.sim.online.timeline import with_servers
from syncline.sim.online.worker_failures import AWAY, LOST, WorkerFailures
from syncline.sim.program.instructions import Compute, Delay, First, Instruction, Recv, Send, Stuck

ARRIVALS = EventPriority(10)
"""Priority of arrivals: servers take them after all of one instant have come, and before replies."""

StepSeconds = Callable[[int, int], float]
"""A function of a worker and a step number, from 0, that returns the seconds of that local step."""


def play_async_workers(
    served: ServerSettings,
    pace: StepSeconds,
    topology: ServerTopology,
    observer: EventObserver | None = None,
    *,
    starts_s: Sequence[float] | None = None,
    delay: Delay | None = None,
    keep_steps: int | None = None,
    absences: Absences | None = None,
) -> AsyncResult:
    """Play workers and their servers message by message, and report the events to an observer in their order.

    Updates and models are eager messages, as those of `syncline.sim.run_events`: they share channels max-min fairly.
    Within one instant the steps come first, in one fixed order; then the arrivals, by worker; then the replies.

    Args:
        served: settings of the workers and servers.
        pace: seconds of each worker's steps.
        topology: the network, see `syncline.sim.online.server_channels.server_topology`.
        observer: observer of the events; None if only times are wanted.
        starts_s: beginning of each worker, ``(P,)`` seconds; 0 by default.
        delay: lateness of a message between places, as in `syncline.sim.run_events`.
        keep_steps: number of each worker's steps to keep in the timeline; None: all.
        absences: absences of workers whose machines fail. Such a worker loses all that it has not sent, and the servers
            hand out its steps again; after its return it asks for a model. A machine that fails while an update or a
            model is on its way is away from the arrival of the model.
    """
    return _Play(served, pace, observer or NullObserver(), absences).run(topology, starts_s, delay, keep_steps)


class _Play:
    def __init__(
        self, served: ServerSettings, pace: StepSeconds, observer: EventObserver, absences: Absences | None
    ) -> None:
        self.served, self.pace, self.watching = served, pace, observer
        workers = served.workers
        self.fates = WorkerFailures(workers, pace, absences)
        self.serving = ServerPolicy(served, observer, self)
        self.made, self.round = [0] * workers, [0] * workers
        self.arrived: list[int] = []  # workers whose updates arrived at this instant
        self.above = UpperServerPrograms(self, served.hierarchy) if served.hierarchy is not None else None
        self.step_end_s: list[float] = []
        self.step_worker: list[int] = []

    def run(
        self, topology: ServerTopology, starts_s: Sequence[float] | None, delay: Delay | None, keep_steps: int | None
    ) -> AsyncResult:
        """Play to the end and return the results."""
        workers, serving = self.served.workers, self.serving
        first_workers = serving.begin()
        lateness = None if delay is None else lambda a, b: delay(topology.place_of(a), topology.place_of(b))
        begins = None if starts_s is None else [*starts_s, *[0.0] * len(topology.places)]
        serving.begun_s = [0.0] * workers if starts_s is None else list(starts_s)
        if self.fates.absences is not None:
            serving.asleep = {m for m in first_workers if not serving.granted[m]}
        begin = [m in first_workers and m not in serving.asleep for m in range(workers)]
        programs = [self._work(m) if begin[m] else self._waiting(m, -1, -1) for m in range(workers)]
        programs += [self._lane(m) if begin[m] else self._replying(m, -1, -1) for m in range(workers)]
        programs += self.above.programs() if self.above else []
        self.simulation = GatedSimulation(programs, topology, begins, True, lateness)
        interrupted = self.is_through = False
        try:
            timeline = self.simulation.run()
            self.is_through = True
        except (EndSimulation, KeyboardInterrupt) as end:
            timeline, interrupted = self.simulation.timeline_so_far(), isinstance(end, KeyboardInterrupt)
        except Stuck:
            # Nothing else comes for sleeping workers, nor for a local server whose workers are gone for good: it
            # keeps the updates that fill no version.
            if self.fates.absences is None or not (serving.asleep or self.above):
                raise
            timeline, self.is_through = self.simulation.timeline_so_far(), True
        return AsyncResult(
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

    # The clock of the servers.

    def time_s(self) -> float:
        """Return the seconds from the beginning, at an event of a server."""
        return float(self.simulation.env.now)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function after ``seconds``; updates that arrive at that instant are still in time."""

        def called(_: object) -> None:
            if self.arrived:
                self._take(None)
            call()

        self.simulation.env.later(seconds, called, ARRIVALS)

    def release_model(self, worker: int) -> None:
        """Open the gate of a worker's lane."""
        self.simulation.let_through(self.served.workers + worker)

    def updates_taken(self, desk: ServerState) -> None:
        """Send the update that is due above."""
        if self.above:
            self.above.go_on(desk)

    # Instructions and effects of a worker.

    def _work(self, worker: int) -> list[Instruction]:
        """Return the instructions of a worker that has a model."""
        serving = self.serving
        steps, first_step, number = serving.granted[worker], self.made[worker], self.round[worker]
        if not steps:
            return []
        if (
            away := self.fates.next_of(worker, serving.begun_s[worker], range(first_step, first_step + steps))
        ) is not None:
            return self._fails(worker, away)
        lane, last = self.served.workers + worker, first_step + steps - 1
        program: list[Instruction] = [
            Compute(self.pace(worker, t), step=t, effect=partial(self._stepped, worker, t))
            for t in range(first_step, first_step + steps)
        ]
        program.append(Send(lane, self.served.update_bytes, ("update", number), last, label=f"update {number}"))
        self.made[worker] += steps
        self.round[worker] += 1
        return program + self._waiting(worker, number, last)

    def _fails(self, worker: int, away: AbsencePeriod) -> list[Instruction]:
        """Return the instructions of a worker that fails before its update, and then asks for a model."""
        begun_s, number, first_step = self.serving.begun_s[worker], self.round[worker], self.made[worker]
        lane, from_s = self.served.workers + worker, max(away.from_s, begun_s)
        self.round[worker] += 1
        program: list[Instruction] = [
            Compute(from_s - begun_s, step=first_step, what=LOST, effect=partial(self._failed, worker, away))
        ]
        word = Send(lane, 0.0, ("update", number), first_step, label="leaves" if math.isinf(away.back_s) else "is back")
        if math.isinf(away.back_s):
            return [*program, word]
        return [
            *program,
            Compute(away.back_s - from_s, step=first_step, what=AWAY),
            word,
            *self._waiting(worker, number, first_step),
        ]

    def _failed(self, worker: int, away: AbsencePeriod) -> None:
        self.fates.fail(worker, self.serving.begun_s[worker], away)
        self.serving.fail(worker, for_good=math.isinf(away.back_s))
        if self.serving.asleep:
            self.simulation.env.later(0.0, lambda _: self.serving.wake(), ARRIVALS)

    def _waiting(self, worker: int, number: int, last: int) -> list[Instruction]:
        """Return the instructions of a worker that waits for its next model."""

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
        """Return the server's instructions for a worker that has begun: take its update, then reply."""
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
        """Note an update; all updates of one instant are taken at its end, by worker."""
        if not self.arrived:
            self.simulation.env.later(0.0, self._take, ARRIVALS)
        self.arrived.append(worker)

    def _take(self, _: object) -> None:
        arrived, self.arrived = sorted(self.arrived), []
        self.serving.take(arrived)
