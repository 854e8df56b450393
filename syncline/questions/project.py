"""The question of ``syncline project``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import SHELL, option


class Project(
    shared.FailingMachines,
    shared.Projection,
    panel=shared.CLOCK,
    examples=(
        "syncline project",
        "syncline project --model mt-dao-1.3b --workers 16 --network wan",
        "syncline project --model llama-7b --cluster two-sites-a100 --method diloco",
        "syncline project --workers 8,64,512 --plot speedup.pdf --csv rows.csv",
        "syncline project --network 10gbe --grid network.latency=50us,1ms",
    ),
):
    """Project the time of a training in closed form, without training.

    Several models, hardware, workers, methods and networks give a row for every combination. With --grid, a parquet
    file holds any number of rows.

    Returns:
        The result with a row per method and setting.

    >>> import syncline as sl
    >>> result = sl.project(workers=[8, 64], methods=["ddp-adam", "diloco"], networks=["10gbe"])
    >>> [(row["method"], row["workers"], round(row["speedup"], 1)) for row in result.rows]
    [('ddp-adam', 8, 1.0), ('diloco', 8, 5.7), ('ddp-adam', 64, 1.0), ('diloco', 64, 11.0)]
    """

    methods: Any = shared.methods(
        "Method: a name from 'syncline list methods'; repeatable, and the first is the baseline."
    )
    batch_tokens: str | float | None = option(
        "Number of tokens in a step of all workers, as in 2M; by default between the best batches of published fits.",
        metavar="B",
    )
    period: str | int | None = option(
        "Number of steps between exchanges of methods that exchange now and then, or preset for the methods' own; by "
        "default 30.", metavar="H",
    )  # fmt: skip
    placement: str | None = option(
        "Where the ranks lie on a matrix of places: given, stages-inside, replicas-inside, or search for the fastest.",
        metavar="RULE",
    )  # fmt: skip
    thresholds: bool | None = option(
        "Print the bandwidths below which each method is faster than the baseline; by default with up to 1,000 rows.",
        flag="--thresholds/--no-thresholds",
    )
    grid: Sequence[str] | None = option(
        "Values of a field, as in workers=8,64 or network.latency=50us,1ms, or a YAML list; repeatable.",
        metavar="FIELD=VALUES", repeatable=True, place=SHELL,
    )  # fmt: skip
    csv: Path | None = shared.csv()
    parquet: Path | None = option(
        "Parquet file for the rows; NAME.parquet by default with --grid.", metavar="FILE", place=SHELL
    )
    plot: Path | None = shared.plot("Draw the speedup against the bandwidth, or the figure of a paper.")
    columns: str | None = shared.columns()
    strict: bool = shared.strict()
    json: bool = shared.json()
