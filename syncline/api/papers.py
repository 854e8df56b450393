"""The papers' numbers next to those of Syncline, and replications of their claims."""

from __future__ import annotations

from syncline.api.result import Result
from syncline.checkout import import_replication
from syncline.questions.replicate import Replicate
from syncline.questions.reproduce import Reproduce


def answer_reproduce(question: Reproduce) -> Result:
    """Return the numbers of the papers, computed anew."""
    board = import_replication("scoreboard.board")
    register = import_replication("scoreboard.claim_register")
    rows = board.board_of(question.paper)
    return Result(
        "reproduce",
        {"rows": rows, "claims": register.claim_fields(question.paper)},
        tables=lambda: [*board.tables_of(rows), register.claims_table(question.paper)],
    )


def answer_replicate(question: Replicate) -> Result:
    """Return the replication of a paper's claims, as far as this call trains it."""
    result: Result = import_replication("replications.results").replication_result(
        question.name, scale=question.scale, seeds=question.seeds, max_trainings=question.most, time=question.time,
        jobs=question.jobs, out=question.out, on_stage=question.on_stage, on_expected=question.on_expected,
    )  # fmt: skip
    return result
