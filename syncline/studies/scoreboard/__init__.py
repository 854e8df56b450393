"""The scoreboard: each number of a paper beside Syncline's, with a verdict that is computed.

Read `verdicts` (how two values are held against each other), then `rows` (what a row is and how it is read), `board`
(what all rows say). A paper has a file of rows, ``curvadion.yaml``, and a module of the functions that compute its
numbers, ``curvadion.py``; what takes minutes or a GPU is stored in ``measured/``, with the command that gave it.
"""

from syncline.studies.scoreboard.board import board_of, counts, scored
from syncline.studies.scoreboard.rows import PAPERS, PaperRow, computed, paper_rows
from syncline.studies.scoreboard.verdicts import AGREE, DIFFER, NOT_CHECKABLE, TREND, verdict_of

__all__ = [
    "AGREE",
    "DIFFER",
    "NOT_CHECKABLE",
    "PAPERS",
    "TREND",
    "PaperRow",
    "board_of",
    "computed",
    "counts",
    "paper_rows",
    "scored",
    "verdict_of",
]
