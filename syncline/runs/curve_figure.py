"""The curves of a run folder from its ``curves.parquet`` alone, and their figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from matplotlib.figure import Figure

from syncline.analysis import Curve, loss_against_clock
from syncline.analysis.statistics.curves import FloatArray
from syncline.runs.folders.result_files import CURVES, read_parquet


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
    evaluated_on = evaluated["network"].unique().to_pylist()
    networks = {name: text for name, text in metadata["networks"].items() if name in evaluated_on}
    curves, sent = [], {}
    for method in evaluated["method"].unique().to_pylist():
        rows = evaluated.filter(pc.equal(evaluated["method"], method))
        parts = {name: rows.filter(pc.equal(rows["network"], name)) for name in networks}
        parts = {name: part for name, part in parts.items() if len(part)}  # an asynchronous training has one of them
        first = next(iter(parts.values()))
        shape = len(first["seed"].unique()), -1
        step, nbytes = (first[column].to_numpy().reshape(shape)[0] for column in ("step", "bytes"))
        clock_s = {name: part["seconds"].to_numpy().reshape(shape)[0] for name, part in parts.items()}
        curves.append(Curve(method, step, first["loss"].to_numpy().reshape(shape), clock_s))
        sent[method] = nbytes
    return FileCurves(curves, sent, networks, metadata["loss_label"], metadata["target_loss"])


def figure_of_file(folder: Path) -> Figure:
    """Return the figure of loss against the seconds of each network, a line per method, with the file's labels."""
    read = read_curves(folder / "curves.parquet")
    return loss_against_clock(read.curves, read.networks, loss_label=read.label, target=read.target)
