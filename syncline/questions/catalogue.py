"""The questions about this installation and the papers: ``list``, ``reproduce``, ``doctor``."""

from __future__ import annotations

from pathlib import Path

from syncline.questions import shared
from syncline.questions.declare import REQUIRED, Question, option

CATALOGUES = (
    "networks", "clusters", "hardware", "models", "methods", "problems", "schedules", "studies", "specs", "fits",
    "prices", "failures",
)  # fmt: skip
"""Names of the catalogues."""


class List(
    Question,
    panel=shared.CATALOGUE,
    examples=("syncline list specs", "syncline list methods --model olmo-1b --workers 64"),
):
    """List the names that a spec or an option accepts: networks, methods, specs, ..."""

    catalogue: str = option(
        f"Catalogue: {', '.join(CATALOGUES[:-1])} or {CATALOGUES[-1]}.", REQUIRED, metavar="WHAT", positional=True,
        completion=CATALOGUES,
    )  # fmt: skip
    model: str | None = option(
        "Model for whose tensors 'list methods' counts bytes; by default gpt-160m.", metavar="NAME", completion="models"
    )
    workers: int | None = option(
        "Number of workers for which 'list methods' counts bytes; by default 8.", metavar="P", minimum=1
    )
    json: bool = shared.json()


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


class Doctor(Question, panel=shared.CATALOGUE, examples=("syncline doctor", "syncline doctor --json")):
    """Show the versions, devices, cores and extras of this installation, and what is unavailable without them."""

    json: bool = shared.json()
