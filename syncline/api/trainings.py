"""Trainings in one process: a comparison of several methods, or one run in detail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from syncline.api.arguments import checked
from syncline.api.places import Scratch, place
from syncline.api.result import Result
from syncline.api.spec_arguments import Asked, spec_of
from syncline.specs import CompareSpec, Experiment, RunSpec


@checked
def compare(
    spec: Asked = None,
    *,
    problem: Any = None,
    methods: Any = None,
    networks: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    compute: Any = None,
    out: str | Path | None = None,
    exact: bool = True,
    jobs: int | None = None,
    on_progress: Callable[[list[int]], None] | None = None,
    **fields: Any,
) -> Result:
    """Train several methods and time each on several networks: the loss and the clock.

    Arguments accept the values of a spec's fields (docs/specs.md), and Python objects: a problem, a method, a network.

    Args:
        spec: a bundled spec's name, a YAML file, fields, or a spec; the other arguments replace its fields. Without it,
            the other arguments make the spec.
        problem: the problem to train.
        methods: the methods; the first is the baseline of the speedups.
        networks: the networks that time each method.
        workers: M, the number of workers.
        steps: T, the number of steps.
        seeds: seeds of the repetitions; 3 stands for 0, 1, 2.
        compute: computing time of a worker in a step.
        out: the folder to write, with figures; by default a temporary folder that is removed with the result.
        exact: refuse a folder that exists, instead of adding a number to its name.
        jobs: number of processes that train side by side; one per core by default. It changes no result.
        on_progress: function called now and then with the completed steps of each method.
        **fields: other fields of the spec, by name or by path: ``eval_every=10``, ``**{"methods.1.period": 8}``.

    Returns:
        The result with a row per method and network.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.

    >>> import syncline as sl
    >>> result = sl.compare(
    ...     problem={"kind": "rosenbrock", "noise_std": 1.0}, workers=4, steps=40, seeds=2, jobs=1,
    ...     methods=["ddp-adam", {"kind": "local", "lr": 0.01, "period": 8}],
    ...     networks=["10gbe", sl.Link("20 ms", "1 Gbit/s", name="dsl")], compute={"seconds": "1 ms"},
    ... )
    >>> [(row["method"], row["network"], round(row["speedup"], 1)) for row in result.rows]
    [('ddp-adam', '10gbe', 1.0), ('local-adam', '10gbe', 1.1), ('ddp-adam', 'dsl', 1.0), ('local-adam', 'dsl', 6.8)]
    """
    named_fields = {"problem": problem, "methods": methods, "networks": networks, "workers": workers, "steps": steps,
             "seeds": seeds, "compute": compute}  # fmt: skip
    loaded: CompareSpec = spec_of(spec, named_fields | fields, CompareSpec, kind="compare")
    from syncline.runs import compare as experiment

    with place(out, loaded.name) as (path, scratch):
        answer = experiment.compare(
            loaded, path, exact=exact and out is not None, jobs=jobs, figures=out is not None, on_progress=on_progress
        )
    return comparison_result(loaded, answer, scratch)


def comparison_result(spec: CompareSpec, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of a comparison from its answer."""
    from syncline.planner.tables.display import compare_tables

    tables = partial(compare_tables, answer["rows"], spec)
    return Result("compare", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)


@checked
def run(
    spec: Asked = None,
    *,
    problem: Any = None,
    method: Any = None,
    network: Any = None,
    workers: int | None = None,
    steps: int | None = None,
    seeds: Any = None,
    compute: Any = None,
    scale: str | None = None,
    out: str | Path | None = None,
    exact: bool = True,
    on_progress: Callable[[int], None] | None = None,
    **fields: Any,
) -> Result:
    """Train one method on one network in full detail; or run a study, which no network times.

    Args:
        spec: see `sl.compare`; also the spec of a study.
        problem: the problem to train.
        method: the method.
        network: the network that times the training.
        workers: M, the number of workers.
        steps: T, the number of steps.
        seeds: seeds of the repetitions; 3 stands for 0, 1, 2.
        compute: computing time of a worker in a step.
        scale: one of the spec's scales.
        out: see `sl.compare`.
        exact: see `sl.compare`.
        on_progress: function called now and then with the number of completed steps.
        **fields: other fields of the spec.

    Returns:
        The result with a row per seed; for a study, the rows of the study.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.

    >>> import syncline as sl
    >>> result = sl.run(
    ...     problem={"kind": "quadratic", "spectrum": [1.0, 0.1]}, method="ddp-sgdm", network="wan",
    ...     workers=2, steps=20, compute={"seconds": 1e-3},
    ... )
    >>> result.rows[0]["steps"], result.rows[0]["bytes_per_worker"]
    (20, 8.0)
    """
    named_fields = {"problem": problem, "method": method, "network": network, "workers": workers, "steps": steps,
             "seeds": seeds, "compute": compute}  # fmt: skip
    loaded: Experiment = spec_of(spec, named_fields | fields, RunSpec, kind="run", studies_of="run", scale=scale)
    from syncline.runs import run as experiment

    with place(out, loaded.name) as (path, scratch):
        answer = experiment.run(
            loaded, path, exact=exact and out is not None, figures=out is not None, on_progress=on_progress
        )
    return run_result(loaded, answer, scratch)


def run_result(spec: Experiment, answer: dict[str, Any], scratch: Scratch | None = None) -> Result:
    """Return the result of a run, or of a study, from its answer."""
    from syncline.planner.tables.display import run_tables

    tables = partial(run_tables, answer["rows"], spec)
    return Result("run", answer, spec, tables=tables, folder=Path(answer["folder"]), scratch=scratch)
