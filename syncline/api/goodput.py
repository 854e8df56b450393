"""What failures cost, without a training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.api.spec_arguments import listed
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
    """What machines that fail leave of a training: goodput, lost work, and how often to save. Nothing is trained.

    Args:
        failures: a published rate's name, the mean time between failures of a worker, fields, or a YAML file.
        workers: P, or several.
        step_time: of a step in which nothing fails.
        recovery: ``restart``, ``reform`` or ``alone``, or several; what the failures say unless given.
        interval: work between checkpoints, ``best`` or ``never``, or several; likewise.
        duration: of the clock that is played.
        steps: in its place: until so many are done.
        seeds: with failures of their own; rows are means.
        period: steps from one model to the next, of workers ``alone``; from one exchange to the next with ``reform``,
            where who fails has lost what it did since the last.
        **fields: of the failures, by name: ``spares=8``, ``restart="5 min"``, ``checkpoint={"seconds": 60}``.

    Raises:
        SynclineError: one line: what is wrong, where, and what would be accepted.

    >>> import syncline as sl
    >>> (row,) = sl.goodput("llama-3", 16384, restart="10 min", checkpoint={"seconds": 30}).rows
    >>> round(row["best_interval_s"]), round(row["goodput"], 2)
    (798, 0.87)
    """
    from syncline.planner.goodput.question import GoodputQuestion, interval_of
    from syncline.planner.goodput.rows import goodput_rows, notes
    from syncline.planner.goodput.tables import goodput_tables
    from syncline.specs.failures import failures_of

    given = failures_of(failures)
    if fields:
        given = failures_of(given.model_dump(mode="json", exclude_unset=True) | fields)
    question = GoodputQuestion(
        given,
        listed(workers),
        parse_seconds(step_time, "--step-time"),
        [given.recovery] if recovery is None else listed(recovery),
        [given.checkpoint.interval] if interval is None else [interval_of(one) for one in listed(interval)],
        parse_seconds(duration, "--duration"),
        steps,
        seeds,
        period,
    )
    rows = goodput_rows(question)
    said = notes(question, rows)
    asked = {"failures": given.model_dump(mode="json")}
    return Result(
        "goodput", {"rows": rows, "notes": said}, tables=lambda: goodput_tables(rows, said), asked=lambda: asked
    )
