"""Times of collectives by their algorithms."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from syncline.api.result import Result, deferred
from syncline.planner.collectives import CostQuestion, compute_costs, costs_figure, transferred_parts
from syncline.planner.transfer import refuse_transfers
from syncline.questions.clock import Collectives
from syncline.specs import network_fields, resolve_cluster_options


def answer_collectives(question: Collectives) -> Result:
    """Return the time of each algorithm of the question's collectives on its networks."""
    networks, _, workers = resolve_cluster_options(
        question.cluster, question.networks, machines=None, workers=question.workers
    )
    cost_question = CostQuestion.from_options(
        workers, question.nbytes, networks, question.collectives, question.starts, question.algorithms,
        question.protocol,
    )  # fmt: skip
    return collectives_result(cost_question, strict=question.strict)


def collectives_result(question: CostQuestion, answer: dict[str, Any] | None = None, strict: bool = False) -> Result:
    """Return the result of a question about collectives.

    Args:
        question: the collectives, sizes and networks.
        answer: ``rows``, ``crossovers`` and ``choices`` of a stored result; computed if None.
        strict: refuse an answer that rests on other machines or sizes than were measured.
    """
    transfers = transferred_parts(question)
    refuse_transfers(transfers, strict)
    answer = compute_costs(question) if answer is None else answer
    tables = deferred("syncline.planner.collective_tables:collectives_tables", answer["rows"], question)
    record = {"transferred": [transfer.record() for transfer in transfers]} | answer
    return Result(
        "collectives", record, tables=tables, transfers=transfers, figure=partial(costs_figure, question),
        question=lambda: {
            "question": dataclasses.asdict(question) | {"networks": list(map(network_fields, question.networks))}
        },
    )  # fmt: skip
