"""A study of training with delayed gradients: losses after equal steps, and over the time of pipelines."""

from replication.studies.staleness.spec import LateMethod, StalenessSpec
from syncline.registry import lazy_function
from syncline.specs import Study

__all__ = ["STUDY", "LateMethod", "StalenessSpec"]

STUDY = Study(
    StalenessSpec,
    pieces=lazy_function("replication.studies.staleness.study:staleness_pieces"),
    rows=lazy_function("replication.studies.staleness.study:staleness_rows"),
    tables=lazy_function("replication.studies.staleness.tables:staleness_tables"),
    figures=lazy_function("replication.studies.staleness.figures:staleness_figures"),
    jobs=lazy_function("replication.studies.staleness.study:max_processes"),
)
