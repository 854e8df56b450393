"""Costs of the algorithms of collectives on networks."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from syncline.api.result import Result, later
from syncline.planner.collectives import CostQuestion, costs_figure, transferred_parts
from syncline.planner.collectives import collectives as compute_costs
from syncline.planner.transfer import refuse_transfers, tables_after
from syncline.questions.collectives import Collectives
from syncline.specs import network_fields, resolve_cluster_options


def answer_collectives(question: Collectives) -> Result:
    """Return the costs of algorithms on the networks of a question."""
    networks, _, workers = resolve_cluster_options(question.cluster, question.networks, None, question.workers)
    cost_question = CostQuestion.from_options(
        workers, question.nbytes, networks, question.collectives, question.starts, question.algorithms,
        question.protocol,
    )  # fmt: skip
    return collectives_result(cost_question, strict=question.strict)


def collectives_result(question: CostQuestion, answer: dict[str, Any] | None = None, strict: bool = False) -> Result:
    """Return the result of a question about collectives; compute the answer unless it is given.

    Raises:
        SpecError: the question is strict, and the answer would be transferred.
    """
    transfers = transferred_parts(question)
    refuse_transfers(transfers, strict)
    answer = compute_costs(question) if answer is None else answer
    tables = later("syncline.planner.collective_tables:collectives_tables", answer["rows"], question)
    fields = dataclasses.asdict(question) | {"networks": [network_fields(network) for network in question.networks]}
    figure = partial(costs_figure, question)
    record = {"transferred": [transfer.record() for transfer in transfers]} | answer
    first = partial(tables_after, transfers, tables)
    return Result("collectives", record, tables=first, figure=figure, asked=lambda: {"question": fields})
