"""``syncline sweep``: from a spec and grids to rows, by way of folders that are never made twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from joblib import cpu_count
from pydantic import BaseModel

from syncline.errors import SpecError
from syncline.experiments.folder import environment
from syncline.experiments.measured_step import with_measured_step
from syncline.experiments.shared_progress import SharedProgress, Watched, shared_progress
from syncline.experiments.sweep.allowance import Allowance
from syncline.experiments.sweep.dask_cluster import carried_out_by_dask, client_of
from syncline.experiments.sweep.folder import AskedRun, SweepFolder
from syncline.experiments.sweep.grid import Configuration, Grid, SweptSpec, configurations, seeds_of
from syncline.experiments.sweep.identity import code_version, measured_name, run_names, training_name
from syncline.experiments.sweep.listener import Listener
from syncline.experiments.sweep.pool import Done, Job, carried_out
from syncline.experiments.sweep.ranking import effort
from syncline.experiments.sweep.runs import SweptRun
from syncline.experiments.sweep.search import Batches, Tuned, from_python, searched
from syncline.experiments.sweep.swept import Swept
from syncline.seeds import generator
from syncline.specs import Override, RunSpec

MOST_RUNS = 1_000_000
"""A choice: more folders than most file systems like."""


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

    Each run is kept in a folder that is named by a hash of its spec and the version of the code, so that the same
    ``out`` again goes on where it was left, and runs nothing twice.

    Args:
        spec: a run, or a comparison, which is its methods on its networks: a file, a bundled name, fields or a spec.
        grid: the values that a field takes, by its path: ``{"method.lr": [1e-3, 3e-3]}``. Of several every combination.
        seeds: how many (3: 0, 1 and 2), or which; the spec's by default.
        overrides: other fields that have other values than the spec says, by path.
        out: the folder; ``runs/NAME-sweep`` by default, with a number if that exists.
        jobs: processes side by side; one per core if none. It changes no number.
        dask: the address of a scheduler of dask.distributed, whose workers train instead.
        search: who asks for values of what is tuned: ``optuna``.
        tune: two ends of the values that a field takes, by its path: ``{"method.lr": (1e-4, 1e-1)}``.
        trials: of a search, for each combination of the grids.
        equal_effort: as many configurations of each method as there are of the one with the fewest, drawn at random.
        allowance: how much is trained before it pauses; the same again goes on. It changes no number.
        listener: what is told of how far it is.

    Raises:
        SpecError: a configuration that cannot be trained, found before anything is.
    """
    base, grids = _base_and_grids(spec, grid, overrides)
    chosen, tuned = seeds_of(seeds), list(from_python(tune)) if isinstance(tune, Mapping) else list(tune)
    about = {"name": base.name, "grids": {_full_path(one): one.shown for one in grids}}
    if tuned or search or trials is not None:
        if not tuned:
            raise SpecError("--tune", "nothing", "a field to search over, as in method.lr=1e-4..1e-1")
        if trials is None:
            raise SpecError("--trials", None, "how many trials of each combination of the grids")
        batches, ahead = searched(base, grids, tuned, trials, chosen, search or "optuna", equal_effort)
        about["tuned"] = {_full_path(one): one.shown for one in tuned}
    else:
        made = configurations(base, grids, chosen)
        made = with_equal_numbers(made) if equal_effort else made
        batches, ahead = _once(made), len(made)
    client = client_of(dask) if dask else None
    try:
        under_way = _Sweep(batches, ahead, about, jobs, client, allowance or Allowance(), listener or Listener())
        if not tuned:  # a search over whole numbers may come to the same again
            check_differ(under_way.first)
        return under_way.run(base.name, out)
    finally:
        if client is not None:
            client.close()


def _base_and_grids(
    spec: Any, grid: Mapping[str, Sequence[Any]] | Sequence[Grid], overrides: Mapping[str, Any] | Sequence[Override]
) -> tuple[SweptSpec, list[Grid]]:
    given = [Grid.of(path, values) for path, values in grid.items()] if isinstance(grid, Mapping) else list(grid)
    if isinstance(overrides, Mapping):
        overrides = [Override.option(f"overrides[{path!r}]", path, value) for path, value in overrides.items()]
    base = SweptSpec.of(spec, overrides, given)
    return base, [*base.grids, *given]


def _full_path(one: Grid | Tuned) -> str:
    return f"{one.method}:{one.path}" if one.method else one.path


def _once(made: list[Configuration]) -> Batches:
    yield made


def with_equal_numbers(made: Sequence[Configuration]) -> list[Configuration]:
    """Of each method as many trainings as of the one with the fewest, drawn at random and always the same."""
    trainings: dict[str, dict[str, None]] = {}
    named = [(one, training_name(one.spec)) for one in made]
    for one, training in named:
        trainings.setdefault(one.spec.method.name, {})[training] = None
    least = min(map(len, trainings.values()), default=0)
    kept = {
        list(of_method)[i]
        for method, of_method in trainings.items()
        for i in generator(0, "equal effort", method).permutation(len(of_method))[:least]
    }
    return [one for one, training in named if training in kept]


class _Sweep:
    """A sweep under way: what was asked for so far, batch by batch."""

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
        self._asked: list[AskedRun] = []
        self._repeated = 0

    def run(self, name: str, out: str | Path | None) -> Swept:
        self._about |= {"code": self._code} | environment()
        new: list[AskedRun] | None = self.first
        self._listener.warns(list(dict.fromkeys(line for one in self.first for line in one.spec.warnings())))
        with SweepFolder(Path(out) if out else Path("runs") / f"{name}-sweep", exact=out is not None) as folder:
            self._about["measured_step_s"] = folder.about().get("measured_step_s", {})
            stopped = False
            while new is not None and not stopped:
                self._asked += new
                for one in new:
                    self._with_measured_step(one.spec)  # noted before any run goes by it
                folder.write(self._about, self._asked)
                stopped = self._carry_out(folder, new)
                new = None if stopped else self._next(folder.rows(new))
            rows = folder.write(self._about, self._asked)
        tuned = effort((one.spec.method.name, one.training) for one in self._asked)
        paths = tuple(dict.fromkeys(path for one in self._asked for path in one.values))
        return Swept(name, paths, rows, str(folder.path), len(self._asked), self._repeated, tuned, stopped)

    def _next(self, rows: list[dict[str, Any]]) -> list[AskedRun] | None:
        try:
            return self._asked_of(self._batches.send(rows))
        except StopIteration:
            return None

    def _asked_of(self, made: list[Configuration]) -> list[AskedRun]:
        runs = sum(len(one.spec.seeds) for one in made)
        if runs > MOST_RUNS:
            raise SpecError("--grid", f"{runs:,} runs", f"at most {MOST_RUNS:,}")
        asked = []
        for one in made:
            training = training_name(one.spec)
            for seed, name in run_names(one.spec, self._code).items():
                spec = one.spec.model_copy(update={"seeds": (seed,)})
                asked.append(AskedRun(name, one.number, one.values, spec, training))
        return asked

    def _carry_out(self, folder: SweepFolder, asked: list[AskedRun]) -> bool:
        """Run what is missing; whether it was stopped."""
        missing = folder.missing(asked)
        self._repeated += len(asked) - len(missing)
        finished = len(self._asked) - len(missing)
        self._listener.begins(max(self._runs, len(self._asked)), finished)
        jobs = _jobs(missing, self._code, self._with_measured_step)
        by_name = {one.name: one for one in asked}
        while jobs:
            number = self._allowance.granted(len(jobs), self._jobs or cpu_count())
            if not number or self._carry_out_jobs(jobs[:number], finished, folder, by_name):
                return True
            finished += sum(len(job.runs) for job in jobs[:number])
            jobs = jobs[number:]
        return False

    def _carry_out_jobs(
        self, jobs: list[Job], finished: int, folder: SweepFolder, by_name: Mapping[str, AskedRun]
    ) -> bool:
        steps, runs = [job.steps for job in jobs], sum(len(job.runs) for job in jobs)
        whole: set[int] = set()  # jobs that are done, also where a training ended before its last step

        def on_progress(done: list[int]) -> None:
            taken = sum(steps[i] if i in whole else one for i, one in enumerate(done))
            self._listener.reached(finished + runs * taken / sum(steps))

        with shared_progress(len(jobs)) as progress, Watched(progress, on_progress):
            for number, errors in self._carried_out(jobs, folder, progress):
                whole.add(number)
                folder.failed(errors)
                for run in jobs[number].runs:
                    row = folder.row(by_name[run.name])
                    if row is not None:
                        self._listener.finished(_label(by_name[run.name]), row)
            return progress.stopped

    def _with_measured_step(self, spec: RunSpec) -> RunSpec:
        """With the seconds of a step where they are to be measured: once for a folder, so that its rows compare."""
        if not spec.compute.measure:
            return spec
        name, measured = measured_name(spec), self._about["measured_step_s"]
        if name not in measured:
            measured[name] = with_measured_step(spec)[1]
        compute = spec.compute.model_copy(update={"measure": False, "seconds": measured[name]})
        return spec.model_copy(update={"compute": compute})

    def _carried_out(self, jobs: list[Job], folder: SweepFolder, progress: SharedProgress) -> Iterator[Done]:
        if self._client is not None:
            return carried_out_by_dask(jobs, folder.runs, self._client, progress)
        return carried_out(jobs, folder.runs, self._jobs, progress)


def _jobs(missing: Sequence[AskedRun], code: str, prepared: Callable[[RunSpec], RunSpec]) -> list[Job]:
    """Runs by training."""
    grouped: dict[tuple[str, int], list[SweptRun]] = {}
    for one in missing:
        run = SweptRun(one.name, prepared(one.spec), code, one.spec.compute.measure)
        grouped.setdefault((one.training, one.spec.seeds[0]), []).append(run)
    return [Job(tuple(runs)) for runs in grouped.values()]


def _label(one: AskedRun) -> str:
    """Which run it is, for people."""
    values = [
        f"{path}={value:g}" if isinstance(value, float) else f"{path}={value}" for path, value in one.values.items()
    ]
    return ", ".join([*values, f"seed {one.spec.seeds[0]}"])


def check_differ(asked: Sequence[AskedRun]) -> None:
    """Refuse configurations that are the same run.

    Raises:
        SpecError: two are.
    """
    seen: dict[str, AskedRun] = {}
    for one in asked:
        other = seen.setdefault(one.name, one)
        if other is not one:
            path = next((path for path in one.values if one.values[path] != other.values[path]), next(iter(one.values)))
            both = [other.values[path], one.values[path]]
            raise SpecError(f"--grid {path}", both, "values that make a difference: these two are the same run")
