"""Asynchronous training simulated event by event: workers at their own pace, and servers that update their models.

Machines of workers may fail; `WorkerFailures` counts the lost steps, the absences and their costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from syncline.sim.failures.costs import FailureCosts, no_progress_line
from syncline.sim.failures.outages import AbsencePeriod, Absences
from syncline.sim.online.hierarchy import ARRIVALS, GATE, GatedSimulation, UpperServerPrograms, continue_with, gate
from syncline.sim.online.server_interface import (
    AsyncResult,
    EndSimulation,
    EventObserver,
    ServerSettings,
    ServerTopology,
)
from syncline.sim.online.server_policy import ServerPolicy, ServerState
from syncline.sim.program.instructions import Compute, Delay, Instruction, Recv, Send, Stuck, delay_at
from syncline.sim.program.timeline import Timeline

LOST, AWAY = "lost", "away"
"""Names of spans of failed workers in a timeline: steps that are lost, and absence."""


StepSeconds = Callable[[int, int], float]
"""A function of a worker and a step number, from 0, that returns the seconds of this local step."""


class WorkerFailures:
    """The failures of workers at their own pace, and the costs of these failures.

    Args:
        pace: seconds of each worker's steps.
        absences: absences of the workers; None: no machine fails.
    """

    def __init__(self, workers: int, pace: StepSeconds, absences: Absences | None) -> None:
        self.workers, self.pace, self.absences = workers, pace, absences
        self.lost_s, self.away_s = np.zeros(workers), np.zeros(workers)  # seconds of each worker's spans LOST and AWAY
        self.periods: list[AbsencePeriod] = []
        self.lost_steps = 0
        self.last_failure_s = 0.0

    def take_next_absence(self, worker: int, now_s: float, steps: range) -> AbsencePeriod | None:
        """Return the absence that keeps a worker from finishing steps that begin at ``now_s``, or None.

        The steps that the worker completes before the absence are counted in ``lost_steps``.
        """
        if self.absences is None:
            return None
        steps_s = [self.pace(worker, step) for step in steps]
        absence = self.absences.next_absence(worker, now_s, until_s=now_s + sum(steps_s))
        if absence is not None:
            trained_s = max(absence.from_s - now_s, 0.0)
            self.lost_steps += int(np.searchsorted(np.cumsum(steps_s), trained_s, side="right"))
        return absence

    def fail(self, worker: int, begun_s: float, absence: AbsencePeriod) -> None:
        """Count a failure of a worker's machine during the steps that the worker began at ``begun_s``."""
        from_s = max(absence.from_s, begun_s)  # the machine may have failed while the worker waited for the model
        self.lost_s[worker] += from_s - begun_s
        self.periods.append(AbsencePeriod(from_s, absence.back_s))
        self.last_failure_s = from_s
        if math.isfinite(absence.back_s):  # the timeline shows no span of an absence for good
            self.away_s[worker] += absence.back_s - from_s

    def costs(self, wall_s: float, steps: int, remaining_steps: int) -> FailureCosts | None:
        """Return the costs of failures in the whole training; None if no machine can fail.

        Args:
            wall_s: seconds of the training.
            steps: steps that all workers made together.
            remaining_steps: steps that were left undone, because no worker came back.
        """
        if self.absences is None:
            return None
        costs = FailureCosts(self.workers, wall_s, steps=steps / self.workers)
        costs.lost_s = float(self.lost_s.sum())
        for period in self.periods:
            if period.from_s < wall_s:  # an absence may begin or last after the end of the training
                costs.down_s += min(period.back_s, wall_s) - period.from_s
        costs.useful_s = self.workers * wall_s - costs.lost_s - costs.down_s
        costs.interruptions, costs.lost_steps = len(self.periods), self.lost_steps / self.workers
        if remaining_steps:
            costs.stuck = no_progress_line(self.last_failure_s)
        return costs


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
    """Simulate workers and their servers message by message, and return the result; the observer does the math.

    Updates and models are eager messages, as the messages of `syncline.sim.run_events`: they share channels max-min
    fairly. Within one instant the steps come first, in one fixed order; then the arrivals, by worker; then the replies.

    Args:
        pace: seconds of each worker's steps.
        topology: the network of the workers and of their servers' handlers.
        observer: observer of the events; None if only times are wanted.
        starts_s: beginning of each worker, ``(P,)`` seconds; 0 by default.
        delay: lateness of a message between places, as in `syncline.sim.run_events`.
        keep_steps: number of each worker's steps to keep in the timeline; None: all.
        absences: absences of workers whose machines fail. Such a worker loses its unsent steps, which the servers
            assign again; after its return the worker asks for a model. If the machine fails while the worker waits for
            a model, the absence begins when the model arrives.
    """
    simulation = _AsyncSimulation(settings, pace, observer=observer or EventObserver(), absences=absences)
    return simulation.run(topology, starts_s, delay, keep_steps)


class _AsyncSimulation:
    """The programs of P workers, the programs of servers, and the clock of the servers.

    Each worker has a *handler* at its server: a program that takes the worker's updates and sends models to the worker.
    Worker i's program has the number i in the simulation, and the program of its handler has the number P + i.
    """

    def __init__(
        self, settings: ServerSettings, pace: StepSeconds, observer: EventObserver, absences: Absences | None
    ) -> None:
        self.settings, self.pace, self.observer = settings, pace, observer
        workers = settings.workers
        self.failures = WorkerFailures(workers, pace, absences)
        self.policy = ServerPolicy(settings, observer, self)
        self.num_steps, self.num_updates = [0] * workers, [0] * workers
        self.arrivals: list[int] = []  # workers whose updates arrived at this instant
        upper = settings.hierarchy
        self.upper = None if upper is None else UpperServerPrograms(settings, upper, observer, self.policy)
        self.step_end_s: list[float] = []
        self.step_worker: list[int] = []

    def run(
        self, topology: ServerTopology, starts_s: Sequence[float] | None, delay: Delay | None, keep_steps: int | None
    ) -> AsyncResult:
        """Simulate until the server has taken all steps, and return the results."""
        workers, policy = self.settings.workers, self.policy
        first_workers = policy.assign_first_steps()

        program_starts_s = None
        if starts_s is not None:
            handler_starts_s = [0.0] * (topology.workers - workers)
            program_starts_s = [*starts_s, *handler_starts_s]  # in the order of `_programs`
            policy.begun_s = list(starts_s)
        if self.failures.absences is not None:  # workers without steps may get those of a failed worker
            policy.sleeping = {worker for worker in first_workers if not policy.assigned[worker]}
        programs = self._programs({*first_workers} - policy.sleeping)
        lateness = None if delay is None else delay_at(topology.places, delay)
        self.simulation = GatedSimulation(programs, topology, program_starts_s, eager=True, delay=lateness)
        if self.upper:
            self.upper.simulation = self.simulation
        interrupted = has_ended = False
        try:
            timeline = self.simulation.run()
            has_ended = True
        except (EndSimulation, KeyboardInterrupt) as end:
            timeline, interrupted = self.simulation.timeline(), isinstance(end, KeyboardInterrupt)
        except Stuck:
            # After failures, workers may have no steps left, and local servers may never fill their buffers.
            if self.failures.absences is None or not (policy.sleeping or self.upper):
                raise
            timeline, has_ended = self.simulation.timeline(), True
        return AsyncResult(
            step_end_s=np.array(self.step_end_s), step_worker=np.array(self.step_worker, dtype=np.int64),
            contributions=tuple(policy.contributions), versions=sum(server.versions for server in policy.servers),
            end_s=policy.end_s,
            compute_s=timeline.compute_s()[:workers] - (self.failures.lost_s + self.failures.away_s),
            wait_s=timeline.exposed_communication_s()[:workers],
            timeline=with_servers(timeline, self.settings, keep_steps), interrupted=interrupted,
            merges=tuple(self.upper.merges) if self.upper else (),
            failed=self.failures.costs(policy.end_s, len(self.step_end_s), policy.steps_left if has_ended else 0),
        )  # fmt: skip

    def _programs(self, working: set[int]) -> list[list[Instruction]]:
        """Return the programs of workers, then of their handlers, then those between local servers and the upper one.

        The workers in ``working`` begin with the first model; the others wait for a model.
        """
        programs: list[list[Instruction]] = []
        handlers: list[list[Instruction]] = []
        for worker in range(self.settings.workers):
            if worker in working:
                programs.append(self._work_program(worker))  # increments `num_updates` and `num_steps`
                update, last_step = self.num_updates[worker] - 1, self.num_steps[worker] - 1
                has_steps = self.policy.assigned[worker] > 0
                handlers.append(self._handler_program(worker, update, last_step) if has_steps else [])
            else:  # model ``update + 1`` has the number 0
                programs.append(self._await_model_program(worker, update=-1, last_step=-1))
                handlers.append(self._reply_program(worker, update=-1, last_step=-1))
        upper_programs = self.upper.programs() if self.upper else []
        return programs + handlers + upper_programs

    def _handler_number(self, worker: int) -> int:
        """Return the program number of a worker's handler; the programs of P workers come before."""
        return self.settings.workers + worker

    # The clock of the servers.

    def time_s(self) -> float:
        """Return the present time of the simulation: the seconds since its beginning."""
        return float(self.simulation.env.now)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function after ``seconds``, once the servers have taken the updates that arrive at that instant."""

        def take_and_call(_: object) -> None:
            """Take the updates that have arrived, then call the function."""
            if self.arrivals:
                self._take_arrivals()
            call()

        self.simulation.env.call_later(seconds, take_and_call, ARRIVALS)

    def release_model(self, worker: int) -> None:
        """Open the gate of a worker's handler, so that the handler sends the worker a model."""
        self.simulation.open_gate(self._handler_number(worker))

    def updates_taken(self, server: ServerState) -> None:
        """Send a local server's update to the upper server if it is due, after the server took all arrived updates."""
        if self.upper:
            self.upper.send_due(server)

    # Instructions and effects of a worker.

    def _work_program(self, worker: int) -> list[Instruction]:
        """Return the instructions of a worker that has a model: make steps, send an update, await the next model."""
        policy = self.policy
        steps, first_step, update = policy.assigned[worker], self.num_steps[worker], self.num_updates[worker]
        if not steps:  # none are left to assign
            return []
        absence = self.failures.take_next_absence(worker, policy.begun_s[worker], range(first_step, first_step + steps))
        if absence is not None:
            return self._failure_program(worker, absence)
        handler, last_step = self._handler_number(worker), first_step + steps - 1
        program: list[Instruction] = []
        for step in range(first_step, first_step + steps):
            end_step = partial(self._end_step, worker, step)
            program.append(Compute(self.pace(worker, step), step=step, effect=end_step))
        label = f"update {update}"
        program.append(Send(handler, self.settings.update_bytes, tag=("update", update), step=last_step, label=label))
        self.num_steps[worker] += steps
        self.num_updates[worker] += 1
        return program + self._await_model_program(worker, update, last_step)

    def _failure_program(self, worker: int, absence: AbsencePeriod) -> list[Instruction]:
        """Return the program of a worker that fails before it sends its update, comes back, and asks for a model."""
        begun_s = self.policy.begun_s[worker]
        update, first_step = self.num_updates[worker], self.num_steps[worker]
        self.num_updates[worker] += 1
        from_s = max(absence.from_s, begun_s)  # as in `WorkerFailures.fail`
        lost = Compute(from_s - begun_s, step=first_step, what=LOST, effect=partial(self._lose_steps, worker, absence))
        departs = math.isinf(absence.back_s)
        # The handler waits for the tag of the update, so a message without bytes takes the update's place.
        label = "leaves" if departs else "is back"
        notice = Send(self._handler_number(worker), nbytes=0.0, tag=("update", update), step=first_step, label=label)
        if departs:
            return [lost, notice]
        away = Compute(absence.back_s - from_s, step=first_step, what=AWAY)
        return [lost, away, notice, *self._await_model_program(worker, update, first_step)]

    def _lose_steps(self, worker: int, absence: AbsencePeriod) -> None:
        """Let a worker fail now: the policy takes its steps back, and wakes workers that sleep without steps."""
        self.failures.fail(worker, self.policy.begun_s[worker], absence)
        self.policy.fail(worker, for_good=math.isinf(absence.back_s))
        if self.policy.sleeping:
            # Other workers may fail at this instant, so wake the sleeping ones at its end.
            self.simulation.env.call_later(0.0, lambda _: self.policy.wake(), ARRIVALS)

    def _await_model_program(self, worker: int, update: int, last_step: int) -> list[Instruction]:
        """Return the instructions of a worker that waits for the model after an update, and then makes its steps."""

        def work() -> list[Instruction]:  # when the model has arrived
            self.policy.begun_s[worker] = self.simulation.now_s
            return self._work_program(worker)

        receive = Recv(self._handler_number(worker), ("model", update), last_step, label=f"model {update + 1}")
        return [receive, continue_with(work)]

    def _end_step(self, worker: int, step: int) -> None:
        """Record the end of a worker's local step, and let the observer do the step's math."""
        now_s = self.policy.end_s = self.simulation.now_s
        self.policy.sent_s[worker] = now_s  # the update leaves when the last of these steps ends
        self.step_end_s.append(now_s)
        self.step_worker.append(worker)
        self.observer.step(worker, step)

    # The server's handler for a worker.

    def _handler_program(self, worker: int, update: int, last_step: int) -> list[Instruction]:
        """Return the instructions of a handler that take a worker's update, of steps up to ``last_step``, and reply."""
        receive = Recv(worker, ("update", update), last_step, effect=partial(self._queue_arrival, worker))
        return [receive, *self._reply_program(worker, update, last_step)]

    def _reply_program(self, worker: int, update: int, last_step: int) -> list[Instruction]:
        """Return the instructions of a worker's handler that wait until the policy replies, and then send the model."""
        reply = gate(partial(self.policy.reply, worker), last_step)
        return [reply, continue_with(partial(self._send_model_program, worker, update, last_step))]

    def _send_model_program(self, worker: int, update: int, last_step: int) -> list[Instruction]:
        """Return the instructions of a handler that send a model and take the next update, if the worker has steps."""
        if worker in self.policy.departed:  # its handler ends
            return []
        steps = self.policy.assigned[worker]
        if not steps and self.failures.absences is not None:  # steps of a failed worker may come later
            self.policy.sleeping.add(worker)
            return self._reply_program(worker, update, last_step)
        send = Send(worker, self.settings.model_bytes, ("model", update), last_step, label=f"model {update + 1}")
        if not steps:
            return [send]
        return [send, *self._handler_program(worker, update + 1, last_step + steps)]

    def _queue_arrival(self, worker: int) -> None:
        """Add a worker's update to the arrivals; the servers take them at the end of this instant, by worker."""
        if not self.arrivals:  # the first of this instant
            self.simulation.env.call_later(0.0, self._take_arrivals, ARRIVALS)
        self.arrivals.append(worker)

    def _take_arrivals(self, _: object = None) -> None:
        """Let the servers take the updates that have arrived at this instant, by worker."""
        arrivals, self.arrivals = sorted(self.arrivals), []
        self.policy.take_updates(arrivals)


def with_servers(timeline: Timeline, settings: ServerSettings, keep_steps: int | None) -> Timeline:
    """Return the timeline of workers, and of the models and updates that servers send; each server is a row.

    A server has a stream for each receiver. The last row is the only server, or the upper server.
    """
    workers, groups = settings.workers, settings.groups
    spans = timeline[((timeline.worker < workers) | (timeline.what == "send")) & (timeline.what != GATE)]
    if keep_steps is not None:
        spans = spans.head(keep_steps)

    last_server = workers + len(groups)
    local_servers = range(workers, last_server)
    server_of_worker = np.repeat(local_servers, groups).tolist() if groups else [last_server] * workers
    # Row and stream of each program after those of the workers, in the order of `_AsyncSimulation._programs`.
    handlers = [(server, f"send to {worker}") for worker, server in enumerate(server_of_worker)]
    handlers += [(server, "send up") for server in local_servers]
    handlers += [(last_server, f"send to server {number}") for number in range(len(groups))]
    rows, streams = [], []
    for program, stream in zip(spans.worker.tolist(), spans.stream.tolist(), strict=True):
        row_and_stream = (program, stream) if program < workers else handlers[program - workers]
        rows.append(row_and_stream[0])
        streams.append(row_and_stream[1])
    columns = dict(spans.columns()) | {"worker": rows, "stream": streams}
    return Timeline.from_columns(columns, last_server + 1)
