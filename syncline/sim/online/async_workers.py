"""Asynchronous training simulated event by event: workers at their own pace, and servers that update their models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from simpy.events import EventPriority

from syncline.sim.failures.roster import AbsencePeriod, Absences
from syncline.sim.online.gates import GATE, GatedSimulation, gate
from syncline.sim.online.hierarchy import UpperServerPrograms
from syncline.sim.online.server_channels import ServerTopology
from syncline.sim.online.server_interface import AsyncResult, EndSimulation, EventObserver, ServerSettings
from syncline.sim.online.server_policy import ServerPolicy, ServerState
from syncline.sim.online.worker_failures import AWAY, LOST, WorkerFailures
from syncline.sim.program.instructions import Compute, Delay, First, Instruction, Recv, Send, Stuck
from syncline.sim.program.timeline import Timeline, Words

ARRIVALS = EventPriority(10)
"""Priority of arrivals: servers take them after all of one instant have come, and before replies."""

StepSeconds = Callable[[int, int], float]
"""A function of a worker and a step number, from 0, that returns the seconds of that local step."""


def simulate_async_workers(
    settings: ServerSettings,
    pace: StepSeconds,
    topology: ServerTopology,
    observer: EventObserver | None = None,
    *,
    starts_s: Sequence[float] | None = None,
    delay: Delay | None = None,
    keep_steps: int | None = None,
    absences: Absences | None = None,
) -> AsyncResult:
    """Simulate workers and their servers message by message, and report the events to an observer in their order.

    Updates and models are eager messages, as those of `syncline.sim.run_events`: they share channels max-min fairly.
    Within one instant the steps come first, in one fixed order; then the arrivals, by worker; then the replies.

    Args:
        settings: settings of the workers and servers.
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
    simulation = _AsyncSimulation(settings, pace, observer or EventObserver(), absences)
    return simulation.run(topology, starts_s, delay, keep_steps)


class _AsyncSimulation:
    """The programs of workers and of the server's lane of each, and the clock of the servers."""

    def __init__(
        self, settings: ServerSettings, pace: StepSeconds, observer: EventObserver, absences: Absences | None
    ) -> None:
        self.settings, self.pace, self.observer = settings, pace, observer
        workers = settings.workers
        self.failures = WorkerFailures(workers, pace, absences)
        self.policy = ServerPolicy(settings, observer, self)
        self.made, self.round = [0] * workers, [0] * workers
        self.arrived: list[int] = []  # workers whose updates arrived at this instant
        above = settings.hierarchy
        self.above = None if above is None else UpperServerPrograms(settings, above, observer, self.policy)
        self.step_end_s: list[float] = []
        self.step_worker: list[int] = []

    def run(
        self, topology: ServerTopology, starts_s: Sequence[float] | None, delay: Delay | None, keep_steps: int | None
    ) -> AsyncResult:
        """Run to the end and return the results."""
        workers, policy = self.settings.workers, self.policy
        first_workers = policy.begin()
        lateness = None if delay is None else lambda a, b: delay(topology.place_of(a), topology.place_of(b))
        begins = None if starts_s is None else [*starts_s, *[0.0] * len(topology.places)]
        policy.begun_s = [0.0] * workers if starts_s is None else list(starts_s)
        if self.failures.absences is not None:
            policy.asleep = {m for m in first_workers if not policy.assigned[m]}
        begin = [m in first_workers and m not in policy.asleep for m in range(workers)]
        programs = [self._work(m) if begin[m] else self._waiting(m, -1, -1) for m in range(workers)]
        for m in range(workers):  # the server's lanes: workers that have begun send an update first
            if not begin[m]:
                programs.append(self._replying(m, -1, -1))
            else:
                programs.append(self._taking(m, self.round[m] - 1, self.made[m] - 1) if policy.assigned[m] else [])
        programs += self.above.programs() if self.above else []
        self.simulation = GatedSimulation(programs, topology, begins, True, lateness)
        if self.above:
            self.above.simulation = self.simulation
        interrupted = has_ended = False
        try:
            timeline = self.simulation.run()
            has_ended = True
        except (EndSimulation, KeyboardInterrupt) as end:
            timeline, interrupted = self.simulation.timeline(), isinstance(end, KeyboardInterrupt)
        except Stuck:
            # Nothing else comes for sleeping workers, nor for a local server whose workers are gone for good: it
            # keeps the updates that fill no version.
            if self.failures.absences is None or not (policy.asleep or self.above):
                raise
            timeline, has_ended = self.simulation.timeline(), True
        return AsyncResult(
            np.array(self.step_end_s),
            np.array(self.step_worker, dtype=np.int64),
            tuple(policy.contributions),
            sum(server.versions for server in policy.servers),
            policy.end_s,
            timeline.compute_s()[:workers] - self.failures.not_computing_s(),
            timeline.exposed_communication_s()[:workers],
            with_servers(timeline, self.settings, keep_steps),
            interrupted,
            tuple(self.above.merges) if self.above else (),
            self.failures.outcome(policy.end_s, len(self.step_end_s), policy.steps_left if has_ended else 0),
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
        self.simulation.open_gate(self.settings.workers + worker)

    def updates_taken(self, server: ServerState) -> None:
        """Send the update that is due above."""
        if self.above:
            self.above.send_due(server)

    # Instructions and effects of a worker.

    def _work(self, worker: int) -> list[Instruction]:
        """Return the instructions of a worker that has a model."""
        policy = self.policy
        steps, first_step, number = policy.assigned[worker], self.made[worker], self.round[worker]
        if not steps:
            return []
        away = self.failures.next_of(worker, policy.begun_s[worker], range(first_step, first_step + steps))
        if away is not None:
            return self._failing(worker, away)
        lane, last = self.settings.workers + worker, first_step + steps - 1
        program: list[Instruction] = [
            Compute(self.pace(worker, t), step=t, effect=partial(self._stepped, worker, t))
            for t in range(first_step, first_step + steps)
        ]
        program.append(Send(lane, self.settings.update_bytes, ("update", number), last, label=f"update {number}"))
        self.made[worker] += steps
        self.round[worker] += 1
        return program + self._waiting(worker, number, last)

    def _failing(self, worker: int, away: AbsencePeriod) -> list[Instruction]:
        """Return the instructions of a worker that fails before its update, and then asks for a model."""
        begun_s, number, first_step = self.policy.begun_s[worker], self.round[worker], self.made[worker]
        lane, from_s = self.settings.workers + worker, max(away.from_s, begun_s)
        self.round[worker] += 1
        program: list[Instruction] = [
            Compute(from_s - begun_s, step=first_step, what=LOST, effect=partial(self._failed, worker, away))
        ]
        is_lost = math.isinf(away.back_s)
        notice = Send(lane, 0.0, ("update", number), first_step, label="leaves" if is_lost else "is back")
        if is_lost:
            return [*program, notice]
        absence = Compute(away.back_s - from_s, step=first_step, what=AWAY)
        return [*program, absence, notice, *self._waiting(worker, number, first_step)]

    def _failed(self, worker: int, away: AbsencePeriod) -> None:
        self.failures.fail(worker, self.policy.begun_s[worker], away)
        self.policy.fail(worker, for_good=math.isinf(away.back_s))
        if self.policy.asleep:
            self.simulation.env.later(0.0, lambda _: self.policy.wake(), ARRIVALS)

    def _waiting(self, worker: int, number: int, last: int) -> list[Instruction]:
        """Return the instructions of a worker that waits for its next model."""

        def work(_: int) -> list[Instruction]:
            self.policy.begun_s[worker] = self.simulation.now_s
            return self._work(worker)

        lane = self.settings.workers + worker
        return [Recv(lane, ("model", number), last, label=f"model {number + 1}"), First([None], work)]

    def _stepped(self, worker: int, number: int) -> None:
        self.policy.end_s = self.policy.sent_s[worker] = now_s = self.simulation.now_s
        self.step_end_s.append(now_s)
        self.step_worker.append(worker)
        self.observer.step(worker, number)

    # The server's lane of a worker.

    def _taking(self, worker: int, number: int, last: int) -> list[Instruction]:
        """Return the instructions that take an update whose last step is ``last``, and reply."""
        recv = Recv(worker, ("update", number), last, partial(self._arrived, worker))
        return [recv, *self._replying(worker, number, last)]

    def _replying(self, worker: int, number: int, last: int) -> list[Instruction]:
        """Return the instructions that wait for the policy's reply, and then send the model."""
        reply = gate(partial(self.policy.replied, worker), last)
        return [reply, First([None], lambda _: self._giving(worker, number, last))]

    def _giving(self, worker: int, number: int, last: int) -> list[Instruction]:
        if worker in self.policy.gone:
            return []
        if not self.policy.assigned[worker] and self.failures.absences is not None:
            self.policy.asleep.add(worker)
            return self._replying(worker, number, last)
        send = Send(worker, self.settings.model_bytes, ("model", number), last, label=f"model {number + 1}")
        more = self.policy.assigned[worker]
        return [send, *(self._taking(worker, number + 1, last + more) if more else [])]

    def _arrived(self, worker: int) -> None:
        """Note an update; all updates of one instant are taken at its end, by worker."""
        if not self.arrived:
            self.simulation.env.later(0.0, self._take, ARRIVALS)
        self.arrived.append(worker)

    def _take(self, _: object) -> None:
        arrived, self.arrived = sorted(self.arrived), []
        self.policy.take(arrived)


def with_servers(timeline: Timeline, settings: ServerSettings, keep_steps: int | None) -> Timeline:
    """Return the timeline with the lanes as further workers, one per server, with only their sends.

    Each server has a stream for each receiver; the last worker is the only server or the server above.
    """
    workers, groups = settings.workers, settings.groups
    shown = (timeline.worker < workers) | (timeline.what == "send")
    shown &= timeline.what != GATE
    spans = timeline[shown] if keep_steps is None else timeline[shown].head(keep_steps)
    local = [workers + s for s in range(len(groups))]
    last = workers + len(groups)
    worker_of = [*range(workers)]
    worker_of += [server for server, size in zip(local, groups, strict=True) for _ in range(size)] + local
    worker_of += [last] * (len(groups) or workers)
    stream_names = [f"send to {m}" for m in range(workers)] + ["send up"] * len(groups)
    stream_names += [f"send to server {s}" for s in range(len(groups))]
    columns: dict[str, Any] = dict(spans.columns())
    lanes = (spans.worker - workers).tolist()
    columns["stream"] = Words.from_words(
        stream if lane < 0 else stream_names[lane] for stream, lane in zip(spans.stream.tolist(), lanes, strict=True)
    )
    columns["worker"] = np.array(worker_of, dtype=np.int64)[spans.worker]
    return Timeline.from_columns(columns, last + 1)
