"""A study without training: majority votes of independent workers, their ties and their agreement with the sum."""

from syncline.specs.study import Study, deferred
from syncline.studies.vote_ties.spec import VoteTiesSpec

__all__ = ["STUDY", "VoteTiesSpec"]

STUDY = Study(
    VoteTiesSpec,
    pieces=deferred("syncline.studies.vote_ties.study:tie_pieces"),
    rows=deferred("syncline.studies.vote_ties.study:tie_rows"),
    tables=deferred("syncline.studies.vote_ties.tables:tie_tables"),
    figures=deferred("syncline.studies.vote_ties.figures:tie_figures"),
)
