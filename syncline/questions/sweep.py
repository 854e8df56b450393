"""The question of ``syncline sweep``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared, training
from syncline.questions.declare import REQUIRED, Question, option


class Sweep(
    Question,
    panel=shared.TRAIN,
    examples=(
        "syncline sweep rosenbrock-mt-dao --grid method.lr=1e-3,3e-3 --out rates",
        "syncline sweep rosenbrock-mt-dao --grid network=10gbe,wan --seeds 3",
        "syncline best rates",
    ),
):
    """Train every combination of values, with several seeds each. Finished trainings are kept and never run again.

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

    returns = "SweepResult"

    spec: Any = shared.spec(shell_default=REQUIRED, completion="specs_of:run,compare")
    grid: Mapping[str, Sequence[Any]] | None = option(
        "Values of a field, as in method.lr=1e-3,3e-3 or a YAML list; repeatable.",
        description="Values by field: {'method.lr': [1e-3, 3e-3], 'network': ['10gbe', 'wan']}.", in_order=True,
        metavar="FIELD=VALUES", reader="grids", repeatable=True,
    )  # fmt: skip
    problem: Any = training.problem()
    method: Any = training.method(help="The method; several methods are a grid.")
    network: Any = training.method(help="The network that times the training.")
    workers: int | None = training.workers()
    steps: int | None = training.steps()
    seeds: Any = option(
        "Number of seeds, as in 5, or a list of seeds, as in [3, 4]; by default the spec's.", metavar="N", reader="yaml"
    )
    compute: Any = training.compute()
    fields: Mapping[str, Any] | None = shared.fields()
    tune: Mapping[str, Any] | None = option(
        "Field to search over, with its range, as in method.lr=1e-4..1e-1; repeatable.",
        description="Lower and upper bound by field, for a search: {'method.lr': (1e-4, 1e-1)}.",
        metavar="FIELD=LOW..HIGH", reader="ranges", repeatable=True,
    )  # fmt: skip
    search: str | None = option("Search algorithm: optuna.", metavar="NAME")
    trials: int | None = option("Number of trials for each combination of the grids.", metavar="N")
    equal_effort: bool = option(
        "Train the same number of configurations of each method: the smallest that any method has.", False
    )
    jobs: int | None = shared.jobs()
    dask: str | None = option("Address of a dask scheduler whose workers run the trainings.", metavar="ADDRESS")
    out: str | Path | None = shared.out(
        help="Folder of the sweep; the same command continues the sweep there. runs/NAME-sweep by default.",
        description="Folder of the sweep, where a second call continues; by default a temporary one that goes with the "
        "result.",
    )
    json: bool = shared.json()
