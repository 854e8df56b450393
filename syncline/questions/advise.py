"""The question of ``syncline advise``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, option


@dataclass(frozen=True)
class Advise(
    shared.FailingMachines,
    command="advise",
    panel="The clock alone",
    examples=(
        "syncline advise --model llama-7b --cluster two-sites-a100 --tokens 140B",
        "syncline advise --model llama-7b --cluster two-sites-a100 --extrapolate",
        "syncline advise --model gpt-160m --network wan --hardware h100 --workers 4",
        "syncline advise --model llama-7b --cluster two-sites-a100 --failures llama-3",
    ),
):
    """Rank the plans that train a model on a cluster, by time to equal loss if a published fit covers them.

    A plan is a method between the replicas and a layout inside each replica. Every plan has its time, utilisation,
    memory, bytes sent over each network level, money and energy, with bounds. The result also says which plans tie,
    what decides the ranking, what would change it, and what is unknown.

    Returns:
        The result with a row per plan; `Result.json` also has ``ties``, ``thresholds`` and sentences.

    Raises:
        SpecError: an argument is wrong; the message says which one, and which values are accepted.

    >>> import syncline as sl
    >>> methods = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}]
    >>> advice = sl.advise("gpt-160m", network="two-sites", hardware="h100", workers=4, methods=methods)
    >>> [(row["method"], row["list"]) for row in advice.rows[:2]]
    [('diloco', 'ranked'), ('ddp-adam', 'ranked')]
    """

    model: Any = option(
        "A transformer: a name of 'syncline list models', a config.json, or its fields.",
        REQUIRED,
        in_order=True,
        metavar="NAME",
        completion="models",
    )
    cluster: Any = shared.cluster(in_order=True)
    network: Any = option("A network in place of a cluster, beside hardware and workers.", metavar="NAME")
    hardware: Any = shared.hardware()
    workers: int | None = option("Number of workers; by default all workers of the cluster.", metavar="P")
    tokens: str | float | None = option(
        "Training tokens of data parallelism, as 140B; by default 20 per parameter. Every other plan trains on the "
        "tokens that it needs for the same loss.",
        metavar="D",
    )
    target_loss: float | None = option(
        "The loss in nats per token that every plan trains to, in place of tokens.", metavar="L"
    )
    batch_tokens: str | float | None = option(
        "Tokens of all workers in a step; by default what published fits find best for the model's size, as plans are "
        "ranked by loss; project and solve keep 32,768 per worker.",
        metavar="B",
    )
    sequence: int | None = shared.sequence()
    budget: str | float | None = option("Largest cost of the training by the prices, as 50k.", metavar="MONEY")
    deadline: str | float | None = option("Longest time of the training, as 30d.", metavar="TIME")
    prices: Any = shared.prices()
    methods: Any = shared.methods("Methods between replicas; by default all that advice tries.")
    extrapolate: bool = shared.extrapolate()
    csv: str | None = shared.csv()
    json: bool = shared.json()
