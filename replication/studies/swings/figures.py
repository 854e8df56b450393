"""The figure of a study of swings along the dominant eigenvector."""

from __future__ import annotations

from replication.figures.alignment import LATE, ON_TIME, swings
from replication.studies.swings.spec import SwingsSpec
from syncline.specs import Figures, Record


def swing_figures(spec: SwingsSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Yield the first seed's updates along both directions, with a panel per method and number of stages."""
    styles = {"along the dominant eigenvector": LATE, "beside it": ON_TIME}
    panels: dict[str, dict[str, list[float]]] = {}
    for record in records:
        if record["seed"] == spec.seeds[0]:
            title = f"{record['method']}, {record['stages']} stage" + ("s" if record["stages"] > 1 else "")
            lines = panels.setdefault(title, {label: [] for label in styles})
            for label, name in zip(styles, ("along", "beside"), strict=True):
                lines[label].append(record[name])
    if panels:
        yield "swings", swings(panels, styles, label="size of a step", num_steps=spec.window)
