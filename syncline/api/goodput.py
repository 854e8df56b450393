"""Costs of failures, computed without a training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.api.spec_arguments import listed
from syncline.specs.failures import parse_failures
from syncline.units import parse_seconds


@checked
def goodput(
    failures: Any = "llama-3",
    workers: int | Iterable[int] = 1024,
    step_time: str | float = "10 s",
    *,
    recovery: str | Iterable[str] | None = None,
    interval: Any = None,
    duration: str | float = "30 d",
    steps: int | None = None,
    seeds: int = 1,
    period: int = 1,
    **fields: Any,
) -> Result:
    """Return the goodput of machines that fail, the lost work, and the best interval between checkpoints.

    Nothing is trained.

    Args:
        failures: the name of a published failure rate, the mean time between failures of a worker, fields, or a YAML
            file.
        workers: P, the number of workers, or several.
        step_time: time of a step without a failure.
        recovery: the reaction to a failure, ``restart``, ``reform`` or ``alone``, or several; by default that of the
            failures.
        interval: work between checkpoints, ``best`` or ``never``, or several; by default that of the failures.
        duration: simulated time.
        steps: number of steps after which the simulation ends, instead of ``duration``.
        seeds: number of repetitions with other failures; rows are means over them.
        period: steps from one model to the next, for workers that recover ``alone``; steps between exchanges for
            ``reform``, where a failed worker loses its work since the last exchange.
        **fields: fields of the failures, by name: ``spares=8``, ``restart="5 min"``, ``checkpoint={"seconds": 60}``.

    Returns:
        The result with a row per number of workers, recovery and interval.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.

    >>> import syncline as sl
    >>> (row,) = sl.goodput("llama-3", 16384, restart="10 min", checkpoint={"seconds": 30}).rows
    >>> round(row["best_interval_s"]), round(row["goodput"], 2)
    (798, 0.87)
    """
    from syncline.planner.goodput.question import GoodputQuestion, interval_of
    from syncline.planner.goodput.rows import goodput_rows, notes
    from syncline.planner.goodput.tables import goodput_tables

    model = parse_failures(failures)
    if fields:
        model = parse_failures(model.model_dump(mode="json", exclude_unset=True) | fields)
    question = GoodputQuestion(
        model,
        listed(workers),
        parse_seconds(step_time, "--step-time"),
        [model.recovery] if recovery is None else listed(recovery),
        [model.checkpoint.interval] if interval is None else [interval_of(value) for value in listed(interval)],
        parse_seconds(duration, "--duration"),
        steps,
        seeds,
        period,
    )
    rows = goodput_rows(question)
    remarks = notes(question, rows)
    saved_fields = {"failures": model.model_dump(mode="json")}
    return Result(
        "goodput",
        {"rows": rows, "notes": remarks},
        tables=lambda: goodput_tables(rows, remarks),
        asked=lambda: saved_fields,
    )
