"""Advice on the plans that train a model on a cluster."""

from __future__ import annotations

from typing import Any

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.api.spec_arguments import listed


@checked
def advise(
    model: Any,
    cluster: Any = None,
    *,
    network: Any = None,
    hardware: Any = None,
    workers: int | None = None,
    tokens: str | float | None = None,
    target_loss: float | None = None,
    batch_tokens: str | float | None = None,
    sequence: int | None = None,
    budget: str | float | None = None,
    deadline: str | float | None = None,
    prices: Any = None,
    extrapolate: bool = False,
    methods: Any = None,
    period: str | int | None = None,
    failures: Any = None,
    every_plan: bool = False,
) -> Result:
    """Rank the plans that train a model on a cluster, by time to equal loss if a published fit covers them.

    A plan is a method between the replicas and a layout inside each replica. Every plan has its time, utilisation,
    memory, bytes sent over each network level, money and energy, with bounds. The result also says which plans tie,
    what decides the ranking, what would change it, and what is unknown.

    Args:
        model: a transformer: its name, a ``config.json``, or its fields.
        cluster: the name of a bundled cluster, a YAML file, or its fields.
        network: a network to use instead of a cluster, together with ``hardware`` and ``workers``.
        hardware: the hardware that computes, instead of the cluster's.
        workers: P, the number of workers to use; by default all workers of the cluster.
        tokens: number of training tokens of data parallelism, ``"140B"``; 20 per parameter by default. Every other plan
            trains on the tokens that it needs for the same loss.
        target_loss: the loss that every plan has to reach, in nats per token.
        batch_tokens: tokens of all workers in a step; by default between the best batches of the published fits.
        sequence: tokens in a training sequence; the model's by default.
        budget: largest cost of the training, ``"50k"``, by the prices.
        deadline: longest time of the training, ``"30d"``.
        prices: the list of prices, see `sl.project`.
        extrapolate: predict losses also outside the range of the published fits.
        methods: the method between replicas, or several; by default all methods that advice tries.
        period: steps between exchanges, for all methods that exchange now and then; by default 30, 100, 300 and 1000
            are tried, and ``methods`` without a period are compared at 30. ``"preset"``: the methods' own.
        failures: failures of the machines, see `sl.goodput`; times, money and energy then include their cost. By
            default nothing fails.
        every_plan: whether the tables list all plans, and all sentences on what decides and what is unknown.

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
    from syncline.planner.advice.advice import compute_advice
    from syncline.planner.advice.question import advice_question

    question = advice_question(
        model,
        cluster,
        network=network,
        hardware=hardware,
        workers=workers,
        tokens=tokens,
        target_loss=target_loss,
        batch_tokens=batch_tokens,
        sequence=sequence,
        budget=budget,
        deadline=deadline,
        prices=prices,
        extrapolate=extrapolate,
        methods=None if methods is None else listed(methods),
        period=period,
        failures=failures,
    )
    advice = compute_advice(question)

    def tables() -> Any:
        from syncline.planner.advice.tables import advice_tables  # only here: JSON needs no rich

        return advice_tables(advice, every_plan)

    return Result("advise", advice.record(), tables=tables)
