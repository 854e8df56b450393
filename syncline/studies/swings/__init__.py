"""A study of a network's updates along its steepest direction, with and without delayed gradients.

It reproduces Basis Rotation's Figure 12.
"""

from syncline.specs.study import Study, lazy_function
from syncline.studies.swings.spec import SwingsSpec

__all__ = ["STUDY", "SwingsSpec"]

STUDY = Study(
    SwingsSpec,
    pieces=lazy_function("syncline.studies.swings.study:swing_pieces"),
    rows=lazy_function("syncline.studies.swings.study:swing_rows"),
    tables=lazy_function("syncline.studies.swings.tables:swing_tables"),
    figures=lazy_function("syncline.studies.swings.figures:swing_figures"),
)
