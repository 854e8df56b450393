"""The questions that train: ``compare``, ``run``, ``sweep``, ``best``, ``replicate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import PYTHON, REQUIRED, SHELL, Question, option


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
    problem: Any = shared.problem()
    methods: Any = option("The methods; the first is the baseline of the speedups.", place=PYTHON)
    networks: Any = shared.networks()
    workers: int | None = shared.workers()
    steps: int | None = shared.steps()
    seeds: Any = shared.seeds()
    compute: Any = shared.compute()
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
    problem: Any = shared.problem()
    method: Any = shared.method()
    network: Any = shared.network()
    workers: int | None = shared.workers()
    steps: int | None = shared.steps()
    seeds: Any = shared.seeds()
    compute: Any = shared.compute()
    scale: str | None = option("Scale of the study, as in gpu, if the spec has scales.", metavar="NAME")
    out: str | Path | None = shared.out()
    exact: bool = shared.exact()
    on_progress: Callable[[int], None] | None = shared.on_progress()
    columns: str | None = shared.columns()
    json: bool = shared.json()


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
    problem: Any = shared.problem()
    method: Any = shared.method(help="The method; several methods are a grid.")
    network: Any = option("The network that times the training.", place=PYTHON)
    workers: int | None = shared.workers()
    steps: int | None = shared.steps()
    seeds: Any = option(
        "Number of seeds, as in 5, or a list of seeds, as in [3, 4]; by default the spec's.", metavar="N", reader="yaml"
    )
    compute: Any = shared.compute()
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


class Best(Question, panel=shared.TRAIN, examples=("syncline best rates", "syncline best rates --by wall_clock_s")):
    """Rank the configurations of a sweep by the median over their seeds; also show the minimum and the maximum."""

    folder: Path = option(
        "Folder of a sweep; the sweep may still be running or may have been killed.", REQUIRED, metavar="FOLDER",
        positional=True,
    )  # fmt: skip
    by: str = option("Column to rank by; smaller is better.", "loss", metavar="FIELD")
    top: int = option("Number of configurations to show.", 20, metavar="N", minimum=1)
    equal_effort: bool = option(
        "Rank the same number of configurations of each method: that of the least tuned method.", False
    )
    columns: str | None = shared.columns()
    json: bool = shared.json()


class Replicate(
    Question,
    panel=shared.TRAIN,
    examples=(
        "syncline replicate --list",
        "syncline replicate mt-dao --for 10min --jobs 1",
        "syncline replicate mt-dao --scale gpu --for 8min",
    ),
):
    """Test the claims of a paper at equal tuning effort: a search for each method, final trainings, verdicts.

    The final trainings have fresh seeds. A second call with the same arguments continues from the last finished
    training. The replications are in a checkout of the repository.

    Returns:
        The result with a row per comparison and the state of its claim; `Result.record` has ``stages``, ``effort``,
        ``chosen`` and ``left``.

    Raises:
        SynclineError: an argument is wrong, and one line says which values are accepted, before any training; or the
            package is installed without a checkout of the repository.

    >>> import syncline as sl
    >>> sl.replicate("mt-dao", most=0)
    Traceback (most recent call last):
    syncline.errors.SpecError: most: got 0; expected at least 1 training
    """

    name: str | Path = option(
        "Bundled replication, or a YAML file.", REQUIRED, in_order=True, shell_default=None, metavar="NAME",
        positional=True, reader="text", completion="replications",
    )  # fmt: skip
    scale: str | None = option(
        "Scale of the replication: cpu, or another of its scales, as larger or gpu.", metavar="NAME"
    )
    seeds: int | Sequence[int] | None = option(
        "Seeds of the final trainings: their number, as in 5, or a list, as in [3, 4].", metavar="N", reader="yaml"
    )
    most: int | None = option(
        "Largest number of trainings in this call; the same command continues later.", metavar="N"
    )
    time: float | str | None = option(
        "Time during which this call starts trainings, as in 10min; the same command continues later.", flag="--for",
        metavar="TIME",
    )  # fmt: skip
    jobs: int | None = shared.jobs()
    out: str | Path | None = option("Folder of the replication; by default results/replication/NAME.", metavar="FOLDER")
    on_stage: Callable[[Any], Any] | None = option(
        "Function from a stage to a context manager of the listener that is informed of its trainings.", place=PYTHON
    )
    on_expected: Callable[[Any], None] | None = option(
        "Function called before the first training with the number of trainings left and their expected time.",
        place=PYTHON,
    )
    list: bool = option("List the bundled replications.", False, place=SHELL)
    json: bool = shared.json()
