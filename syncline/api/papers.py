"""The papers' numbers next to those of Syncline."""

from __future__ import annotations

from syncline.api.arguments import checked
from syncline.api.result import Result
from syncline.checkout import import_replication


@checked
def reproduce(paper: str | None = None) -> Result:
    """Compute the numbers of one paper or of all five anew: a row per cell, point, formula or claim, with a verdict.

    Args:
        paper: ``curvadion``, ``demo``, ``mt-dao``, ``basis-rotation`` or ``lion-cub``; all five by default.

    Returns:
        The result with a row per number; `Result.json` also has ``claims``.

    Raises:
        SynclineError: there is no such paper, or the package is installed without a checkout of the repository.

    >>> import syncline as sl
    >>> row = next(row for row in sl.reproduce("curvadion").rows if row["quantity"] == "speedup on the WAN")
    >>> row["paper_value"], round(row["ours"], 3), row["verdict"]
    (4.361, 4.361, 'agree')
    """
    board = import_replication("scoreboard.board")
    register = import_replication("scoreboard.claim_register")
    rows = board.board_of(paper)
    return Result(
        "reproduce",
        {"rows": rows, "claims": register.claim_fields(paper)},
        tables=lambda: [*board.tables_of(rows), register.claims_table(paper)],
    )
