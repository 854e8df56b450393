"""``python -m tests.measure.validation.uncertainties`` writes what predictions rest on, from what was measured."""

from __future__ import annotations

import csv

from syncline.costmodel.numerics.uncertainty import FILE
from syncline.measure.validation.residuals import measured_uncertainties, shape_uncertainty

if __name__ == "__main__":
    shape = shape_uncertainty()
    rows = sorted([*measured_uncertainties().items(), (shape.basis, shape)])
    with FILE.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["basis", "points", "low", "high"])
        for basis, told in rows:
            out.writerow([basis, told.points, f"{told.low:.4f}", f"{told.high:.4f}"])
