"""A study without training: majority votes of independent workers, their ties and their agreement with the sum."""

from syncline.specs.study import Study, lazy_function
from syncline.studies.vote_ties.spec import VoteTiesSpec

__all__ = ["STUDY", "VoteTiesSpec"]

STUDY = Study(
    VoteTiesSpec,
    pieces=lazy_function("syncline.studies.vote_ties.study:tie_pieces"),
    rows=lazy_function("syncline.studies.vote_ties.study:tie_rows"),
    tables=lazy_function("syncline.studies.vote_ties.tables:tie_tables"),
    figures=lazy_function("syncline.studies.vote_ties.figures:tie_figures"),
)
