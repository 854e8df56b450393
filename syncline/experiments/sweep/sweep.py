"""``syncline sweep``: from a spec and grids to rows, by way of folders that are never made twice."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from syncline.errors import SpecError
from syncline.experiments.folder import environment
from syncline.experiments.shared_progress import SharedProgress, Watched, shared_progress
from syncline.experiments.sweep.folder import AskedRun, SweepFolder
from syncline.experiments.sweep.grid import Configuration, Grid, SweptSpec, configurations, seeds_of
from syncline.experiments.sweep.identity import code_version, run_names, training_name
from syncline.experiments.sweep.listener import Listener
from syncline.experiments.sweep.pool import Done, Job, carried_out
from syncline.experiments.sweep.ranking import effort
from syncline.experiments.sweep.runs import SweptRun
from syncline.experiments.sweep.swept import Swept
from syncline.specs import Override

MOST_RUNS = 1_000_000
"""A choice: more folders than most file systems like."""

Batches = Generator[list[Configuration], list[dict[str, Any]], None]
"""Configurations to be run next; it is sent their rows."""


def sweep(
    spec: str | Path | Mapping[str, Any] | BaseModel,
    grid: Mapping[str, Sequence[Any]] | Sequence[Grid] = (),
    *,
    seeds: int | Sequence[int] | None = None,
    overrides: Mapping[str, Any] | Sequence[Override] = (),
    out: str | Path | None = None,
    jobs: int | None = None,
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
        listener: what is told of how far it is.

    Raises:
        SpecError: a configuration that cannot be trained, found before anything is.
    """
    base, grids = _base_and_grids(spec, grid, overrides)
    chosen = seeds_of(seeds)
    batches = _once(configurations(base, grids, chosen))
    about = {"name": base.name, "grids": {one.path: one.shown for one in grids}}
    first = next(batches)
    runs = sum(len(one.spec.seeds) for one in first)
    return _Sweep(batches, first, runs, about, jobs, listener or Listener()).run(base.name, out)


def _base_and_grids(
    spec: Any, grid: Mapping[str, Sequence[Any]] | Sequence[Grid], overrides: Mapping[str, Any] | Sequence[Override]
) -> tuple[SweptSpec, list[Grid]]:
    given = [Grid.of(path, values) for path, values in grid.items()] if isinstance(grid, Mapping) else list(grid)
    if isinstance(overrides, Mapping):
        overrides = [Override.option(f"overrides[{path!r}]", path, value) for path, value in overrides.items()]
    base = SweptSpec.of(spec, overrides, given)
    return base, [*base.grids, *given]


def _once(made: list[Configuration]) -> Batches:
    yield made


class _Sweep:
    """A sweep under way: what was asked for so far, batch by batch."""

    def __init__(
        self,
        batches: Batches,
        first: list[Configuration],
        runs: int,
        about: dict[str, Any],
        jobs: int | None,
        listener: Listener,
    ) -> None:
        self._batches, self._about, self._jobs, self._listener = batches, about, jobs, listener
        self._code = code_version()
        self._first = self._asked_of(first)
        self._runs = runs
        self._asked: list[AskedRun] = []
        self._repeated = 0
        check_differ(self._first)

    def run(self, name: str, out: str | Path | None) -> Swept:
        self._about |= {"code": self._code} | environment()
        new: list[AskedRun] | None = self._first
        self._listener.warns(list(dict.fromkeys(line for one in self._first for line in one.spec.warnings())))
        with SweepFolder(Path(out) if out else Path("runs") / f"{name}-sweep", exact=out is not None) as folder:
            stopped = False
            while new and not stopped:
                self._asked += new
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
        jobs = _jobs(missing, self._code)
        if not jobs:
            return False
        by_name = {one.name: one for one in asked}
        steps = [job.steps for job in jobs]
        whole: set[int] = set()  # jobs that are done, also where a training ended before its last step

        def on_progress(done: list[int]) -> None:
            taken = sum(steps[i] if i in whole else one for i, one in enumerate(done))
            self._listener.reached(finished + len(missing) * taken / sum(steps))

        with shared_progress(len(jobs)) as progress, Watched(progress, on_progress):
            for number, errors in self._carried_out(jobs, folder, progress):
                whole.add(number)
                folder.failed(errors)
                for run in jobs[number].runs:
                    row = folder.row(by_name[run.name])
                    if row is not None:
                        self._listener.finished(_label(by_name[run.name]), row)
            return progress.stopped

    def _carried_out(self, jobs: list[Job], folder: SweepFolder, progress: SharedProgress) -> Iterator[Done]:
        return carried_out(jobs, folder.runs, self._jobs, progress)


def _jobs(missing: Sequence[AskedRun], code: str) -> list[Job]:
    """Runs by training."""
    grouped: dict[tuple[str, int], list[SweptRun]] = {}
    for one in missing:
        grouped.setdefault((one.training, one.spec.seeds[0]), []).append(SweptRun(one.name, one.spec, code))
    return [Job(tuple(runs)) for runs in grouped.values()]


def _label(one: AskedRun) -> str:
    """Which run it is, for people."""
    return ", ".join([*(f"{path}={value}" for path, value in one.values.items()), f"seed {one.spec.seeds[0]}"])


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
