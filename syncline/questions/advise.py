"""The question of ``syncline advise``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, option


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
    batch_tokens: str | float | None = option(
        "Number of tokens in a step of all workers, as in 2M; by default between the best batches of published fits.",
        metavar="B",
    )
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
