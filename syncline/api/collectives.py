"""Costs of the algorithms of collectives on networks."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from syncline.api.result import Result
from syncline.planner.collectives import CostQuestion, costs_figure
from syncline.planner.collectives import collectives as compute_costs
from syncline.questions.collectives import Collectives
from syncline.specs import network_fields, resolve_cluster_options


def cost_question(question: Collectives) -> CostQuestion:
    """Return a question about collectives with every default and unit resolved."""
    networks, _, workers = resolve_cluster_options(question.cluster, question.networks, None, question.workers)
    return CostQuestion.from_options(
        workers,
        question.nbytes,
        networks,
        question.collectives,
        question.starts,
        question.algorithms,
        question.protocol,
    )


def answer_collectives(question: Collectives) -> Result:
    """Return the costs of algorithms on the networks of a question."""
    return collectives_result(cost_question(question))


def collectives_result(question: CostQuestion, answer: dict[str, Any] | None = None) -> Result:
    """Return the result of a question about collectives; compute the answer unless it is given."""
    answer = compute_costs(question) if answer is None else answer

    def tables() -> list[Any]:
        from syncline.planner.collective_tables import collectives_tables

        return collectives_tables(answer["rows"], question)

    fields = dataclasses.asdict(question) | {"networks": [network_fields(network) for network in question.networks]}
    figure = partial(costs_figure, question)
    return Result("collectives", answer, tables=tables, figure=figure, asked=lambda: {"question": fields})
