"""The question of ``syncline run``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from syncline.questions import shared, training
from syncline.questions.declare import REQUIRED, Question, option


class Run(
    Question,
    panel=shared.TRAIN,
    examples=(
        "syncline run rosenbrock-mt-dao --set method.period=8 --set steps=200",
        "syncline run rosenbrock-mt-dao --network wan --out results/wan",
        "syncline run staleness-quadratic",
    ),
):
    """Train one method and time it on one network, in full detail; or run a study, which has no network.

    Returns:
        The result with a row per seed; for a study, the rows of the study.

    >>> import syncline as sl
    >>> result = sl.run(
    ...     problem={"kind": "quadratic", "spectrum": [1.0, 0.1]}, method="ddp-sgdm", network="wan",
    ...     workers=2, steps=20, compute={"seconds": 1e-3},
    ... )
    >>> result.rows[0]["steps"], result.rows[0]["bytes_per_worker"]
    (20, 8.0)
    """

    spec: Any = shared.spec(shell_default=REQUIRED, completion="specs_of:run")
    fields: Mapping[str, Any] | None = shared.fields()
    problem: Any = training.problem()
    method: Any = training.method()
    network: Any = shared.network()
    workers: int | None = training.workers()
    steps: int | None = training.steps()
    seeds: Any = shared.seeds()
    compute: Any = training.compute()
    scale: str | None = option("Scale of the study, as in gpu, if the spec has scales.", metavar="NAME")
    out: str | Path | None = shared.out()
    exact: bool = shared.exact()
    on_progress: Callable[[int], None] | None = training.on_progress()
    columns: str | None = shared.columns()
    json: bool = shared.json()
