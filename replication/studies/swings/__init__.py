"""A study of a network's updates along its steepest direction, with and without delayed gradients.

It reproduces Basis Rotation's Figure 12.
"""

from replication.studies.swings.spec import SwingsSpec
from syncline.registry import lazy_function
from syncline.specs import Study

__all__ = ["STUDY", "SwingsSpec"]

STUDY = Study(
    SwingsSpec,
    pieces=lazy_function("replication.studies.swings.study:swing_pieces"),
    rows=lazy_function("replication.studies.swings.study:swing_rows"),
    tables=lazy_function("replication.studies.swings.tables:swing_tables"),
    figures=lazy_function("replication.studies.swings.figures:swing_figures"),
)
