"""The scoreboard: each number of a paper beside Syncline's, with a computed verdict.

`verdicts` compares two values, `rows` defines and reads rows, and `board` scores all rows. Each paper has a file of
rows, such as ``curvadion.yaml``, and a module of functions that compute its numbers, such as ``curvadion.py``. Values
that take minutes or a GPU are stored in ``measured/`` with the command that computed them. `trained` reads the claims'
verdicts from stored runs, `rules` decides a claim from its rows and runs, and `claim_register` makes the pages.
"""

from replication.claims import PAPERS
from replication.scoreboard.board import board_of, counts, scored_row
from replication.scoreboard.rows import PaperRow, computed, paper_rows
from replication.scoreboard.verdicts import AGREE, DIFFER, NOT_CHECKABLE, TREND, verdict_of

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
    "scored_row",
    "verdict_of",
]
