"""The picture of a run folder from its ``curves.parquet`` alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from syncline.analysis import Curve, loss_against_clock

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


def figure_of_file(folder: Path) -> Figure:
    """Loss against the seconds of each network, a line per method, with what the file's metadata says of both."""
    table = pq.read_table(folder / "curves.parquet")
    told: dict[str, Any] = json.loads(table.schema.metadata[b"syncline"])
    evaluated = table.filter(pc.is_valid(table["loss"]))
    networks = [name for name in told["networks"] if pc.any(pc.equal(evaluated["network"], name)).as_py()]
    methods = evaluated["method"].unique().to_pylist()
    curves = [curve_of(evaluated, method, networks) for method in methods]
    described = {name: told["networks"][name] for name in networks}
    return loss_against_clock(curves, described, loss_label=told["loss_label"], target=told["target_loss"])


def curve_of(evaluated: pa.Table, method: str, networks: list[str]) -> Curve:
    """The evaluations of a method, ``(S, E)``, and when each network's clock gets there."""
    own = evaluated.filter(pc.equal(evaluated["method"], method))
    parts = {name: own.filter(pc.equal(own["network"], name)) for name in networks}
    first = parts[networks[0]]
    seeds = len(first["seed"].unique())

    def by_seed(part: pa.Table, column: str) -> np.ndarray:
        return part[column].to_numpy().reshape(seeds, -1)

    clock_s = {name: by_seed(part, "seconds")[0] for name, part in parts.items()}
    return Curve(method, by_seed(first, "step")[0], by_seed(first, "loss"), clock_s)
