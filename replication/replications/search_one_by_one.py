"""The search one by one of all methods side by side: one trial of each at a time, the method with the fewest first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from replication.replications.choosing import method_with
from replication.replications.one_by_one import Knobs, Tried, next_knobs, stop_losses, trials_before
from replication.replications.persistent import Job, Line, Trainer
from replication.replications.spec import OneByOne, ReplicationSpec, SearchedMethod
from replication.replications.stage_tables import StageRows
from replication.replications.stages import ReplicationStage, losses_to_end


class SearchOneByOne:
    """A search that is running: the trials of each method so far.

    Args:
        spec: the replication.
        rule: its search.
        trainer: trainer of the trials.
    """

    def __init__(self, spec: ReplicationSpec, rule: OneByOne, trainer: Trainer) -> None:
        self._spec, self._rule, self._trainer = spec, rule, trainer
        self._setting = {"training": spec.training, "changes": spec.search.set}
        self._points: dict[str, list[Knobs]] = {label: [] for label in spec.labels}
        self._tried: dict[str, dict[int, Tried]] = {label: {} for label in spec.labels}
        self._lines: dict[str, dict[int, Line]] = {label: {} for label in spec.labels}

    def lines_of_all(self) -> list[Line] | None:
        """Train, and return the lines of equally many trials of each method; None if trials are missing."""
        self._trainer.train(self._next_job, self._add_trial)
        fewest = min(len(self._first_trials(label, self._spec.search.trials)) for label in self._spec.labels)
        if fewest < self._spec.search.trials and not (self._trainer.search_is_over and fewest):
            return None
        return [lines[number] for lines in self._lines.values() for number in range(1, fewest + 1)]

    def _first_trials(self, label: str, count: int) -> list[Tried]:
        """Return the first trials of a method, at most ``count``, up to the first that is not finished."""
        tried, trials = self._tried[label], list[Tried]()
        while len(trials) < count and len(trials) + 1 in tried:
            trials.append(tried[len(trials) + 1])
        return trials

    def _is_free(self, method: SearchedMethod) -> bool:
        """Return whether a method's next trial can start, because the trials that it depends on are finished."""
        number = len(self._points[method.label]) + 1
        num_before = trials_before(self._rule, number)
        if number > self._spec.search.trials or len(self._first_trials(method.label, num_before)) < num_before:
            return False
        if method.contains is None or number not in self._rule.contained_at:
            return True
        return len(self._first_trials(method.contains.method, num_before)) == num_before

    def _next_job(self) -> Job | None:
        """Return the next trial of the method with the fewest trials; None if none can start now."""
        free = [method for method in self._spec.methods if self._is_free(method)]
        if not free:
            return None
        method = min(free, key=lambda entry: len(self._points[entry.label]))
        points = self._points[method.label]
        num_before = trials_before(self._rule, len(points) + 1)
        trials = self._first_trials(method.label, num_before)
        contained = self._first_trials(method.contains.method, num_before) if method.contains else []
        knobs = next_knobs(method, self._rule, trials, contained, pending=points[num_before:])
        job = Job(
            "search", method_with(method, knobs), self._setting, tuple(self._spec.search.seeds),
            trial=len(points) + 1, knobs=knobs, stop_losses=stop_losses(self._rule, trials),
        )  # fmt: skip
        if self._trainer.search_is_over and job.key not in self._trainer.lines:
            return None
        points.append(knobs)
        return job

    def _add_trial(self, job: Job, line: Line) -> None:
        """Add a finished trial with its median last loss and its mean losses by step."""
        label = job.method["label"]
        last_losses = [math.inf if row["loss"] is None else row["loss"] for row in line["rows"]]
        losses_by_step: dict[int, list[float]] = {}
        for row in line["rows"]:
            for step, loss in row["losses"].items():
                losses_by_step.setdefault(int(step), []).append(loss)
        mean_losses = {step: fmean(losses) for step, losses in losses_by_step.items()}
        self._tried[label][job.trial] = Tried(dict(job.knobs), median(last_losses), mean_losses)
        self._lines[label][job.trial] = line | {"method": label, "trial": job.trial, "knobs": dict(job.knobs)}


def stage_rows(stage: ReplicationStage, lines: Sequence[Line]) -> StageRows:
    """Return the rows of a stage's table, as `trial_rows` and `final_rows` make them of a sweep."""
    rows: StageRows = []
    for line in lines:
        for row in line["rows"]:
            loss = math.inf if row["loss"] is None else row["loss"]
            if stage.name == "search":
                rows.append({
                    "method": line["method"], "trial": line["trial"], "seed": row["seed"], "loss": loss,
                    "knobs": json.dumps(line["knobs"]), "stopped_at": line["stopped_at"],
                })  # fmt: skip
            elif stage.name == "rerun":
                label, _, number = line["method"].rpartition(" ")
                rows.append({"method": label, "trial": int(number), "seed": row["seed"], "loss": loss, "knobs": "{}"})
            else:
                rows += _final_rows(line["method"], row, loss)
    return rows


def _final_rows(label: str, row: Mapping[str, Any], last_loss: float) -> StageRows:
    """Return a final's losses at its evaluations; a training that diverged has an infinite last one."""
    keys = {"method": label, "seed": row["seed"]}
    keys |= {name: row[name] for name in ("bytes_per_worker", "step_time_s")}
    by_step = {int(step): loss for step, loss in row["losses"].items()}
    losses = losses_to_end(by_step, last=max(by_step), last_loss=last_loss)
    averaged = row["averaged"]
    return [
        keys | {"step": step, "loss": loss, "averages": None if averaged is None else round(sum(averaged[:step]))}
        for step, loss in losses.items()
    ]


def rows_of_averages(lines: Sequence[Line]) -> StageRows:
    """Return a row per step of the finals whose method records when it averaged, as `averages_rows` does."""
    rows: StageRows = []
    for line in lines:
        for row in line["rows"]:
            averaged, triggers = row.get("averaged") or [], row.get("trigger")
            for step, has_averaged in enumerate(averaged, 1):
                rows.append({
                    "method": line["method"], "seed": row["seed"], "step": step, "averaged": bool(has_averaged),
                    "trigger": triggers[step - 1] if triggers else None,
                })  # fmt: skip
    return rows
