"""What a server writes down, line by line, and the training that it adds up to."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from syncline.experiments.launching.parts import in_lanes, lines_of
from syncline.sim import Span, Timeline
from syncline.sim.failures.outcome import FailureCosts
from syncline.sim.online.served import Contribution, PlayedApart
from syncline.training import History, diverged_at

if TYPE_CHECKING:
    from syncline.specs import RunSpec

FILE = "server.jsonl"


class Telling(Protocol):
    """Who knows what time it is."""

    place: int

    def time_s(self) -> float:
        """Seconds from the beginning."""


class Written:
    """The server's file: what it has heard and done outlives it, however it ends."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / FILE).open("a", encoding="utf-8", buffering=1)

    def line(self, fields: dict[str, Any]) -> None:
        """Facts, an evaluation, a worker's letter without its tensors, or the end."""
        self._file.write(json.dumps(fields, separators=(",", ":"), default=list) + "\n")

    def event(self, event: str, at: Telling, **fields: Any) -> None:
        """Something that happened, when, and after which of all steps."""
        self.line({"event": event, "at_s": at.time_s(), "place": at.place, **fields})


@dataclass
class ServerLines:
    """What a server's file says.

    Attributes:
        facts: what was known before the first step; empty if it had not begun.
        letters: of workers, without their tensors, in the order in which they were taken.
        evaluations: of the model.
        events: what happened, in order.
        end: what was said in the end; empty if it did not come to that.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    letters: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> ServerLines:
        """Read them."""
        out = cls()
        for line in lines_of(folder / FILE) if (folder / FILE).exists() else ():
            if "event" in line:
                out.events.append(line)
            elif "steps" in line:
                out.letters.append(line)
            elif "evaluated" in line:
                out.evaluations.append(line)
            elif "versions" in line:
                out.end = line
            else:
                out.facts |= line
        return out

    def named(self, event: str) -> list[dict[str, Any]]:
        """The events of a name."""
        return [one for one in self.events if one["event"] == event]

    def steps(self) -> list[Step]:
        """All that have arrived, in their order."""
        found = []
        for letter in self.letters:
            for (number, place, counted, begun_ns, ended_ns), loss in zip(
                letter["steps"], letter["losses"], strict=True
            ):
                found.append(Step(letter["worker"], number, place, counted, begun_ns, ended_ns, loss))
        return sorted(found, key=lambda step: step.place)


class Step(NamedTuple):
    """A local step that has arrived.

    Attributes:
        worker: whose.
        number: of it among its worker's, from 0: which data it saw.
        place: of it among all that were drawn.
        counted: of it among all that were not known to be lost: what schedules go by.
        begun_ns: when.
        ended_ns: when.
        loss: of each seed.
    """

    worker: int
    number: int
    place: int
    counted: int
    begun_ns: int
    ended_ns: int
    loss: list[float]


def order_columns(lines: ServerLines) -> dict[str, list[Any]]:
    """What happened, as a table: steps that arrived where they fall among what the server did.

    Columns: ``event``, ``worker``, ``value`` (of a step its number, of an arrival the update's age, of a version its
    updates, of a failure the steps that were lost), ``count`` (of a step) and ``at_s``; null where there is none.
    """
    values = {"arrive": "age", "version": "count", "fail": "lost"}
    steps, rows, at = lines.steps(), list[tuple[Any, ...]](), 0
    zero_ns = lines.facts["zero_ns"]

    def stepped(before: float) -> None:
        nonlocal at
        while at < len(steps) and steps[at].place < before:
            step = steps[at]
            rows.append(("step", step.worker, step.number, step.counted, (step.ended_ns - zero_ns) / 1e9))
            at += 1

    for one in lines.events:
        if one["event"] in ("arrive", "version", "reply", "fail"):
            stepped(one["place"])
            name = values.get(one["event"])
            rows.append((one["event"], one.get("worker"), one[name] if name else None, None, one["at_s"]))
    stepped(math.inf)
    names = ("event", "worker", "value", "count", "at_s")
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def played_of(lines: ServerLines, spec: RunSpec, steps: int) -> PlayedApart:
    """Who came when, as measured: seconds from when all had come."""
    found, workers, zero_ns = lines.steps(), spec.workers, lines.facts["zero_ns"]
    ended = sorted((step.ended_ns, step.worker) for step in found)
    contributions: list[Contribution] = []
    last: dict[int, int] = {}
    for one in lines.events:
        if one["event"] == "arrive":
            last[one["worker"]] = len(contributions)
            contributions.append(Contribution(**{name: one[name] for name in KNOWN}, replied_s=math.nan))
        elif one["event"] == "reply" and one["worker"] in last:
            at = last[one["worker"]]
            contributions[at] = contributions[at]._replace(replied_s=one["at_s"])
    timeline = _timeline(lines, workers)
    own = timeline[timeline.worker < workers]
    computing, waiting = np.zeros(workers), np.zeros(workers)
    np.add.at(computing, own.worker[own.what == "compute"], own.duration_s[own.what == "compute"])
    np.add.at(waiting, own.worker[own.what == "recv"], own.duration_s[own.what == "recv"])
    done_s = [(ns - zero_ns) / 1e9 for ns, _ in ended]
    versions = lines.named("version")
    end_s = max([one["at_s"] for one in versions[-1:]] + done_s[-1:], default=0.0)
    return PlayedApart(
        np.array(done_s),
        np.array([worker for _, worker in ended], dtype=np.int64),
        tuple(contributions),
        len(versions),
        end_s,
        computing,
        waiting,
        timeline,
        failed=_costs(lines, spec, end_s, steps),
    )


KNOWN = ("worker", "steps", "begun_s", "sent_s", "arrived_s", "model", "version", "age")
"""Of an arrival, what is known when it comes."""


def _costs(lines: ServerLines, spec: RunSpec, wall_s: float, steps: int) -> FailureCosts:
    """What it cost that processes died."""
    told = FailureCosts(spec.workers, wall_s, steps)
    since: dict[int, float] = {}  # since when each has steps that have not arrived
    down: dict[int, float] = {}
    for one in lines.events:
        worker, at_s = one.get("worker", -1), one["at_s"]
        if one["event"] == "sent":
            since[worker] = at_s
        elif one["event"] == "arrive":
            since.pop(worker, None)
        elif one["event"] == "join" and worker in down:
            told.down_s += at_s - down.pop(worker)
        elif one["event"] == "fail" and worker not in down:
            told.interruptions += 1
            told.lost_steps += one["lost"] / spec.workers
            told.lost_s += at_s - since.pop(worker, at_s)
            down[worker] = at_s
    told.down_s += sum(max(wall_s - from_s, 0.0) for from_s in down.values())
    told.useful_s = max(spec.workers * wall_s - told.lost_s - told.down_s, 0.0)
    told.stuck = lines.end.get("stuck")
    return told


def _timeline(lines: ServerLines, workers: int) -> Timeline:
    """What each did whose steps have arrived, and what the server sent."""
    zero_ns = lines.facts["zero_ns"]
    spans = [
        Span(letter["worker"], stream, what, label, (start - zero_ns) / 1e9, (end - zero_ns) / 1e9, nbytes, step)
        for letter in lines.letters
        for stream, what, label, start, end, nbytes, step in in_lanes(letter["laps"])
    ]
    spans += [
        Span(
            workers, f"send to {one['worker']}", "send", f"model {one['model']}", one["start_s"], one["at_s"],
            lines.facts["model_bytes"], one["first"],
        )
        for one in lines.named("sent")
    ]  # fmt: skip
    return Timeline.of(spans, workers + 1)


def history_of(lines: ServerLines, spec: RunSpec, interrupted: bool) -> History:
    """Losses of P steps of whichever workers each, and what was evaluated."""
    losses = np.array([step.loss for step in lines.steps()]).reshape(-1, len(spec.seeds))
    steps = len(losses) // spec.workers
    evaluations = [line for line in lines.evaluations if line["evaluated"] <= steps]
    names = evaluations[0]["metrics"] if evaluations else ()
    history = History(
        seeds=spec.seeds,
        steps=steps,
        loss=losses[: steps * spec.workers].reshape(steps, spec.workers, len(spec.seeds)).mean(1),
        trace={},
        eval_step=np.array([line["evaluated"] for line in evaluations], dtype=np.int64),
        evaluation={name: np.array([line["metrics"][name] for line in evaluations]) for name in names},
        diverged_at=(),
        interrupted=interrupted,
    )
    history.diverged_at = diverged_at(history)
    return history
