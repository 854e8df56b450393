"""Records on the clock: what a mean step goes into, losses by step, which line of the script waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline.analysis import time_to_target_s
from syncline.backend.tracing.record import Lost, MessageAwaited, MessageSent, RankRecord, Started, Stepped
from syncline.costmodel import Call, Network
from syncline.costmodel.network.paths import Floats
from syncline.experiments.tracing.replay import Replayed
from syncline.sim import Clock, Timeline
from syncline.sim.timeline import WAITING


class TraceRecord(NamedTuple):
    """A record with its name.

    Attributes:
        name: of the script, as rows call it.
        ranks: what each did.
        folder: where it is kept, for people.
    """

    name: str
    ranks: Sequence[RankRecord]
    folder: str = ""

    @property
    def steps(self) -> int:
        """Of the rank that has most."""
        return max((rank.steps for rank in self.ranks), default=0)


class Window(NamedTuple):
    """The steps that a mean step is one of: those after the first, which has all that comes before it.

    Attributes:
        first: from this step on.
        last: to the one before this.
    """

    first: int
    last: int

    @classmethod
    def of(cls, steps: int) -> Window:
        """Of so many steps; of one all of it."""
        return cls(min(1, steps - 1), steps) if steps else cls(0, 1)

    @property
    def steps(self) -> int:
        """How many."""
        return self.last - self.first

    def of_timeline(self, timeline: Timeline) -> Timeline:
        """The spans of these steps; of a single one all spans."""
        if self.first == 0:
            return timeline
        return timeline[(timeline.step >= self.first) & (timeline.step < self.last)]


def clock_of(record: TraceRecord, played: Replayed) -> Clock:
    """What a mean step of a replay goes into; the mean is over the steps after the first."""
    ranks, timeline = record.ranks, played.timeline
    window = Window.of(record.steps)
    inside = window.of_timeline(timeline)
    per_step = 1 / (len(ranks) * window.steps)
    wall_s = timeline.makespan_s
    ends = np.zeros(len(ranks))
    np.maximum.at(ends, timeline.worker, timeline.end_s)
    whole = window.first == 0
    step_s = wall_s if whole else float(played.step_end_s[-1] - played.step_end_s[0]) / window.steps
    sent = bytes_by_step(record)
    return Clock(
        step_end_s=played.step_end_s,
        end_s=ends,
        step_time_s=step_s,
        compute_s=float(inside.compute_s().sum()) * per_step,
        encode_s=0.0,
        trigger_s=0.0,
        optimizer_s=0.0,
        communication_s=float(inside.communication_s().sum()) * per_step,
        exposed_communication_s=float(inside.exposed_communication_s().sum()) * per_step,
        bytes_per_worker=float(sent.sum() if whole else sent[window.first : window.last].sum()) / window.steps,
        wall_s=wall_s,
        evaluator="events",
        timeline=timeline,
    )


def bytes_by_step(record: TraceRecord) -> Floats:
    """Payload bytes that a worker hands over in each step, mean over the workers; at the end what comes after."""
    sent = np.zeros(record.steps + 1)
    for rank in record.ranks:
        for step, event in rank.by_step():
            if isinstance(event, Started | MessageSent):
                sent[step] += event.payload_bytes
    return sent / len(record.ranks)


def losses_by_step(record: TraceRecord) -> Floats:
    """The loss of each step, ``(T,)``: mean over its backward passes, then over the ranks that have one; else NaN."""
    total, ranks = np.zeros(record.steps), np.zeros(record.steps)
    for rank in record.ranks:
        own = list[float]()
        for step, event in rank.by_step():
            if isinstance(event, Lost):
                own.append(event.loss)
            elif isinstance(event, Stepped) and own:
                total[step] += float(np.mean(own))
                ranks[step] += 1
                own = []
    return np.divide(total, ranks, out=np.full(record.steps, np.nan), where=ranks > 0)


def trailing_means(losses: Floats) -> Floats:
    """Of each step the mean loss of the last tenth of all steps until then, those without one left out.

    >>> trailing_means(np.array([4.0, 2.0, np.nan])).tolist()
    [4.0, 2.0, nan]
    """
    width = max(1, len(losses) // 10)
    known = np.isfinite(losses)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, losses, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    ends = np.arange(1, len(losses) + 1)
    begins = np.maximum(ends - width, 0)
    number = counts[ends] - counts[begins]
    return np.divide(sums[ends] - sums[begins], number, out=np.full(len(losses), np.nan), where=number > 0)


def loss_reached_s(clock: Clock, losses: Floats, target: float | None) -> float:
    """When the trailing mean of the losses first reached the target; infinite if never."""
    if target is None:
        return np.inf
    known = np.isfinite(losses)
    return time_to_target_s(clock.step_end_s[known], trailing_means(losses)[known], target)


def reachable_loss(records: Iterable[Floats]) -> float | None:
    """The highest final loss of those that ended below where they began, by trailing means."""
    means = [mean[np.isfinite(mean)] for mean in map(trailing_means, records)]
    learned = [float(mean[-1]) for mean in means if len(mean) and mean[-1] < mean[0]]
    return max(learned) if learned else None


def ledger_of(record: TraceRecord) -> list[Call]:
    """Each collective and message once, by the first rank that has it, in the order of the ranks' programs."""
    whole, seen, calls = tuple(range(len(record.ranks))), set[Any](), list[Call]()
    for own, rank in enumerate(record.ranks):
        for step, event in rank.by_step():
            if isinstance(event, Started):
                if len(event.ranks) > 1 and event.key not in seen:
                    seen.add(event.key)
                    group = None if event.ranks == whole else event.ranks
                    calls.append(Call(step, event.kind, event.payload_bytes, group, label=event.site))
            elif isinstance(event, MessageSent):
                calls.append(Call(step, "send", event.payload_bytes, (own, event.to), label=event.site))
    return sorted(calls, key=lambda call: call.step)


def sites_of(record: TraceRecord, on: Network, played: Replayed) -> list[dict[str, Any]]:
    """Which lines of the script communicate, and for which of them workers wait; who waits most comes first.

    All is the mean per worker and step, of the steps that `Window` has. A wait is charged to the line that started what
    is waited for, wherever the script waits.
    """
    window = Window.of(record.steps)
    inside = window.of_timeline(played.timeline)
    totals: dict[str, dict[str, float]] = {}

    def of(line: str) -> dict[str, float]:
        return totals.setdefault(
            line, dict.fromkeys(("calls", "bytes", "communication_s", "exposed_communication_s"), 0.0)
        )

    asked: dict[str, dict[str, None]] = {}
    for rank in record.ranks:
        for step, event in rank.by_step():
            if isinstance(event, Started | MessageSent | MessageAwaited):
                if isinstance(event, Started) and len(event.ranks) < 2:
                    continue
                word = (
                    event.asked if isinstance(event, Started) else "send" if isinstance(event, MessageSent) else "recv"
                )
                asked.setdefault(event.site, {})[word] = None
                told = of(event.site)
                if window.first == 0 or window.first <= step < window.last:
                    told["calls"] += 1
                    told["bytes"] += getattr(event, "payload_bytes", 0)
    waits = inside.what.isin(WAITING)
    for name, spans in (("exposed_communication_s", waits), ("communication_s", ~inside.on_compute)):
        labels, seconds = inside.label[spans], inside.duration_s[spans]
        sums = np.bincount(labels.codes, seconds, minlength=len(labels.words)) if len(labels) else np.zeros(0)
        for label, total in zip(labels.words.tolist(), sums.tolist(), strict=False):
            if total:
                of(label)[name] += total
    scale = 1 / (len(record.ranks) * window.steps)
    told_of = {"method": record.name, "network": on.name}
    rows = [
        told_of | {"site": line, "collective": ", ".join(asked.get(line, ()))}
        | {name: value * scale for name, value in of_line.items()}
        for line, of_line in totals.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row["exposed_communication_s"], -row["communication_s"]))
