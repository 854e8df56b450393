"""The question of ``syncline goodput``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import PYTHON, Question, option


class Goodput(
    Question,
    panel=shared.CLOCK,
    examples=(
        "syncline goodput --workers 1024,16384 --checkpoint 30s --restart 10min",
        "syncline goodput --failures 50000h --checkpoint 1min --interval 10min,1h,best",
        "syncline goodput --failures failures.yaml --recovery restart,elastic,alone",
    ),
):
    """Simulate failures of a training, without training: goodput, lost work and the best checkpoint interval.

    Returns:
        The result with a row per number of workers, recovery and interval.

    >>> import syncline as sl
    >>> (row,) = sl.goodput("llama-3", 16384, restart="10 min", checkpoint={"write_time": 30}).rows
    >>> round(row["best_interval_s"]), round(row["goodput"], 2)
    (798, 0.87)
    """

    failures: Any = shared.failures(default="llama-3", in_order=True)
    workers: int | Iterable[int] = option(
        "Numbers of workers, as in 1024,16384.", 1024, in_order=True, metavar="P,...", reader="values"
    )
    step_time: str | float = option("Duration of a step without failures.", "10 s", in_order=True, metavar="TIME")
    recovery: str | Iterable[str] | None = option(
        "Recovery from failures: restart (all workers, from a checkpoint), elastic (the others continue) or alone "
        "(each worker continues at its own pace); by default that of the failures.", metavar="HOW,...", reader="words",
    )  # fmt: skip
    interval: Any = option(
        "Time between checkpoints; or best, or never; by default that of the failures.", metavar="TIME,...",
        reader="words",
    )  # fmt: skip
    checkpoint: Any = shared.checkpoint()
    size: str | float | None = option("Size of a checkpoint, as in 2TB.", metavar="SIZE")
    bandwidth: str | float | None = shared.bandwidth()
    mode: str | None = option("Checkpointing mode: blocking, asynchronous or peer.", metavar="HOW")
    restart: str | float | None = shared.restart()
    timeout: str | float | None = option("Time until the other workers detect a failure.", metavar="TIME")
    repair: str | float | None = shared.repair()
    spares: int | None = option("Number of spare machines.", metavar="S")
    duration: str | float = option("Duration to simulate.", "30 d", flag="--for", metavar="TIME")
    steps: int | None = option("Number of steps to simulate; replaces the duration.", metavar="T")
    seeds: int = option("Number of simulations, each with its own random failures.", 1, metavar="S")
    period: int = option("Number of steps between exchanges, for recovery without restarts.", 1, metavar="H")
    fields: Mapping[str, Any] | None = option(
        "Other fields of the failures, by name: workers_per_node=8, outages='log.csv'.", place=PYTHON
    )
    strict: bool = shared.strict()
    json: bool = shared.json()
