"""The question of ``syncline compare``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from syncline.questions import shared, training
from syncline.questions.declare import PYTHON, SHELL, Question, option


class Compare(
    Question,
    panel=shared.TRAIN,
    examples=(
        "syncline compare",
        "syncline compare digits-skewed --set steps=100 --network wan",
        "syncline compare my-spec.yaml --out results/first --json > rows.json",
    ),
):
    """Train several methods and time each of them on several networks: loss and clock.

    Returns:
        The result with a row per method and network.

    >>> import syncline as sl
    >>> result = sl.compare(
    ...     problem={"kind": "rosenbrock", "noise_std": 1.0}, workers=4, steps=40, seeds=2, jobs=1,
    ...     methods=["ddp-adam", {"kind": "local", "lr": 0.01, "period": 8}],
    ...     networks=["10gbe", sl.Link("20 ms", "1 Gbit/s", name="dsl")], compute={"seconds": "1 ms"},
    ... )
    >>> [(row["method"], row["network"], round(row["speedup"], 1)) for row in result.rows]
    [('ddp-adam', '10gbe', 1.0), ('local-adam', '10gbe', 1.1), ('ddp-adam', 'dsl', 1.0), ('local-adam', 'dsl', 6.8)]
    """

    spec: Any = shared.spec(shell_default="compare-text", completion="specs_of:compare")
    fields: Mapping[str, Any] | None = shared.fields()
    problem: Any = training.problem()
    methods: Any = option("The methods; the first is the baseline of the speedups.", place=PYTHON)
    networks: Any = shared.networks()
    workers: int | None = training.workers()
    steps: int | None = training.steps()
    seeds: Any = shared.seeds()
    compute: Any = training.compute()
    text: str | None = option("Text file to train on, for problems on text.", metavar="FILE", place=SHELL)
    out: str | Path | None = shared.out()
    exact: bool = shared.exact()
    jobs: int | None = shared.jobs(
        help="Number of trainings in parallel; by default one per core. It changes no result."
    )
    on_progress: Callable[[list[int]], None] | None = option(
        "Function called now and then with the completed steps of each method.", place=PYTHON
    )
    columns: str | None = shared.columns()
    json: bool = shared.json()
