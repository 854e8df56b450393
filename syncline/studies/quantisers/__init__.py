"""A study of Lion Cub's quantisers: the sign of a sum when workers send small integers."""

from syncline.specs.study import Study, deferred
from syncline.studies.quantisers.spec import QuantisersSpec

__all__ = ["STUDY", "QuantisersSpec"]

STUDY = Study(
    QuantisersSpec,
    pieces=deferred("syncline.studies.quantisers.study:quantiser_pieces"),
    rows=deferred("syncline.studies.quantisers.study:quantiser_rows"),
    tables=deferred("syncline.studies.quantisers.tables:quantiser_tables"),
    figures=deferred("syncline.studies.quantisers.figures:quantiser_figures"),
)
