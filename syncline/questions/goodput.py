"""The question of ``syncline goodput``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import PYTHON, Question, option


@dataclass(frozen=True)
class Goodput(
    Question,
    command="goodput",
    panel="The clock alone",
    examples=(
        "syncline goodput --workers 1024,16384 --checkpoint 30s --restart 10min",
        "syncline goodput --failures 50000h --checkpoint 1min --interval 10min,1h,best",
        "syncline goodput --failures failures.yaml --recovery restart,reform,alone",
    ),
):
    """Return the goodput of machines that fail, the lost work, and the best interval between checkpoints.

    Nothing is trained.

    Returns:
        The result with a row per number of workers, recovery and interval.

    Raises:
        SynclineError: an argument is wrong; one line says which one, and which values are accepted.

    >>> import syncline as sl
    >>> (row,) = sl.goodput("llama-3", 16384, restart="10 min", checkpoint={"seconds": 30}).rows
    >>> round(row["best_interval_s"]), round(row["goodput"], 2)
    (798, 0.87)
    """

    failures: Any = shared.failures("llama-3", in_order=True)
    workers: int | Iterable[int] = option(
        "P, the number of workers, or several.", 1024, in_order=True, metavar="P,...", reader="values"
    )
    step_time: str | float = option("Time of a step in which nothing fails.", "10 s", in_order=True, metavar="TIME")
    recovery: str | Iterable[str] | None = option(
        "The reaction to a failure: restart (all, from a checkpoint), reform (the others go on) or alone (workers at "
        "their own pace), or several; by default that of the failures.",
        metavar="HOW,...",
        reader="words",
    )
    interval: Any = option(
        "Work between checkpoints, best or never, or several; by default that of the failures.",
        metavar="TIME,...",
        reader="words",
    )
    checkpoint: Any = shared.checkpoint()
    size: str | float | None = option("Size of a checkpoint, as 2TB.", metavar="SIZE")
    bandwidth: str | float | None = shared.bandwidth()
    mode: str | None = option("Mode of the checkpoints: blocking, asynchronous or peer.", metavar="HOW")
    restart: str | float | None = shared.restart()
    timeout: str | float | None = option("Time until the others notice a failure.", metavar="TIME")
    repair: str | float | None = option("Time until a failed machine is back.", metavar="TIME")
    spares: int | None = option("Number of machines that stand by.", metavar="S")
    duration: str | float = option("Simulated time.", "30 d", flag="--for", metavar="TIME")
    steps: int | None = option("Number of steps after which the simulation ends, in place of a time.", metavar="T")
    seeds: int = option("Number of repetitions with other failures; rows are means over them.", 1, metavar="S")
    period: int = option(
        "Steps from one exchange to the next, for workers that recover alone; for reform, a failed worker loses its "
        "work since the last exchange.",
        1,
        metavar="H",
    )
    fields: Any = option("Other fields of the failures, by name: node=8, outages='log.csv'.", place=PYTHON)
    json: bool = shared.json()
