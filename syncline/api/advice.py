"""Which plans a cluster can train a model by."""

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
    failures: Any = None,
) -> Result:
    """Which plans train a model on a cluster, ranked by time to equal loss where a published fit says it.

    A plan is a method between replicas and a layout inside them. Each has its time, utilisation, memory, bytes over
    each level, money and energy, with bounds; ties are told, and what decides, what would change it, what is unknown.

    Args:
        model: a transformer: a name, a ``config.json``, fields.
        cluster: a bundled one's name, a file, fields.
        network: in its place, with ``hardware`` and ``workers``.
        hardware: that computes, in place of the cluster's.
        workers: P, in place of all of them.
        tokens: that data parallelism trains on, ``"140B"``; the others on what takes them to its loss. 20 per
            parameter unless given.
        target_loss: of all, in nats per token.
        batch_tokens: of a step of all workers; between the best ones of published fits unless given.
        sequence: tokens; the model's unless given.
        budget: most that it may cost, ``"50k"``, by the prices.
        deadline: most that it may take, ``"30d"``.
        prices: see `sl.project`.
        extrapolate: whether losses are told beyond what published fits have seen.
        methods: between replicas, or several; all that are tried unless given.
        failures: of the machines, see `sl.goodput`: times, money and energy are with what they cost; none unless given.

    Returns:
        Beside the rows, ``ties``, ``thresholds`` and sentences in `Result.json`.

    Raises:
        SpecError: what is wrong, where, and what would be accepted.

    >>> import syncline as sl
    >>> methods = ["ddp-adam", {"kind": "diloco", "lr": 0.003, "period": 30}]
    >>> advice = sl.advise("gpt-160m", network="two-sites", hardware="h100", workers=4, methods=methods)
    >>> [(row["method"], row["list"]) for row in advice.rows[:2]]
    [('diloco', 'ranked'), ('ddp-adam', 'ranked')]
    """
    from syncline.planner.advice.advice import advised
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
        failures=failures,
    )
    advice = advised(question)

    def tables() -> Any:
        from syncline.planner.advice.tables import advice_tables  # only here: JSON needs no rich

        return advice_tables(advice)

    return Result("advise", advice.record(), tables=tables)
