"""The question of ``syncline reproduce``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import Question, option

PAPERS = ("curvadion", "demo", "mt-dao", "basis-rotation", "lion-cub")
"""The papers; a test compares them with the scoreboard."""


class Reproduce(
    Question,
    panel=shared.CATALOGUE,
    examples=(
        "syncline reproduce",
        "syncline reproduce curvadion",
        "syncline reproduce demo --json",
        "syncline reproduce --plot docs/figures",
    ),
):
    """Recompute the numbers of the papers: where they agree, where they differ, and which document explains it.

    Returns:
        The result with a row per number; `Result.json` also has ``claims``.

    Raises:
        SynclineError: there is no such paper, or the package is installed without a checkout of the repository.

    >>> import syncline as sl
    >>> row = next(row for row in sl.reproduce("curvadion").rows if row["quantity"] == "speedup on the WAN")
    >>> row["paper_value"], round(row["ours"], 3), row["verdict"]
    (4.361, 4.361, 'agree')
    """

    paper: str | None = option(
        "Paper: curvadion, demo, mt-dao, basis-rotation or lion-cub; by default all.", in_order=True, metavar="PAPER",
        positional=True, completion=PAPERS,
    )  # fmt: skip
    plot: Path | None = shared.plot("Draw a summary of each paper: summary_PAPER.png.", metavar="FOLDER")
    json: bool = shared.json()
