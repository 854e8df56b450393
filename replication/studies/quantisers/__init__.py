"""A study of Lion Cub's quantisers: the sign of a sum when workers send small integers."""

from replication.studies.quantisers.spec import QuantisersSpec
from syncline.registry import lazy_function
from syncline.specs import Study

__all__ = ["STUDY", "QuantisersSpec"]

STUDY = Study(
    QuantisersSpec,
    pieces=lazy_function("replication.studies.quantisers.study:quantiser_pieces"),
    rows=lazy_function("replication.studies.quantisers.study:quantiser_rows"),
    tables=lazy_function("replication.studies.quantisers.tables:quantiser_tables"),
    figures=lazy_function("replication.studies.quantisers.figures:quantiser_figures"),
)
