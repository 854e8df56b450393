"""The questions about the projected time of a training: ``project``, ``solve``, ``advise``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, SHELL, option


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
    batch_tokens: str | float | None = shared.batch_tokens()
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
    'from 899 Mbit/s, 545 to 2902'
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
    batch_tokens: str | float | None = shared.batch_tokens()
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


class Advise(
    shared.FailingMachines,
    panel=shared.CLOCK,
    examples=(
        "syncline advise --model llama-7b --cluster two-sites-a100 --tokens 140B",
        "syncline advise --model llama-7b --cluster two-sites-a100 --extrapolate",
        "syncline advise --model gpt-160m --network wan --hardware h100 --workers 4",
        "syncline advise --model llama-7b --cluster two-sites-a100 --failures llama-3",
    ),
):
    """Rank the plans that train a model on a cluster, by time to equal loss if a published fit predicts their loss.

    A plan is a method between the replicas and a layout inside each replica. Every plan has its time, utilisation,
    memory, bytes sent over each network level, money and energy, with bounds. The result also says which plans tie,
    what decides the ranking, what would change it, and what is unknown.

    Returns:
        The result with a row per plan; `Result.json` also has ``ties``, ``thresholds`` and sentences.

    >>> import syncline as sl
    >>> methods = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}]
    >>> advice = sl.advise("gpt-160m", network="two-sites", hardware="h100", workers=4, methods=methods)
    >>> [(row["method"], row["list"]) for row in advice.rows[:2]]
    [('diloco', 'ranked'), ('ddp-adam', 'ranked')]
    """

    model: Any = option(
        "Model: a name from 'syncline list models', a config.json, or fields.", REQUIRED, in_order=True,
        metavar="NAME", completion="models",
    )  # fmt: skip
    cluster: Any = shared.cluster(in_order=True)
    network: Any = option("Network, in place of a cluster; needs hardware and workers.", metavar="NAME")
    hardware: Any = option(
        "Hardware of each worker, in place of the cluster's; a name from 'syncline list hardware'.", metavar="NAME",
        completion="hardware",
    )  # fmt: skip
    workers: int | None = option("Number of workers; by default all workers of the cluster.", metavar="P")
    tokens: str | float | None = option(
        "Number of tokens of data-parallel training, as in 140B; by default 20 per parameter.", metavar="D"
    )
    target_loss: float | None = option(
        "Loss that every plan has to reach, in nats per token; replaces tokens.", metavar="L"
    )
    batch_tokens: str | float | None = shared.batch_tokens()
    sequence: int | None = shared.sequence()
    budget: str | float | None = option("Largest cost of the training, as in 50k; needs prices.", metavar="MONEY")
    deadline: str | float | None = option("Longest time of the training, as in 30d.", metavar="TIME")
    prices: Any = shared.prices()
    methods: Any = shared.methods(
        "Method between replicas: a name from 'syncline list methods'; repeatable; by default all methods that "
        "'advise' knows."
    )
    period: str | int | None = option(
        "Number of steps between exchanges, or preset for the methods' own; by default 30, 100, 300 and 1000 are "
        "tried, and methods without a period have 30.", metavar="H",
    )  # fmt: skip
    extrapolate: bool = shared.extrapolate()
    every_plan: bool = option(
        "List all plans, and all sentences on what decides and what is unknown.", False, flag="--all"
    )
    csv: Path | None = shared.csv()
    strict: bool = shared.strict()
    json: bool = shared.json()
