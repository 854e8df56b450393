"""The papers' numbers beside ours."""

from __future__ import annotations

from pathlib import Path

from syncline.api.result import Result


def reproduce(paper: str | None = None) -> Result:
    """Compute the numbers of a paper anew, or of all five: a row per cell, point, formula or claim, with a verdict.

    Args:
        paper: ``curvadion``, ``demo``, ``mt-dao``, ``basis-rotation`` or ``lion-cub``.

    Raises:
        SpecError: no such paper.

    >>> import syncline as sl
    >>> row = next(row for row in sl.reproduce("curvadion").rows if row["quantity"] == "speedup on the WAN")
    >>> row["paper_value"], round(row["ours"], 3), row["verdict"]
    (4.361, 4.361, 'agree')
    """
    from syncline.studies.scoreboard.board import board_of, tables_of

    rows = board_of(paper)
    return Result("reproduce", {"rows": rows}, tables=lambda: tables_of(rows))


def save_summaries(folder: str | Path, paper: str | None = None) -> list[Path]:
    """Draw a paper, or each of the five, in one picture: its message, the numbers behind it, how many of all hold.

    Args:
        folder: where ``summary_PAPER.png`` is written.
        paper: as for `reproduce`.

    Returns:
        where they are.

    Raises:
        SpecError: no such paper, or a folder that cannot be written to.
    """
    from syncline.studies import summaries

    return summaries.save_summaries(Path(folder), paper)
