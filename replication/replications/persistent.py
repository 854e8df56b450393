"""Trainings in processes that live as long as a replication, for searches in which each trial needs the one before.

A training that takes a second on a GPU would wait ten seconds for a new process. Each process therefore makes one
training after another. The parent decides what is trained next, and appends every finished training as a line to one
file, so that the same command continues after an interruption.
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

from replication.lines import resumed_lines
from replication.replications.stages import ReplicationStage
from syncline import SynclineError
from syncline.errors import error_text
from syncline.runs.folders.folder import environment
from syncline.runs.sweep.grid import SweptSpec, configurations
from syncline.runs.sweep.identity import canonical, code_version
from syncline.runs.sweep.jobs import Allowance
from syncline.specs import RunSpec

LINES = "trainings.jsonl"
"""File in the folder of a replication's trainings with a line per finished training."""

MAX_ERROR_LENGTH = 200
"""Largest number of characters of an error's text in a note."""

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
        """Return the key of the training's line: a digest of all that the result depends on, except the code.

        A call with other code therefore keeps the lines that earlier code has made.
        """
        method = {name: value for name, value in self.method.items() if name != "label"}
        stop_losses = {str(step): loss for step, loss in self.stop_losses.items()}
        inputs = [method, self.setting, list(self.seeds), stop_losses]
        return hashlib.sha256(canonical(inputs).encode()).hexdigest()[:20]

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
            seed_groups = [tuple(part.seeds)]
            if method_of(dict(method)).one_seed_at_a_time:
                seed_groups = [(seed,) for seed in part.seeds]
            jobs += [Job(stage.name, method, setting, seeds, timed=timed) for seeds in seed_groups]
    return jobs


def train_job(job: Job) -> Line:
    """Train a job's method on its seeds, and return the line with the results.

    Raises:
        KeyboardInterrupt: the user interrupted the training.
    """
    import torch

    from syncline.comm.devices import name_of_device, training_device
    from syncline.runs.training.results import clock_record
    from syncline.runs.training.train_and_time import time_method, train_method
    from syncline.training import Recorder

    spec, recorder, begun_s = job.spec(), Recorder(), time.perf_counter()
    one_by_one = spec.method.one_seed_at_a_time and len(spec.seeds) > 1  # seeds that follow each other do not stop
    stop_losses = {} if one_by_one else dict(job.stop_losses)  # of the steps that are still to come
    stopped_at: int | None = None
    if spec.device != "cpu":
        gc.collect()  # The last training's graph is in a reference cycle, and keeps its memory.
        torch.cuda.empty_cache()

    def stop_if_hopeless(done: int) -> None:
        """Interrupt the training if a mean loss over the seeds is above the bound of its step."""
        nonlocal stopped_at
        for step in [step for step in stop_losses if step in recorder.eval_step]:
            index = recorder.eval_step.index(step)
            losses = recorder.evaluation["loss"].part(index, index + 1)
            largest_loss = stop_losses.pop(step)
            if losses is not None and not float(losses.mean()) <= largest_loss:  # also if the mean is not a number
                stopped_at = step
                raise KeyboardInterrupt

    on_step = stop_if_hopeless if stop_losses else None
    trained = train_method(spec, spec.method, on_step, recorder=None if one_by_one else recorder)
    history, steps = trained.history, trained.history.eval_step.tolist()
    if history.interrupted and stopped_at is None:
        raise KeyboardInterrupt
    clock = time_method(spec, trained, spec.network) if job.timed else None
    times = clock_record(clock) if clock else {}
    rows = []
    for index, seed in enumerate(history.seeds):
        losses = history.evaluation["loss"][:, index].tolist()
        has_ended = stopped_at is None and history.diverged_at[index] is None and math.isfinite(losses[-1])
        row = {"seed": seed, "loss": losses[-1] if has_ended else None, "losses": dict(zip(steps, losses, strict=True))}
        if job.timed:
            row |= {name: times.get(name) for name in ("bytes_per_worker", "step_time_s")}
            for name in ("averaged", "trigger"):
                values = history.trace.get(name)
                row[name] = None if values is None else values[:, index].astype(float).round(6).tolist()
        rows.append(row)
    return {
        "key": job.key, "stage": job.stage, "method": job.method["label"], "trial": job.trial, "knobs": dict(job.knobs),
        "stopped_at": stopped_at, "rows": rows, "wall_s": round(time.perf_counter() - begun_s, 3),
        "corpus_sha256": trained.facts.get("corpus_sha256"), "device": name_of_device(training_device(spec.device)),
    }  # fmt: skip


class Trainer:
    """A trainer of jobs in processes that stay, which stores a line for each finished training.

    Args:
        folder: folder of the replication's trainings.
        jobs: number of processes; one per core if None. With one, this process trains.
        allowance: limit of the trainings of this call.
        search_s: seconds from now on in which a search may start trials; a search then ends with what it has.

    Attributes:
        num_at_once: number of trainings that run at the same time; smaller after each that failed.
        notes: a line for each training that raised and was tried once more.
        lines: lines of the finished trainings, by key.
        about: versions of the software, and the device.
        interrupted: whether the user interrupted the trainings.
    """

    def __init__(self, folder: Path, jobs: int | None, allowance: Allowance, search_s: float | None = None) -> None:
        self.path, self.num_processes, self.allowance = folder / LINES, jobs or cpu_count(), allowance
        self.num_at_once = self.num_processes
        self.notes: list[str] = []
        self._raised: set[str] = set()  # keys
        self._search_end_s = None if search_s is None else time.monotonic() + search_s
        self.lines: dict[str, Line] = {}
        self.about: dict[str, Any] = {}
        self._longest_s = 0.0  # of this call's trainings
        self.interrupted = False
        self._executor: Executor | None = None
        for line in resumed_lines(self.path):
            self.about = line.get("about", self.about)
            if "key" in line:
                self.lines[line["key"]] = line

    @property
    def search_is_over(self) -> bool:
        """Return whether no trial of a search may start any more."""
        return self._search_end_s is not None and time.monotonic() >= self._search_end_s

    def train(self, next_job: Callable[[], Job | None], on_line: Callable[[Job, Line], None]) -> None:
        """Train jobs until none is left or may start.

        Args:
            next_job: function that returns a job that can start now, or None if there is none at the moment.
            on_line: function that receives the line of each finished job.
        """
        running: dict[Future[Line], Job] = {}
        failed_jobs: list[Job] = []  # to be tried once more
        try:
            while True:
                while len(running) < self.num_at_once:
                    job = failed_jobs.pop() if failed_jobs else next_job()
                    if job is None:
                        break
                    if job.key in self.lines:
                        on_line(job, self.lines[job.key])
                        continue
                    if not self.allowance.grant_one(self._longest_s):
                        break
                    running[self._start(job)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, error = running.pop(future), future.exception()
                    if error is None:
                        self._store_line(job, future.result())
                        on_line(job, self.lines[job.key])
                    else:
                        self._note_failure(job, error)
                        failed_jobs.append(job)
        except KeyboardInterrupt:
            self.interrupted = True
            self.close()

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Return the versions and the machine of this call's trainings."""
        return environment() | {"code": code_version()}

    def _start(self, job: Job) -> Future[Line]:
        """Start a job in one of the processes, or train it now in this process if there is only one."""
        if self.num_processes > 1:
            if self._executor is None:
                spawn = multiprocessing.get_context("spawn")
                self._executor = ProcessPoolExecutor(self.num_processes, mp_context=spawn)
            return self._executor.submit(train_job, job)
        future: Future[Line] = Future()
        try:
            future.set_result(train_job(job))
        except Exception as error:
            future.set_exception(error)
        return future

    def _note_failure(self, job: Job, error: BaseException) -> None:
        """Note that a job raised an error, and let fewer jobs run at once.

        A process that ran out of memory, or was killed, so leaves more memory to the others.

        Raises:
            SynclineError: the job has raised before.
        """
        if not isinstance(error, Exception):  # Ctrl-C
            raise error
        text = f"{job.stage}, {job.method['label']}, seeds {list(job.seeds)}: {error_text(error)[:MAX_ERROR_LENGTH]}"
        if job.key in self._raised:
            raise SynclineError(f"a training failed twice: {text}") from error
        self._raised.add(job.key)
        if isinstance(error, BrokenProcessPool):
            self.close()  # the next job starts new processes
        self.num_at_once = max(1, self.num_at_once - 1)
        self.notes.append(f"taken back, then {self.num_at_once} at a time: {text}")

    def _store_line(self, job: Job, line: Line) -> None:
        """Append the line of a finished training to the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        about = self._facts | {"device": line["device"]}
        with self.path.open("a", encoding="utf-8") as file:
            if about != self.about:
                self.about = about
                file.write(json.dumps({"about": about}) + "\n")
            file.write(json.dumps(line) + "\n")
        self.lines[job.key] = line
        self._longest_s = max(self._longest_s, line["wall_s"])

    def train_stage(self, stage: ReplicationStage, timed: bool) -> list[Line] | None:
        """Train a stage without a search, and return its lines; None if some are missing."""
        return self.train_jobs(jobs_of_stage(stage, timed))

    def train_ahead(self, stages: Sequence[ReplicationStage]) -> None:
        """Train stages that need nothing of each other without a wait between them, methods with long steps first."""
        seconds: dict[str, list[float]] = {}  # of finished trainings, by method
        for line in self.lines.values():
            seconds.setdefault(line["method"], []).append(line["wall_s"])

        def expected_s(job: Job) -> float:
            """Return the expected seconds of a job; S seeds side by side take about sqrt S times as long as one."""
            return fmean(seconds.get(job.method["label"], [0.0])) * len(job.seeds) ** 0.5

        jobs = []
        for stage in stages:
            jobs += sorted(jobs_of_stage(stage, timed=True), key=expected_s, reverse=True)
        self.train_jobs(jobs)

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
