"""The figures of a study of quantisers."""

from __future__ import annotations

from replication.figures.rates import loss_over_tails, sign_shares
from replication.studies.quantisers.spec import QuantisersSpec
from syncline.specs import Figures, Record


def quantiser_figures(spec: QuantisersSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Yield the match, flip and zero rates per distribution, and the losses of the trainings over alpha."""
    panels: dict[str, dict[str, dict[str, float]]] = {}
    losses: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row["part"] == "vectors":
            panels.setdefault(row["distribution"], {})[row["quantiser"]] = row
        else:
            losses.setdefault(row["quantiser"], {})[row["alpha"]] = [row["loss"], row["loss_min"], row["loss_max"]]
    if panels:
        yield "sign_shares", sign_shares(panels)
    if losses:
        yield "loss_over_tails", loss_over_tails(losses, loss_label="final loss, median and range")
