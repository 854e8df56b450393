"""The command ``syncline sweep``: trainings of all combinations of values, each made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from joblib import cpu_count
from pydantic import BaseModel

from syncline.columns import distinct_by_key
from syncline.errors import SpecError
from syncline.runs.folders.folder import environment
from syncline.runs.processes.progress import Listener
from syncline.runs.processes.shared_progress import shared_progress, watched
from syncline.runs.sweep.folder import SweepFolder, Swept, SweptRun
from syncline.runs.sweep.grid import Configuration, SweptSpec, configurations, seeds_of
from syncline.runs.sweep.identity import code_version, measured_name, run_names, training_name
from syncline.runs.sweep.jobs import Allowance, Job, client_of, run_jobs, run_jobs_on_dask
from syncline.runs.sweep.search import NO_SEARCH, Batches, Search, Tuned
from syncline.runs.training.trained import with_measured_step, with_seconds
from syncline.seeds import generator
from syncline.specs import Override
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
    search: Search = NO_SEARCH,
    equal_effort: bool = False,
    allowance: Allowance | None = None,
    listener: Listener | None = None,
) -> Swept:
    """Train and time every configuration of a grid with every seed.

    Each run is stored in a folder that is named by a hash of its spec and the version of the code. A second call with
    the same ``out`` therefore continues where the first one ended, and repeats no run.

    Args:
        spec: a run or a comparison, as a file, a bundled name, fields or a spec. Methods and networks of a comparison
            become two more grids.
        grid: values of fields by their paths, ``{"method.lr": [1e-3, 3e-3]}``; all combinations are trained.
        seeds: number of seeds (3 means 0, 1 and 2), or a list; the spec's by default.
        overrides: values that replace those of the spec, by path.
        out: the folder; ``runs/NAME-sweep`` by default, with a number if that exists.
        jobs: number of parallel processes; one per core if None. Results do not depend on it.
        dask: the address of a scheduler of dask.distributed, whose workers train instead.
        search: fields that an algorithm tunes, for each combination of the grids; by default none.
        equal_effort: draw configurations at random, so that each method has as many as the method with the fewest.
        allowance: limit on this call's trainings; a second call continues. It changes no result.

    Raises:
        SpecError: a configuration cannot be trained; raised before any training.
    """
    if isinstance(grid, Mapping):
        grid = [Grid.from_values(path, values) for path, values in grid.items()]
    if isinstance(overrides, Mapping):
        overrides = [Override.option(f"overrides[{path!r}]", path, value) for path, value in overrides.items()]
    base = SweptSpec.from_spec(spec, overrides, grid)
    sweep_seeds = seeds_of(seeds)
    grids = [*base.grids, *grid]
    sweep_facts = {"name": base.name, "grids": {_full_path(field): field.labels for field in grids}}
    if search != NO_SEARCH:
        batches, num_configurations = search.batches(base, grids, sweep_seeds, equal_effort=equal_effort)
        sweep_facts["tuned"] = {_full_path(field): field.value_range for field in search.tuned}
    else:
        all_configurations = configurations(base, grids, sweep_seeds)
        if equal_effort:
            all_configurations = with_equal_effort(all_configurations)
        batches, num_configurations = single_batch(all_configurations), len(all_configurations)
    client = client_of(dask) if dask else None
    try:
        running = _Sweep(
            batches, num_configurations, sweep_facts, jobs, client,
            allowance=allowance or Allowance(), listener=listener or Listener(),
        )  # fmt: skip
        if not search.tuned:  # a search over integers may propose the same values twice
            check_differ(running.first_runs)
        return running.run(base.name, out)
    finally:
        if client is not None:
            client.close()


def _full_path(field: Grid | Tuned) -> str:
    """Return the path of a swept field, with the name of its method before it if it is the field of one method."""
    return f"{field.method}:{field.path}" if field.method else field.path


def single_batch(all_configurations: list[Configuration]) -> Batches:
    """Yield all configurations of a sweep at once, as a sweep without a search needs no results for them."""
    yield all_configurations


def with_equal_effort(all_configurations: Sequence[Configuration]) -> list[Configuration]:
    """Return configurations with the same number of trainings of each method, the smallest that any method has.

    The trainings are drawn at random with a fixed seed.
    """
    trainings = [training_name(configuration.spec) for configuration in all_configurations]
    methods = [configuration.spec.method.name for configuration in all_configurations]
    distinct_by_method = distinct_by_key(zip(methods, trainings, strict=True))
    smallest_effort = min(map(len, distinct_by_method.values()), default=0)
    drawn_trainings: set[str] = set()
    for method, distinct_trainings in distinct_by_method.items():
        order = generator(0, "equal effort", method).permutation(len(distinct_trainings))
        drawn_trainings |= {distinct_trainings[index] for index in order[:smallest_effort]}
    return [all_configurations[index] for index, training in enumerate(trainings) if training in drawn_trainings]


class _Sweep:
    """A sweep that is running, with the runs that its batches of configurations have requested so far.

    Args:
        batches: generator of the configurations to run; after each batch it is sent the rows of their results.
        num_configurations: number of configurations of all batches.
        sweep_facts: facts for ``sweep.json``.
        jobs: number of processes; one per core if None.
        client: client of a dask cluster; None if the runs train on this machine.
    """

    def __init__(
        self, batches: Batches, num_configurations: int, sweep_facts: dict[str, Any], jobs: int | None, client: Any,
        allowance: Allowance, listener: Listener,
    ) -> None:  # fmt: skip
        """Make the runs of the first batch, so that errors show before any training."""
        self._batches, self._sweep_facts, self._jobs, self._client = batches, sweep_facts, jobs, client
        self._allowance, self._listener, self._code = allowance, listener, code_version()
        first_configurations = next(batches)
        self.first_runs = self._runs_of(first_configurations)
        self._expected_runs = 0  # it stays 0 if a search proposes nothing that can be trained
        if first_configurations:
            runs_per_configuration = len(self.first_runs) // len(first_configurations)
            self._expected_runs = num_configurations * runs_per_configuration
        self._requests: list[SweptRun] = []
        self._num_repeated = 0  # requests whose runs were finished before

    def run(self, name: str, out: str | Path | None) -> Swept:
        """Run all batches, write the sweep's folder, and return the sweep.

        Args:
            out: the folder; ``runs/NAME-sweep`` if None.
        """
        self._sweep_facts |= {"code": self._code} | environment()
        warnings: list[str] = []
        for run in self.first_runs:
            warnings += run.spec.warnings()
        self._listener.warns(list(dict.fromkeys(warnings)))
        batch, stopped = self.first_runs, False
        with SweepFolder(Path(out) if out else Path("runs") / f"{name}-sweep", exact=out is not None) as folder:
            self._sweep_facts["measured_step_s"] = folder.previous_record().get("measured_step_s", {})
            while True:
                self._requests += batch
                for run in batch:
                    self._with_measured_step(run)  # so that the folder has the measurement before a run uses it
                folder.write(self._sweep_facts, self._requests)
                stopped = self._make_runs(folder, batch)
                if stopped:
                    break
                try:
                    batch = self._runs_of(self._batches.send(folder.rows(batch)))  # rows for the next batch
                except StopIteration:
                    break
            rows = folder.write(self._sweep_facts, self._requests)
        requests = [run.request() for run in self._requests]
        return Swept(name, requests, rows, folder=str(folder.path), repeated=self._num_repeated, interrupted=stopped)

    def _runs_of(self, configurations: list[Configuration]) -> list[SweptRun]:
        """Return the requested runs: one for each configuration and seed."""
        num_runs = sum(len(configuration.spec.seeds) for configuration in configurations)
        if num_runs > MOST_RUNS:
            raise SpecError("--grid", f"{num_runs:,} runs", f"at most {MOST_RUNS:,}")
        runs = []
        for configuration in configurations:
            training = training_name(configuration.spec)
            for seed, name in run_names(configuration.spec, self._code).items():
                spec = configuration.spec.model_copy(update={"seeds": (seed,)})
                runs.append(SweptRun(name, configuration.number, configuration.values, spec, training, self._code))
        return runs

    def _make_runs(self, folder: SweepFolder, requests: list[SweptRun]) -> bool:
        """Make the runs of a batch's requests that are not finished, and return whether the sweep was stopped."""
        unfinished_runs = folder.unfinished(requests)
        self._num_repeated += len(requests) - len(unfinished_runs)
        num_finished = len(self._requests) - len(unfinished_runs)  # in all batches so far
        self._listener.begins(max(self._expected_runs, len(self._requests)), num_finished)
        runs_by_training: dict[tuple[str, int], list[SweptRun]] = {}
        for run in unfinished_runs:
            runs_by_training.setdefault((run.training, run.spec.seeds[0]), []).append(self._with_measured_step(run))
        jobs: list[Job] = [tuple(runs) for runs in runs_by_training.values()]
        while jobs:
            num_granted = self._allowance.grant(len(jobs), self._jobs or cpu_count())
            if not num_granted or self._run_jobs(jobs[:num_granted], num_finished, folder):
                return True
            num_finished += sum(len(job) for job in jobs[:num_granted])
            jobs = jobs[num_granted:]
        return False

    def _run_jobs(self, jobs: list[Job], num_finished: int, folder: SweepFolder) -> bool:
        """Run jobs, which are tuples of runs with one training, and return whether they were stopped.

        ``num_finished`` runs of the sweep were finished before.
        """
        planned_steps, num_runs = [job[0].spec.steps for job in jobs], sum(len(job) for job in jobs)
        completed_jobs: set[int] = set()

        def on_progress(steps_by_job: list[int]) -> None:
            steps_done = 0
            for index, steps in enumerate(steps_by_job):
                # A job that diverged is complete after fewer steps.
                steps_done += planned_steps[index] if index in completed_jobs else steps
            done_share = steps_done / sum(planned_steps)
            self._listener.reached(num_finished + num_runs * done_share)

        with shared_progress(len(jobs)) as progress, watched(progress, on_progress):
            if self._client is not None:
                results = run_jobs_on_dask(jobs, folder.runs, self._client, progress)
            else:
                results = run_jobs(jobs, folder.runs, processes=self._jobs, progress=progress)
            for index, errors in results:
                completed_jobs.add(index)
                folder.errors |= errors
                for run in jobs[index]:
                    row = folder.row(run)
                    if row is not None:
                        self._listener.finished(_label(run), row)
            return progress.stopped

    def _with_measured_step(self, run: SweptRun) -> SweptRun:
        """Return the run with measured seconds of a step, if its spec asks for them.

        Runs whose steps take equally long share one measurement, which ``sweep.json`` keeps.
        """
        if not run.spec.compute.measure:
            return run
        measured_s: dict[str, Any] = self._sweep_facts["measured_step_s"]
        name = measured_name(run.spec)
        if name not in measured_s:
            _, measured_s[name] = with_measured_step(run.spec)
        return replace(run, spec=with_seconds(run.spec, measured_s[name]), measured=True)


def _label(run: SweptRun) -> str:
    """Return the values and the seed of a run as text, for a line of the log."""
    texts = []
    for path, value in run.values.items():
        texts.append(f"{path}={value:g}" if isinstance(value, float) else f"{path}={value}")
    return ", ".join([*texts, f"seed {run.spec.seeds[0]}"])


def check_differ(requests: Sequence[SweptRun]) -> None:
    """Refuse two configurations whose runs have the same name, because their values make no difference."""
    first_runs: dict[str, SweptRun] = {}
    for run in requests:
        first_run = first_runs.setdefault(run.name, run)
        if first_run is not run:
            different_paths = [path for path in run.values if run.values[path] != first_run.values[path]]
            path, *_ = different_paths or list(run.values)  # else any field: its values are equal
            two_values = [first_run.values[path], run.values[path]]
            raise SpecError(f"--grid {path}", two_values, "values that make a difference: these two are the same run")
