"""The curves of a run folder from its ``curves.parquet`` alone, and their figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from syncline.analysis import Curve, loss_against_clock
from syncline.analysis.statistics.curves import FloatArray
from syncline.runs.folders.result_files import CURVES, read_parquet

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


class FileCurves(NamedTuple):
    """The evaluations in a folder's curves.

    Attributes:
        curves: one curve per method.
        sent: payload bytes that a worker has sent at the steps of each method's curve, on its first network.
        networks: label of each network in a figure, by name; only networks on which something was evaluated.
        label: name of the loss, with its unit.
        target: a loss whose time is reported; None without one.
    """

    curves: Sequence[Curve]
    sent: Mapping[str, FloatArray]
    networks: Mapping[str, str]
    label: str
    target: float | None


def read_curves(path: Path) -> FileCurves:
    """Return the evaluations in a ``curves.parquet``; no curves if nothing was evaluated."""
    table = read_parquet(path, CURVES)
    metadata: dict[str, Any] = json.loads(table.schema.metadata[b"syncline"])
    evaluated = table.filter(pc.is_valid(table["loss"]))
    methods, evaluated_on = evaluated["method"].unique().to_pylist(), evaluated["network"].unique().to_pylist()
    read = [
        _curve_of(evaluated, method, [name for name in metadata["networks"] if name in evaluated_on])
        for method in methods
    ]
    networks = {name: text for name, text in metadata["networks"].items() if name in evaluated_on}
    return FileCurves(
        [curve for curve, _ in read], {curve.label: sent for curve, sent in read}, networks, metadata["loss_label"],
        metadata["target_loss"],
    )  # fmt: skip


def figure_of_file(folder: Path) -> Figure:
    """Return the figure of loss against the seconds of each network, a line per method, with the file's labels."""
    read = read_curves(folder / "curves.parquet")
    return loss_against_clock(read.curves, read.networks, loss_label=read.label, target=read.target)


def _curve_of(evaluated: pa.Table, method: str, networks: Sequence[str]) -> tuple[Curve, FloatArray]:
    """Return the evaluations of a method, ``(S, E)``, with seconds on each network, and the bytes sent, ``(E,)``."""
    method_rows = evaluated.filter(pc.equal(evaluated["method"], method))
    parts = {name: method_rows.filter(pc.equal(method_rows["network"], name)) for name in networks}
    parts = {name: part for name, part in parts.items() if len(part)}  # an asynchronous training has one of them
    first = next(iter(parts.values()))
    seeds = len(first["seed"].unique())

    def by_seed(part: pa.Table, column: str) -> np.ndarray:
        return part[column].to_numpy().reshape(seeds, -1)

    clock_s = {name: by_seed(part, "seconds")[0] for name, part in parts.items()}
    return Curve(method, by_seed(first, "step")[0], by_seed(first, "loss"), clock_s), by_seed(first, "bytes")[0]
