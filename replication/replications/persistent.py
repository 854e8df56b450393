"""Trainings in processes that live as long as a replication, for searches in which each trial needs the one before.

A training on a GPU of a second would wait ten for its process to start. Each process therefore makes one training after
another. The parent decides what is trained next, and appends every finished training as a line to one file, so that the
same command goes on after any end.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from joblib import cpu_count

from replication.replications.stages import ReplicationStage
from syncline import SynclineError
from syncline.errors import error_text
from syncline.files import resumed_lines
from syncline.runs.folders.folder import environment
from syncline.runs.sweep.grid import SweptSpec, configurations
from syncline.runs.sweep.identity import canonical, code_version
from syncline.runs.sweep.jobs import Allowance
from syncline.specs import RunSpec

LINES = "trainings.jsonl"
"""File in the folder of a replication's trainings with a line per finished training."""

MOST_LETTERS = 200
"""Letters of an error's text in a note."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A training of one method on some seeds, as rows of the same tensors.

    Args:
        stage: the stage's name, for people.
        method: fields of the method, with its label.
        trial: number of the trial in a search.
        knobs: the trial's hyperparameters.
        setting: fields of the stage that the training depends on.
        seeds: the seeds.
        stop_losses: loss by step above which the training ends early.
        timed: whether the line has bytes, step time and the steps that averaged.
    """

    stage: str
    method: Mapping[str, Any]
    setting: Mapping[str, Any]
    seeds: tuple[int, ...]
    trial: int = 0
    knobs: Mapping[str, float] = field(default_factory=dict)
    stop_losses: Mapping[int, float] = field(default_factory=dict)
    timed: bool = False

    @property
    def key(self) -> str:
        """Return a digest of what the result depends on, the code apart, which is the key of its line.

        A call with other code therefore goes on with the lines of the code before.
        """
        method = {name: value for name, value in self.method.items() if name != "label"}
        parts = [method, self.setting, list(self.seeds), {str(step): loss for step, loss in self.stop_losses.items()}]
        return hashlib.sha256(canonical(parts).encode()).hexdigest()[:20]

    def spec(self) -> RunSpec:
        """Return the spec of the training."""
        stage = ReplicationStage(
            "training", self.setting["training"], [self.method], self.seeds, self.setting["changes"]
        )
        base = SweptSpec.from_spec(stage.fields(), stage.overrides(), [])
        return configurations(base, list(base.grids), self.seeds)[0].spec


def jobs_of_stage(stage: ReplicationStage, timed: bool = False) -> list[Job]:
    """Return the trainings of a stage without a search: all seeds of a method in one, if the method can."""
    from syncline.methods import method_of

    jobs = []
    for part in stage.parts():
        setting = {"training": part.training, "changes": part.changes}
        for method in part.methods:
            alone = method_of(dict(method)).one_seed_at_a_time
            groups = [(seed,) for seed in part.seeds] if alone else [tuple(part.seeds)]
            jobs += [Job(stage.name, method, setting, seeds, timed=timed) for seeds in groups]
    return jobs


def carried_out(job: Job) -> Line:
    """Train a job, and return its line."""
    import torch

    from syncline.comm.devices import name_of_device, training_device
    from syncline.runs.training.results import clock_record
    from syncline.runs.training.train_and_time import time_method, train_method
    from syncline.training import Recorder

    spec, recorder, begun_s, stopped = job.spec(), Recorder(), time.perf_counter(), []
    one_by_one = spec.method.one_seed_at_a_time and len(spec.seeds) > 1  # seeds that follow each other do not stop
    remaining = {} if one_by_one else dict(job.stop_losses)
    if spec.device != "cpu":
        gc.collect()  # The last training's graph is in a reference cycle, and keeps its memory.
        torch.cuda.empty_cache()

    def on_step(done: int) -> None:
        for step in [step for step in remaining if step in recorder.eval_step]:
            index = recorder.eval_step.index(step)
            part = recorder.evaluation["loss"].part(index, index + 1)
            bound = remaining.pop(step)
            if part is not None and not float(part.mean()) <= bound:
                stopped.append(step)
                raise KeyboardInterrupt

    trained = train_method(spec, spec.method, on_step if remaining else None, recorder=None if one_by_one else recorder)
    history, steps = trained.history, trained.history.eval_step.tolist()
    if history.interrupted and not stopped:
        raise KeyboardInterrupt
    clock = time_method(spec, trained, spec.network) if job.timed else None
    timed = clock_record(clock) if clock else {}
    rows = []
    for index, seed in enumerate(history.seeds):
        losses = history.evaluation["loss"][:, index].tolist()
        ended = not stopped and history.diverged_at[index] is None and math.isfinite(losses[-1])
        row = {"seed": seed, "loss": losses[-1] if ended else None, "losses": dict(zip(steps, losses, strict=True))}
        if job.timed:
            row |= {name: timed.get(name) for name in ("bytes_per_worker", "step_time_s")}
            for name in ("averaged", "trigger"):
                values = history.trace.get(name)
                row[name] = None if values is None else values[:, index].astype(float).round(6).tolist()
        rows.append(row)
    line = {
        "key": job.key, "stage": job.stage, "method": job.method["label"], "trial": job.trial, "knobs": dict(job.knobs),
        "stopped_at": stopped[0] if stopped else None, "rows": rows, "wall_s": round(time.perf_counter() - begun_s, 3),
        "corpus_sha256": trained.facts.get("corpus_sha256"),
    }  # fmt: skip
    return line | {"device": name_of_device(training_device(spec.device))}


class Trainer:
    """Trains jobs in processes that stay, and keeps their lines.

    Args:
        folder: folder of the replication's trainings.
        jobs: number of processes; one per core if None. With one, this process trains.
        allowance: limit of the trainings of this call.
        search_s: seconds from now on in which a search may start trials; a search then ends with what it has.

    Attributes:
        notes: a line for each training that raised and was tried once more.
    """

    def __init__(self, folder: Path, jobs: int | None, allowance: Allowance, search_s: float | None = None) -> None:
        self.path, self.jobs, self.allowance = folder / LINES, jobs or cpu_count(), allowance
        self.most_jobs = self.jobs
        self.notes: list[str] = []
        self._raised: set[str] = set()
        self.search_end_s = None if search_s is None else time.monotonic() + search_s
        self.lines: dict[str, Line] = {}
        self.about: dict[str, Any] = {}
        self.longest_s = 0.0
        self.interrupted = False
        self._executor: Executor | None = None
        for line in resumed_lines(self.path):
            self.about = line.get("about", self.about)
            if "key" in line:
                self.lines[line["key"]] = line

    @property
    def search_is_over(self) -> bool:
        """Return whether no trial of a search may start any more."""
        return self.search_end_s is not None and time.monotonic() >= self.search_end_s

    def train(self, next_job: Callable[[], Job | None], on_line: Callable[[Job, Line], None]) -> None:
        """Train jobs until none is left or may start.

        Args:
            next_job: function that returns a job that can start now, or None if there is none at the moment.
            on_line: function that receives the line of each finished job.
        """
        running: dict[Future[Line], Job] = {}
        lost_jobs: list[Job] = []
        try:
            while True:
                while len(running) < self.jobs and (job := lost_jobs.pop() if lost_jobs else next_job()) is not None:
                    if job.key in self.lines:
                        on_line(job, self.lines[job.key])
                        continue
                    if not self.allowance.grant_one(self.longest_s):
                        break
                    running[self._submitted(job)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, error = running.pop(future), future.exception()
                    if error is None:
                        self._keep(job, future.result(), on_line)
                    else:
                        lost_jobs.append(self._taken_back(job, error))
        except KeyboardInterrupt:
            self.interrupted = True
            self.close()

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Return the versions and the machine of this call's trainings."""
        return environment() | {"code": code_version()}

    def _submitted(self, job: Job) -> Future[Line]:
        """Start a job in one of the processes, or carry it out here if there is only one."""
        if self.most_jobs > 1:
            return self._pool().submit(carried_out, job)
        future: Future[Line] = Future()
        try:
            future.set_result(carried_out(job))
        except Exception as error:
            future.set_exception(error)
        return future

    def _taken_back(self, job: Job, error: BaseException) -> Job:
        """Return a job that raised, to be tried once more beside fewer others.

        A process that ran out of memory, or was killed, leaves more to the others.

        Raises:
            SynclineError: the job has raised before.
        """
        if not isinstance(error, Exception):  # Ctrl-C
            raise error
        text = f"{job.stage}, {job.method['label']}, seeds {list(job.seeds)}: {error_text(error)[:MOST_LETTERS]}"
        if job.key in self._raised:
            raise SynclineError(f"a training failed twice: {text}") from error
        self._raised.add(job.key)
        if isinstance(error, BrokenProcessPool):
            self.close()  # the next job starts new processes
        self.jobs = max(1, self.jobs - 1)
        self.notes.append(f"taken back, then {self.jobs} at a time: {text}")
        return job

    def _pool(self) -> Executor:
        """Return the processes, which start at the first job."""
        if self._executor is None:
            spawn = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.most_jobs, mp_context=spawn)
        return self._executor

    def _keep(self, job: Job, line: Line, on_line: Callable[[Job, Line], None]) -> None:
        """Append a finished training to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        about = self._facts | {"device": line["device"]}
        with self.path.open("a", encoding="utf-8") as file:
            if about != self.about:
                self.about = about
                file.write(json.dumps({"about": about}) + "\n")
            file.write(json.dumps(line) + "\n")
        self.lines[job.key] = line
        self.longest_s = max(self.longest_s, line["wall_s"])
        on_line(job, line)

    def train_stage(self, stage: ReplicationStage, timed: bool) -> list[Line] | None:
        """Train a stage without a search, and return its lines; None if some are missing."""
        return self.train_jobs(jobs_of_stage(stage, timed))

    def train_ahead(self, stages: Sequence[ReplicationStage]) -> None:
        """Train stages that need nothing of each other without a wait between them, methods with long steps first."""
        seconds: dict[str, list[float]] = {}
        for line in self.lines.values():
            seconds.setdefault(line["method"], []).append(line["wall_s"])

        def longest_first(job: Job) -> float:
            return -fmean(seconds.get(job.method["label"], [0.0])) * len(job.seeds) ** 0.5

        by_stage = [sorted(jobs_of_stage(stage, timed=True), key=longest_first) for stage in stages]
        self.train_jobs([job for jobs in by_stage for job in jobs])

    def train_jobs(self, jobs: Sequence[Job]) -> list[Line] | None:
        """Train jobs in their order, and return their lines; None if some are missing."""
        waiting = iter(jobs)
        self.train(lambda: next(waiting, None), lambda job, line: None)
        if any(job.key not in self.lines for job in jobs):
            return None
        return [self.lines[job.key] | {"method": job.method["label"]} for job in jobs]

    def close(self) -> None:
        """End the processes, and drop calls that wait for them."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def check_text(lines: Sequence[Line]) -> None:
    """Refuse lines of trainings on different texts.

    Raises:
        SynclineError: two trainings read different texts.
    """
    texts = {line["corpus_sha256"] for line in lines}
    if len(texts) > 1:
        raise SynclineError(f"{LINES}: trainings on {len(texts)} texts, by their checksums; expected one")
