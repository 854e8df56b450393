"""The command ``syncline sweep``: from a spec and grids to rows, by way of run folders that are never made twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from joblib import cpu_count
from pydantic import BaseModel

from syncline.errors import SpecError
from syncline.runs.folders.folder import environment
from syncline.runs.processes.shared_progress import SharedProgress, Watched, shared_progress
from syncline.runs.sweep.allowance import Allowance
from syncline.runs.sweep.dask_cluster import client_of, run_jobs_on_dask
from syncline.runs.sweep.folder import RequestedRun, SweepFolder
from syncline.runs.sweep.grid import Configuration, SweptSpec, configurations, seeds_of
from syncline.runs.sweep.identity import code_version, measured_name, run_names, training_name
from syncline.runs.sweep.listener import Listener
from syncline.runs.sweep.pool import Done, Job, run_jobs
from syncline.runs.sweep.ranking import effort
from syncline.runs.sweep.runs import SweptRun
from syncline.runs.sweep.search import Batches, Tuned, from_python, searched
from syncline.runs.sweep.swept import Swept
from syncline.runs.training.measured_step import with_measured_step
from syncline.seeds import generator
from syncline.specs import Override, RunSpec
from syncline.specs.grid import Grid

MOST_RUNS = 1_000_000
"""Largest number of runs, a free choice: more folders than most file systems handle well."""


def sweep(
    spec: str | Path | Mapping[str, Any] | BaseModel,
    grid: Mapping[str, Sequence[Any]] | Sequence[Grid] = (),
    *,
    seeds: int | Sequence[int] | None = None,
    overrides: Mapping[str, Any] | Sequence[Override] = (),
    out: str | Path | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    search: str | None = None,
    tune: Mapping[str, Any] | Sequence[Tuned] = (),
    trials: int | None = None,
    equal_effort: bool = False,
    allowance: Allowance | None = None,
    listener: Listener | None = None,
) -> Swept:
    """Train and time every configuration of a grid with every seed.

    Each run is stored in a folder that is named by a hash of its spec and the version of the code. A second call with
    the same ``out`` therefore continues where the first one ended, and repeats no run.

    Args:
        spec: a run, or a comparison, which is its methods on its networks: a file, a bundled name, fields or a spec.
        grid: the values that a field takes, by its path: ``{"method.lr": [1e-3, 3e-3]}``; several fields are combined.
        seeds: the number of seeds (3: 0, 1 and 2), or a list; the spec's by default.
        overrides: values that replace those of the spec, by path.
        out: the folder; ``runs/NAME-sweep`` by default, with a number if that exists.
        jobs: number of processes side by side; one per core if None. It changes no number.
        dask: the address of a scheduler of dask.distributed, whose workers train instead.
        search: the method that proposes values of tuned fields: ``optuna``.
        tune: two ends of the values that a field takes, by its path: ``{"method.lr": (1e-4, 1e-1)}``.
        trials: number of trials of a search, for each combination of the grids.
        equal_effort: reduce each method to as many configurations as the method with the fewest has, drawn at random.
        allowance: limit of this call's trainings; a second call continues. It changes no number.
        listener: listener that receives the progress.

    Raises:
        SpecError: a configuration cannot be trained; raised before any training.
    """
    base, grids = _base_and_grids(spec, grid, overrides)
    chosen, tuned = seeds_of(seeds), list(from_python(tune)) if isinstance(tune, Mapping) else list(tune)
    about = {"name": base.name, "grids": {_full_path(field): field.shown for field in grids}}
    if tuned or search or trials is not None:
        if not tuned:
            raise SpecError("--tune", "nothing", "a field to search over, as in method.lr=1e-4..1e-1")
        if trials is None:
            raise SpecError("--trials", None, "how many trials of each combination of the grids")
        batches, ahead = searched(base, grids, tuned, trials, chosen, search or "optuna", equal_effort)
        about["tuned"] = {_full_path(field): field.shown for field in tuned}
    else:
        configured = configurations(base, grids, chosen)
        configured = with_equal_numbers(configured) if equal_effort else configured
        batches, ahead = _single_batch(configured), len(configured)
    client = client_of(dask) if dask else None
    try:
        under_way = _Sweep(batches, ahead, about, jobs, client, allowance or Allowance(), listener or Listener())
        if not tuned:  # a search over integers may propose the same values twice
            check_differ(under_way.first)
        return under_way.run(base.name, out)
    finally:
        if client is not None:
            client.close()


def _base_and_grids(
    spec: Any, grid: Mapping[str, Sequence[Any]] | Sequence[Grid], overrides: Mapping[str, Any] | Sequence[Override]
) -> tuple[SweptSpec, list[Grid]]:
    user_grids = (
        [Grid.from_values(path, values) for path, values in grid.items()] if isinstance(grid, Mapping) else list(grid)
    )
    if isinstance(overrides, Mapping):
        overrides = [Override.option(f"overrides[{path!r}]", path, value) for path, value in overrides.items()]
    base = SweptSpec.from_spec(spec, overrides, user_grids)
    return base, [*base.grids, *user_grids]


def _full_path(field: Grid | Tuned) -> str:
    return f"{field.method}:{field.path}" if field.method else field.path


def _single_batch(configured: list[Configuration]) -> Batches:
    yield configured


def with_equal_numbers(configured: Sequence[Configuration]) -> list[Configuration]:
    """Return for each method as many trainings as the method with the fewest has, drawn at random with a fixed seed."""
    trainings: dict[str, dict[str, None]] = {}
    named = [(configuration, training_name(configuration.spec)) for configuration in configured]
    for configuration, training in named:
        trainings.setdefault(configuration.spec.method.name, {})[training] = None
    fewest = min(map(len, trainings.values()), default=0)
    drawn = {
        list(of_method)[i]
        for method, of_method in trainings.items()
        for i in generator(0, "equal effort", method).permutation(len(of_method))[:fewest]
    }
    return [configuration for configuration, training in named if training in drawn]


class _Sweep:
    """A running sweep: the runs requested so far, batch by batch."""

    def __init__(
        self,
        batches: Batches,
        ahead: int,
        about: dict[str, Any],
        jobs: int | None,
        client: Any,
        allowance: Allowance,
        listener: Listener,
    ) -> None:
        self._batches, self._about, self._jobs, self._client = batches, about, jobs, client
        self._allowance, self._listener, self._code = allowance, listener, code_version()
        first = next(batches)
        self.first = self._asked_of(first)
        self._runs = ahead * (len(self.first) // len(first) if first else 0)
        self._asked: list[RequestedRun] = []
        self._repeated = 0

    def run(self, name: str, out: str | Path | None) -> Swept:
        self._about |= {"code": self._code} | environment()
        new: list[RequestedRun] | None = self.first
        self._listener.warns(
            list(dict.fromkeys(line for asked_run in self.first for line in asked_run.spec.warnings()))
        )
        with SweepFolder(Path(out) if out else Path("runs") / f"{name}-sweep", exact=out is not None) as folder:
            self._about["measured_step_s"] = folder.about().get("measured_step_s", {})
            stopped = False
            while new is not None and not stopped:
                self._asked += new
                for asked_run in new:
                    self._with_measured_step(asked_run.spec)  # stored before any run uses it
                folder.write(self._about, self._asked)
                stopped = self._carry_out(folder, new)
                new = None if stopped else self._next(folder.rows(new))
            rows = folder.write(self._about, self._asked)
        tuned = effort((asked_run.spec.method.name, asked_run.training) for asked_run in self._asked)
        paths = tuple(dict.fromkeys(path for asked_run in self._asked for path in asked_run.values))
        return Swept(name, paths, rows, str(folder.path), len(self._asked), self._repeated, tuned, stopped)

    def _next(self, rows: list[dict[str, Any]]) -> list[RequestedRun] | None:
        try:
            return self._asked_of(self._batches.send(rows))
        except StopIteration:
            return None

    def _asked_of(self, configured: list[Configuration]) -> list[RequestedRun]:
        runs = sum(len(configuration.spec.seeds) for configuration in configured)
        if runs > MOST_RUNS:
            raise SpecError("--grid", f"{runs:,} runs", f"at most {MOST_RUNS:,}")
        requests = []
        for configuration in configured:
            training = training_name(configuration.spec)
            for seed, name in run_names(configuration.spec, self._code).items():
                spec = configuration.spec.model_copy(update={"seeds": (seed,)})
                requests.append(RequestedRun(name, configuration.number, configuration.values, spec, training))
        return requests

    def _carry_out(self, folder: SweepFolder, requests: list[RequestedRun]) -> bool:
        """Run the missing runs, and return whether the sweep was stopped."""
        missing = folder.missing(requests)
        self._repeated += len(requests) - len(missing)
        finished = len(self._asked) - len(missing)
        self._listener.begins(max(self._runs, len(self._asked)), finished)
        jobs = _jobs(missing, self._code, self._with_measured_step)
        by_name = {request.name: request for request in requests}
        while jobs:
            number = self._allowance.grant(len(jobs), self._jobs or cpu_count())
            if not number or self._carry_out_jobs(jobs[:number], finished, folder, by_name):
                return True
            finished += sum(len(job.runs) for job in jobs[:number])
            jobs = jobs[number:]
        return False

    def _carry_out_jobs(
        self, jobs: list[Job], finished: int, folder: SweepFolder, by_name: Mapping[str, RequestedRun]
    ) -> bool:
        steps, runs = [job.steps for job in jobs], sum(len(job.runs) for job in jobs)
        completed: set[int] = set()  # finished jobs, even if their training ended before its last step

        def on_progress(done: list[int]) -> None:
            steps_done = sum(steps[i] if i in completed else steps_reached for i, steps_reached in enumerate(done))
            self._listener.reached(finished + runs * steps_done / sum(steps))

        with shared_progress(len(jobs)) as progress, Watched(progress, on_progress):
            for number, errors in self._carried_out(jobs, folder, progress):
                completed.add(number)
                folder.failed(errors)
                for run in jobs[number].runs:
                    row = folder.row(by_name[run.name])
                    if row is not None:
                        self._listener.finished(_label(by_name[run.name]), row)
            return progress.stopped

    def _with_measured_step(self, spec: RunSpec) -> RunSpec:
        """Return the spec with measured seconds of a step, if it asks for them, once per folder."""
        if not spec.compute.measure:
            return spec
        name, measured = measured_name(spec), self._about["measured_step_s"]
        if name not in measured:
            measured[name] = with_measured_step(spec)[1]
        compute = spec.compute.model_copy(update={"measure": False, "seconds": measured[name]})
        return spec.model_copy(update={"compute": compute})

    def _carried_out(self, jobs: list[Job], folder: SweepFolder, progress: SharedProgress) -> Iterator[Done]:
        if self._client is not None:
            return run_jobs_on_dask(jobs, folder.runs, self._client, progress)
        return run_jobs(jobs, folder.runs, self._jobs, progress)


def _jobs(missing: Sequence[RequestedRun], code: str, prepared: Callable[[RunSpec], RunSpec]) -> list[Job]:
    """Return runs grouped by training."""
    grouped: dict[tuple[str, int], list[SweptRun]] = {}
    for request in missing:
        run = SweptRun(request.name, prepared(request.spec), code, request.spec.compute.measure)
        grouped.setdefault((request.training, request.spec.seeds[0]), []).append(run)
    return [Job(tuple(runs)) for runs in grouped.values()]


def _label(request: RequestedRun) -> str:
    """Return the name of a run for people."""
    values = [
        f"{path}={value:g}" if isinstance(value, float) else f"{path}={value}" for path, value in request.values.items()
    ]
    return ", ".join([*values, f"seed {request.spec.seeds[0]}"])


def check_differ(requests: Sequence[RequestedRun]) -> None:
    """Refuse configurations that are the same run.

    Raises:
        SpecError: two configurations are the same run.
    """
    seen: dict[str, RequestedRun] = {}
    for request in requests:
        other = seen.setdefault(request.name, request)
        if other is not request:
            path = next(
                (path for path in request.values if request.values[path] != other.values[path]),
                next(iter(request.values)),
            )
            both = [other.values[path], request.values[path]]
            raise SpecError(f"--grid {path}", both, "values that make a difference: these two are the same run")
