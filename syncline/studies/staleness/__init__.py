"""A study of training with delayed gradients: losses after equal steps, and over the time of pipelines."""

from syncline.specs.study import Study, deferred
from syncline.studies.staleness.spec import LateMethod, StalenessSpec

__all__ = ["STUDY", "LateMethod", "StalenessSpec"]

STUDY = Study(
    StalenessSpec,
    pieces=deferred("syncline.studies.staleness.study:staleness_pieces"),
    rows=deferred("syncline.studies.staleness.study:staleness_rows"),
    tables=deferred("syncline.studies.staleness.tables:staleness_tables"),
    figures=deferred("syncline.studies.staleness.figures:staleness_figures"),
    jobs=deferred("syncline.studies.staleness.study:max_processes"),
)
