"""A study of a network's updates along its steepest direction, with and without delayed gradients.

It reproduces Basis Rotation's Figure 12.
"""

from syncline.specs.study import Study, deferred
from syncline.studies.swings.spec import SwingsSpec

__all__ = ["STUDY", "SwingsSpec"]

STUDY = Study(
    SwingsSpec,
    pieces=deferred("syncline.studies.swings.study:swing_pieces"),
    rows=deferred("syncline.studies.swings.study:swing_rows"),
    tables=deferred("syncline.studies.swings.tables:swing_tables"),
    figures=deferred("syncline.studies.swings.figures:swing_figures"),
)
