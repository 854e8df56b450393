"""The question of ``syncline solve``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, option

VARIABLES = ("bandwidth", "latency", "period", "delay", "workers", "network")
"""Variables to solve for."""

TARGETS, WHERE = "Targets", "Where"


class Solve(
    shared.Projection,
    panel=shared.CLOCK,
    examples=(
        "syncline solve bandwidth --cluster two-sites-a100 --tokens 9B --deadline 1d",
        "syncline solve latency --model llama-7b --network wan --exposed 80%",
        "syncline solve period --network wan --method diloco --step-time 0.5s",
        "syncline solve delay --network wan --method streaming-diloco --exposed 0",
        "syncline solve workers --cluster two-sites-a100 --tokens 9B --deadline 2h",
        "syncline solve network --among 1gbe=400,10gbe=2k --network wan --speedup 2",
    ),
):
    """Find what meets a target: bandwidth, latency, period, delay, workers or network.

    Each answer has an interval from the bounds of the time. If no value meets the target, the table says why.

    Returns:
        The result with a row per method, best first: ``holds`` says where the target is met, ``value`` is the solution,
        ``low`` and ``high`` are the solutions at the bounds of the clock. Each row also has `sl.project`'s row there.

    >>> import syncline as sl
    >>> asked = {"model": "llama-7b", "cluster": "two-sites-a100", "layout": "data=32", "methods": "diloco"}
    >>> (row,) = sl.solve("bandwidth", **asked, tokens="140B", deadline="30d").rows
    >>> f"{row['holds']} {8 * row['value'] / 1e6:.0f} Mbit/s, {8 * row['low'] / 1e6:.0f} to {8 * row['high'] / 1e6:.0f}"
    'from 899 Mbit/s, 545 to 2901'
    """

    variable: str = option(
        "Variable to solve for: bandwidth, latency, period, delay, workers or network.", REQUIRED, in_order=True,
        metavar="WHAT", positional=True, completion=VARIABLES,
    )  # fmt: skip
    deadline: str | float | None = option(
        "Longest time of the whole training, as in 30d.", metavar="TIME", panel=TARGETS
    )
    budget: str | float | None = option(
        "Largest cost of the whole training, as in 50k; needs prices.", metavar="MONEY", panel=TARGETS
    )
    step_time: str | float | None = option("Longest mean time of a step, as in 2s.", metavar="TIME", panel=TARGETS)
    utilisation: str | float | None = option(
        "Least share of the hardware's peak FLOP/s that the training uses, as in 0.4.", metavar="PART", panel=TARGETS
    )
    compute_utilisation: str | float | None = option(
        "Least share of a step's time spent computing, as in 80%.", metavar="PART", panel=TARGETS
    )
    exposed: str | float | None = option(
        "Largest share of a step's time spent waiting for the network, as in 5%.", metavar="PART", panel=TARGETS
    )
    speedup: str | float | None = option("Least speedup over the baseline, as in 2.", metavar="TIMES", panel=TARGETS)
    over: str | None = option(
        "Baseline method of the speedup; by default ddp-adam.", metavar="METHOD", panel=TARGETS, completion="methods"
    )
    loss_penalty: str | float | None = option(
        "Largest excess of the predicted loss over that of data parallelism, as in 1%.", metavar="PART", panel=TARGETS
    )
    fits: bool | None = option(
        "Require that each worker's state fits into its memory; the default when solving for workers.",
        flag="--fits/--no-fits", panel=TARGETS,
    )  # fmt: skip
    batch_tokens: str | float | None = option(
        "Number of tokens in a step of all workers, as in 2M; by default 32,768 per worker, or with best the optimum "
        "of the published fits.", metavar="B",
    )  # fmt: skip
    level: str | int | None = option(
        "Level of the network to solve for, if it has several; by default the outermost.", metavar="NAME", panel=WHERE
    )
    among: Any = option(
        "Links to choose from, each with =PRICE for its price per month.",
        description="Links to choose from: names, or links; a mapping has the price of each per month.",
        metavar="NET,...", panel=WHERE, completion="networks",
    )  # fmt: skip
    most: int | None = option(
        "Largest number of workers to try; by default 16 times the cluster's workers.", metavar="P"
    )
    best: bool = option("Allow any plan of 'syncline advise': methods, layouts and sharding.", False)
    methods: Any = shared.methods(
        "Method: a name from 'syncline list methods'; repeatable; by default ddp-adam, diloco and streaming-diloco."
    )
    csv: Path | None = shared.csv()
    strict: bool = shared.strict()
    json: bool = shared.json()
