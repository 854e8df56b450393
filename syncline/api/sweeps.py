"""Many configurations, each with several seeds, and none run twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, told
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
        spec: of a run, see `sl.run`; or a comparison, which is its methods on its networks.
        grid: values by field: ``{"method.lr": [1e-3, 3e-3], "network": ["10gbe", "wan"]}``.
        problem: what is trained.
        method: by which method; several of them are a grid.
        network: on which network it is timed.
        workers: M.
        steps: T.
        seeds: one training each; 3 stands for 0, 1, 2.
        compute: how long a worker computes in a step.
        out: the folder that keeps finished runs: the same again goes on there. Else a temporary one that goes with the
            result.
        jobs: processes that train side by side; one per core unless given. It does not change any number.
        dask: the address of a scheduler of dask.distributed, whose workers train instead.
        search: who asks for values of what is tuned: ``optuna``.
        tune: two ends by field, for a search: ``{"method.lr": (1e-4, 1e-1)}``.
        trials: of the search, for each combination of the grid.
        equal_effort: as many configurations of each method as there are of the one with the fewest.
        **fields: others of the spec, by name or by path.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted; before anything is trained.

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
    given = {"problem": problem, "method": method, "network": network, "workers": workers, "steps": steps,
             "compute": compute}  # fmt: skip
    given |= fields
    overrides = [Override.option(path, path, value) for path, value in given.items() if value is not None]
    asked = {"kind": "run", "name": "sweep"} if spec is None else spec
    from syncline.runs.sweep import sweep as experiment

    with place(out, "sweep") as (path, scratch):
        swept = experiment.sweep(
            asked,
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
    """What `sl.sweep` returns: a `sl.Result` whose configurations can be ranked."""

    def __init__(self, swept: Swept, scratch: Scratch | None = None) -> None:
        super().__init__(
            "sweep", swept.json(), tables=partial(_tables, swept), folder=Path(swept.folder), scratch=scratch
        )

    @checked
    def best(self, by: str = "loss") -> pd.DataFrame:
        """One row per configuration, the best first: median, lowest and highest over the seeds; less is better.

        Raises:
            SpecError: there is no such number.
        """
        import pandas as pd

        return pd.DataFrame(ranked(self.rows, by))


def swept_in(folder: Path) -> SweepResult:
    """The result in a sweep's folder, also of one that goes on or was killed: of what is finished by now.

    Raises:
        SpecError: it is none.
    """
    kept = read_sweep(folder)
    return SweepResult(
        Swept(
            name=kept.about["name"],
            paths=kept.paths,
            rows=kept.rows,
            folder=str(folder),
            asked=len(kept.asked),
            repeated=len(kept.rows),
            effort=effort((one["method"], one["training"]) for one in kept.asked),
            interrupted=len(kept.rows) < len(kept.asked),
        )
    )


class _Warner(Listener):
    """Python's warnings."""

    def warns(self, lines: Sequence[str]) -> None:
        told(list(lines))


def _tables(swept: Swept) -> list[Any]:
    from syncline.runs.sweep.tables import ranking_table

    return [ranking_table(ranked(swept.rows), "loss", swept.paths, name=swept.name)] if swept.rows else []
