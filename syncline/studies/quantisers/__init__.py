"""A study of Lion Cub's quantisers: the sign of a sum when workers send small integers."""

from syncline.specs.study import Study, lazy_function
from syncline.studies.quantisers.spec import QuantisersSpec

__all__ = ["STUDY", "QuantisersSpec"]

STUDY = Study(
    QuantisersSpec,
    pieces=lazy_function("syncline.studies.quantisers.study:quantiser_pieces"),
    rows=lazy_function("syncline.studies.quantisers.study:quantiser_rows"),
    tables=lazy_function("syncline.studies.quantisers.tables:quantiser_tables"),
    figures=lazy_function("syncline.studies.quantisers.figures:quantiser_figures"),
)
