"""Sweeps: many configurations, each with several seeds; a finished run is not repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, warn_lines
from syncline.runs.sweep.folder import read_sweep
from syncline.runs.sweep.listener import Listener
from syncline.runs.sweep.ranking import effort, ranked
from syncline.runs.sweep.swept import Swept
from syncline.specs import Override

if TYPE_CHECKING:
    import pandas as pd


@checked
def sweep(
    spec: Asked = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    problem: Any = None,
    method: Any = None,
    network: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    compute: Any = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    search: str | None = None,
    tune: Mapping[str, Any] | None = None,
    trials: int | None = None,
    equal_effort: bool = False,
    **fields: Any,
) -> SweepResult:
    """Train and time every combination of values for a spec's fields, with every seed.

    Args:
        spec: the spec of a run, see `sl.run`; or of a comparison, which stands for its methods on its networks.
        grid: values by field: ``{"method.lr": [1e-3, 3e-3], "network": ["10gbe", "wan"]}``.
        problem: the problem to train.
        method: the method; several methods are a grid.
        network: the network that times the training.
        workers: M, the number of workers.
        steps: T, the number of steps.
        seeds: seeds, one training each; 3 stands for 0, 1, 2.
        compute: computing time of a worker in a step.
        out: the folder of finished runs; a second call with the same folder continues there. By default a temporary
            folder that is removed with the result.
        jobs: number of processes that train side by side; one per core by default. It changes no result.
        dask: address of a scheduler of dask.distributed, whose workers train instead.
        search: the search that proposes values of the tuned fields: ``optuna``.
        tune: lower and upper bound by field, for a search: ``{"method.lr": (1e-4, 1e-1)}``.
        trials: number of trials of the search, for each combination of the grid.
        equal_effort: run as many configurations of each method as there are of the method with the fewest.
        **fields: other fields of the spec, by name or by path.

    Returns:
        The result with a row per configuration and seed; `SweepResult.best` ranks the configurations.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted, before any
            training.

    >>> import syncline as sl
    >>> result = sl.sweep(
    ...     {"kind": "run", "name": "bowl", "problem": {"kind": "quadratic", "spectrum": [1.0, 0.1]}},
    ...     {"method.lr": [0.001, 0.01]}, method="ddp-sgdm", network="wan", workers=2, steps=20, seeds=2,
    ...     compute={"seconds": 1e-3}, jobs=1,
    ... )
    >>> [(row["method.lr"], row["seed"]) for row in result.rows]
    [(0.001, 0), (0.001, 1), (0.01, 0), (0.01, 1)]
    >>> result.best()["method.lr"].tolist()
    [0.01, 0.001]
    """
    named_fields = {"problem": problem, "method": method, "network": network, "workers": workers, "steps": steps,
             "compute": compute}  # fmt: skip
    named_fields |= fields
    overrides = [Override.option(path, path, value) for path, value in named_fields.items() if value is not None]
    source = {"kind": "run", "name": "sweep"} if spec is None else spec
    from syncline.runs.sweep import sweep as experiment

    with place(out, "sweep") as (path, scratch):
        swept = experiment.sweep(
            source,
            grid or {},
            seeds=seeds,
            overrides=overrides,
            out=path,
            jobs=jobs,
            dask=dask,
            search=search,
            tune=tune or {},
            trials=trials,
            equal_effort=equal_effort,
            listener=_Warner(),
        )
    return SweepResult(swept, scratch)


class SweepResult(Result):
    """The result of `sl.sweep`: a `sl.Result` that can rank its configurations."""

    def __init__(self, swept: Swept, scratch: Scratch | None = None) -> None:
        super().__init__(
            "sweep", swept.json(), tables=partial(_tables, swept), folder=Path(swept.folder), scratch=scratch
        )

    @checked
    def best(self, by: str = "loss") -> pd.DataFrame:
        """Return one row per configuration, the best first: median, lowest and highest value over the seeds.

        Args:
            by: name of the number to rank by; less is better.

        Raises:
            SpecError: the rows have no such number.
        """
        import pandas as pd

        return pd.DataFrame(ranked(self.rows, by))


def read_sweep_result(folder: Path) -> SweepResult:
    """Return the result of the finished runs in a sweep's folder, also if the sweep still runs or was killed.

    Raises:
        SpecError: the folder is not a sweep's.
    """
    stored = read_sweep(folder)
    return SweepResult(
        Swept(
            name=stored.about["name"],
            paths=stored.paths,
            rows=stored.rows,
            folder=str(folder),
            asked=len(stored.asked),
            repeated=len(stored.rows),
            effort=effort((run["method"], run["training"]) for run in stored.asked),
            interrupted=len(stored.rows) < len(stored.asked),
        )
    )


class _Warner(Listener):
    """A listener that turns a sweep's warnings into Python's warnings."""

    def warns(self, lines: Sequence[str]) -> None:
        warn_lines(list(lines))


def _tables(swept: Swept) -> list[Any]:
    from syncline.runs.sweep.tables import ranking_table

    return [ranking_table(ranked(swept.rows), "loss", swept.paths, name=swept.name)] if swept.rows else []
