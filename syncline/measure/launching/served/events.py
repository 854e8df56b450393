"""The lines that a server writes, the training that they add up to, and the same training by the simulator.

`train_in_order` trains in one process with the updates in the order in which those of real processes arrived.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from syncline.comm.devices import training_device
from syncline.measure.launching.rank_files import lines_of, measured_history, spans_from_laps
from syncline.problems import Problem, Rows, Task
from syncline.runs.training.async_training import AsyncWorkers
from syncline.runs.training.trained import build_task
from syncline.sim import Span, Timeline
from syncline.sim.failures.costs import FailureCosts
from syncline.sim.online.server_interface import AsyncResult, Contribution
from syncline.specs import RunSpec, load_spec
from syncline.training import History, Recorder

SERVER_FILE = "server.jsonl"
"""The server's file, with lines of facts, evaluations, workers' reports without their tensors, events, and the end."""


@dataclass
class ServerLines:
    """The content of a server's file.

    Attributes:
        facts: facts known before the first step; empty if the training had not started.
        reports: reports of workers, without their tensors, in the order of their arrival; see `RoundReport`.
        events: joins, arrivals, versions, replies, sent models and failures, in order.
        end: the last line, with the number of versions; empty if the training did not finish.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_folder(cls, folder: Path) -> ServerLines:
        """Read the server's file of a folder, in which each kind of line has a field that no other kind has."""
        lines = cls()
        for line in lines_of(folder / SERVER_FILE):
            if "event" in line:
                lines.events.append(line)
            elif "steps" in line:
                lines.reports.append(line)
            elif "evaluated" in line:
                lines.evaluations.append(line)
            elif "versions" in line:
                lines.end = line
            else:
                lines.facts |= line
        return lines

    def events_named(self, event: str) -> list[dict[str, Any]]:
        """Return the events with this name, in order."""
        return [line for line in self.events if line["event"] == event]

    def steps(self) -> list[Step]:
        """Return all steps whose reports have arrived, in the order in which workers began them."""
        arrived = []
        for report in self.reports:
            for step_fields, loss in zip(report["steps"], report["losses"], strict=True):
                arrived.append(Step._make([report["worker"], *step_fields, loss]))
        return sorted(arrived, key=lambda step: step.begun_before)


class Step(NamedTuple):
    """A local step that has arrived.

    Attributes:
        number: number of the step among its worker's, from 0: it decides the data.
        begun_before: number of the step among the steps of all workers, see `StepNumber`.
        not_lost_before: the same without lost steps, see `StepNumber`.
    """

    worker: int
    number: int
    begun_before: int
    not_lost_before: int
    begun_ns: int
    ended_ns: int
    loss: list[float]


def order_columns(lines: ServerLines) -> dict[str, list[Any]]:
    """Return the server's events and the arrived steps, in their order, as columns of a table.

    Columns: ``event``, ``worker``, ``value`` (the number of a step, the age of an arrived update, the number of updates
    of a version, or the number of steps that a failure lost), ``count`` (for a step, its ``not_lost_before``) and
    ``at_s``; null without a value.
    """
    field_of_value = {"arrive": "age", "version": "count", "fail": "lost", "reply": ""}  # a reply has no value
    rows: list[tuple[int, tuple[Any, ...]]] = []  # number of steps that began before a row, and its columns
    for event in lines.events:
        name = event["event"]
        if name in field_of_value:
            value = event.get(field_of_value[name])
            rows.append((event["steps_before"], (name, event.get("worker"), value, None, event["at_s"])))
    for step in lines.steps():
        at_s = (step.ended_ns - lines.facts["zero_ns"]) / 1e9
        rows.append((step.begun_before, ("step", step.worker, step.number, step.not_lost_before, at_s)))
    rows.sort(key=lambda row: row[0])  # the sort is stable, so that an event precedes the step that begins after it
    names = ("event", "worker", "value", "count", "at_s")
    return {name: [columns[index] for _, columns in rows] for index, name in enumerate(names)}


def measured_result(lines: ServerLines, spec: RunSpec, steps: int) -> AsyncResult:
    """Return the measured steps and updates in the form of a simulated result, in seconds since all workers joined.

    ``steps``: completed steps of the training; each consists of a local step of every worker.
    """
    workers, zero_ns = spec.workers, lines.facts["zero_ns"]
    step_ends = sorted((step.ended_ns, step.worker) for step in lines.steps())
    contributions: list[Contribution] = []
    last_index: dict[int, int] = {}  # by worker: index of its last contribution
    for event in lines.events:
        if event["event"] == "arrive":
            last_index[event["worker"]] = len(contributions)
            contributions.append(Contribution(**{name: event[name] for name in KNOWN_AT_ARRIVAL}, replied_s=math.nan))
        elif event["event"] == "reply" and event["worker"] in last_index:  # it answers the worker's last update
            index = last_index[event["worker"]]
            contributions[index] = contributions[index]._replace(replied_s=event["at_s"])

    timeline = _timeline(lines, workers)
    worker_spans = timeline[timeline.worker < workers]
    computing_s, waiting_s = np.zeros(workers), np.zeros(workers)
    for activity, seconds in (("compute", computing_s), ("recv", waiting_s)):
        spans = worker_spans[worker_spans.what == activity]
        np.add.at(seconds, spans.worker, spans.duration_s)

    done_s = [(end_ns - zero_ns) / 1e9 for end_ns, _ in step_ends]
    step_workers = np.array([worker for _, worker in step_ends], dtype=np.int64)
    versions = lines.events_named("version")
    end_s = max(versions[-1]["at_s"] if versions else 0.0, done_s[-1] if done_s else 0.0)
    return AsyncResult(
        np.array(done_s), step_workers, contributions=tuple(contributions), versions=len(versions), end_s=end_s,
        compute_s=computing_s, wait_s=waiting_s, timeline=timeline,
        failed=_failure_costs(lines, spec, wall_s=end_s, steps=steps),
    )  # fmt: skip


KNOWN_AT_ARRIVAL = ("worker", "steps", "begun_s", "sent_s", "arrived_s", "model", "version", "age")
"""Fields of a `Contribution` that are known when it arrives."""


def _failure_costs(lines: ServerLines, spec: RunSpec, wall_s: float, steps: int) -> FailureCosts:
    """Return the costs of worker failures in a training of ``steps`` steps: steps and seconds lost, seconds down."""
    costs = FailureCosts(spec.workers, wall_s, steps)
    model_sent_s: dict[int, float] = {}  # by worker, until its update arrives
    down_since_s: dict[int, float] = {}
    for event in lines.events:
        worker, at_s = event.get("worker"), event["at_s"]
        if worker is None:  # a version
            continue
        if event["event"] == "sent":
            model_sent_s[worker] = at_s
        elif event["event"] == "arrive":
            model_sent_s.pop(worker, None)
        elif event["event"] == "join" and worker in down_since_s:  # a worker's first join is no return
            costs.down_s += at_s - down_since_s.pop(worker)
        elif event["event"] == "fail" and worker not in down_since_s:
            costs.interruptions += 1
            costs.lost_steps += event["lost"] / spec.workers  # a training step has a local step of every worker
            costs.lost_s += at_s - model_sent_s.pop(worker, at_s)
            down_since_s[worker] = at_s
    # A worker may fail after the last step, at `wall_s`.
    costs.down_s += sum(max(wall_s - from_s, 0.0) for from_s in down_since_s.values())
    costs.useful_s = max(spec.workers * wall_s - costs.lost_s - costs.down_s, 0.0)
    costs.stuck = lines.end.get("stuck")
    return costs


def _timeline(lines: ServerLines, workers: int) -> Timeline:
    """Return the spans of all workers whose steps have arrived, and of the server's sends."""
    zero_ns = lines.facts["zero_ns"]
    spans = [span for report in lines.reports for span in spans_from_laps(report["laps"], report["worker"], zero_ns)]
    server = workers  # the server's number on the timeline
    spans += [
        Span(
            server, f"send to {event['worker']}", what="send", label=f"model {event['model']}",
            start_s=event["start_s"], end_s=event["at_s"],
            nbytes=lines.facts["model_bytes"], step=event["first"],  # the worker's next step
        )
        for event in lines.events_named("sent")
    ]  # fmt: skip
    return Timeline.from_spans(spans, workers + 1)


def history_of(lines: ServerLines, spec: RunSpec, interrupted: bool) -> History:
    """Return the history of a training: evaluations, and losses, each a mean over P steps of any workers in order."""
    losses = np.array([step.loss for step in lines.steps()]).reshape(-1, len(spec.seeds))
    steps = len(losses) // spec.workers
    losses_by_round = losses[: steps * spec.workers].reshape(steps, spec.workers, len(spec.seeds))
    return measured_history(spec.seeds, losses_by_round.mean(1), lines.evaluations, interrupted)


def train_in_order(spec: RunSpec, order: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Tensor], History]:
    """Train in the recorded order of `order_columns`; return the server's parameters, ``(S, *s)``, and the history."""
    torch.set_num_threads(spec.threads)
    device, recorder = training_device(spec.device), Recorder()

    def build(rows: Rows, problem: Problem) -> Task:
        return build_task(problem, rows, device, **spec.arithmetic)

    method = spec.method.in_precision(spec.number_format)
    workers = AsyncWorkers(spec, method, build, recorder, on_step=lambda done: None)
    workers.evaluate(num_steps=0)
    rows = zip(*(order[name] for name in ("event", "worker", "value", "count")), strict=True)
    for event, worker, value, count in rows:
        if event == "step":
            workers.make_step(int(worker), int(value), lr_step=int(count))
        elif event == "arrive":
            workers.arrive(int(worker), age=int(value))
        elif event == "version":
            workers.version(count=int(value), server=0)  # the only server
        elif event == "reply":
            workers.reply(int(worker))
        else:
            workers.fail(int(worker))
    done = workers.num_local_steps // spec.workers
    if recorder.eval_step[-1] != done:
        workers.evaluate(done)
    parameters = {name: p.detach().cpu() for name, p in workers.server_task.params.items()}
    return parameters, recorder.history(spec.seeds)


def replay_folder(folder: Path) -> tuple[dict[str, Tensor], History]:
    """Train in this process, with the steps and updates in the order that ``syncline launch`` recorded."""
    spec = load_spec(folder / "spec.yaml", {}, RunSpec)  # {}: no changes of fields
    assert isinstance(spec, RunSpec)
    return train_in_order(spec, pq.read_table(folder / "order.parquet").to_pydict())
