"""Majority votes of independent workers: how often they tie, and what they say. No training."""

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
