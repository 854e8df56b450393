"""A study without training: majority votes of independent workers, their ties and their agreement with the sum."""

from replication.studies.vote_ties.spec import VoteTiesSpec
from syncline.registry import lazy_function
from syncline.specs import Study

__all__ = ["STUDY", "VoteTiesSpec"]

STUDY = Study(
    VoteTiesSpec,
    pieces=lazy_function("replication.studies.vote_ties.study:tie_pieces"),
    rows=lazy_function("replication.studies.vote_ties.study:tie_rows"),
    tables=lazy_function("replication.studies.vote_ties.tables:tie_tables"),
    figures=lazy_function("replication.studies.vote_ties.figures:tie_figures"),
)
