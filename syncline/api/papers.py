"""The papers' numbers next to those of Syncline."""

from __future__ import annotations

from syncline.api.arguments import checked
from syncline.api.result import Result


@checked
def reproduce(paper: str | None = None) -> Result:
    """Compute the numbers of one paper or of all five anew: a row per cell, point, formula or claim, with a verdict.

    Args:
        paper: ``curvadion``, ``demo``, ``mt-dao``, ``basis-rotation`` or ``lion-cub``; all five by default.

    Returns:
        The result with a row per number; `Result.json` also has ``claims``.

    Raises:
        SpecError: there is no such paper.

    >>> import syncline as sl
    >>> row = next(row for row in sl.reproduce("curvadion").rows if row["quantity"] == "speedup on the WAN")
    >>> row["paper_value"], round(row["ours"], 3), row["verdict"]
    (4.361, 4.361, 'agree')
    """
    from replication.scoreboard.board import board_of, tables_of
    from replication.scoreboard.claim_register import claim_fields, claims_table

    rows = board_of(paper)
    return Result(
        "reproduce",
        {"rows": rows, "claims": claim_fields(paper)},
        tables=lambda: [*tables_of(rows), claims_table(paper)],
    )
