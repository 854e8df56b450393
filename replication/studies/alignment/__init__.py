"""A study of Adam's slowdown under delayed gradients over the Hessian's alignment: Basis Rotation's Figures 3 and 4."""

from replication.studies.alignment.spec import AlignmentSpec, RandomQuadraticsSpec, TrapSpec
from syncline.registry import lazy_function
from syncline.specs import Study

__all__ = ["STUDY", "AlignmentSpec", "RandomQuadraticsSpec", "TrapSpec"]

STUDY = Study(
    AlignmentSpec,
    pieces=lazy_function("replication.studies.alignment.study:alignment_pieces"),
    rows=lazy_function("replication.studies.alignment.study:alignment_rows"),
    tables=lazy_function("replication.studies.alignment.tables:alignment_tables"),
    figures=lazy_function("replication.studies.alignment.figures:alignment_figures"),
)
