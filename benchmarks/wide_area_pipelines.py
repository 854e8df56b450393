"""Pipelines over slow lines, predicted against DT-FM's published times: a table, and a figure with one dot a row.

    python -m benchmarks.wide_area_pipelines [FIGURE.png]

The rows are GPT-3 XL with 24 layers in 8 stages on V100 (p3.2xlarge, fp16, a backward pass computes the forward pass
again), on lines shaped by ``tc netem``, in one to eight replicas; ``SYNCLINE_REFERENCE`` names the folder with
``wan/rows.csv`` and ``wan/networks.json``, which name their sources. The time of computing is the only number that
comes from the measurements: from the row of the same table and batch on lines that nobody shaped.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from syncline.costmodel.numerics.uncertainty import Uncertainty, uncertainty_of
from syncline.planner.pipeline_placement import run_placed
from syncline.specs import PipelineSpec, validate
from tests.reference import REFERENCE

STAGES, TOKENS = 8, 2048

GRADIENT_BYTES = ["409 MiB", *["296 MiB"] * (STAGES - 1)]
"""Bytes of each stage's fp16 gradient, as DT-FM's program prints them; the first stage has the embedding, too."""

AVERAGINGS = {"Central PS": "reduce+broadcast", "central PS": "reduce+broadcast", "Sharded PS": "direct"}

UNSHAPED = {"latency": "50 us", "bandwidth": "10 Gbit/s"}

GROUPS = {
    "one pipeline": ("dfm-1pipe", "dfm-pp8-Single"),
    "replicas": ("dfm-pp8-Central", "dfm-pp8-Sharded"),
    "64 machines, equal lines": ("dfm-64gpu",),
    "64 machines, two regions": ("dfm-case3",),
}
"""Groups of rows, by the beginning of their names."""

ANCHORS = {"dfm-pp8": "dfm-pp8-SinglePipeline-default", "dfm-64gpu": "dfm-64gpu-B1024-L24-default",
           "dfm-case3": "dfm-64gpu-B1024-L24-default"}  # fmt: skip
"""The row from which computing comes, by the beginning of a row's name; of ``dfm-1pipe`` that of the same batch."""


class Prediction(NamedTuple):
    """A row with its predicted and its measured seconds."""

    name: str
    group: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Return ``predicted / measured - 1``."""
        return self.predicted_s / self.measured_s - 1


@cache
def rows() -> dict[str, dict[str, str]]:
    """Return the rows of 24 layers by name."""
    with (REFERENCE / "wan" / "rows.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file) if row["id"].startswith("dfm-")}


def anchor_of(name: str) -> str:
    """Return the name of the row from which the computing of a row comes."""
    if name.startswith("dfm-1pipe"):
        return f"{name.partition('-L24')[0]}-L24-default"
    return next(anchor for start, anchor in ANCHORS.items() if name.startswith(start))


def fields_of(name: str, forward_s: float, update_s: float = 0.0) -> dict[str, Any]:
    """Return the fields of the pipeline spec of a row."""
    row = rows()[name]
    replicas = int(row["workers"])
    flushes = 2 if "2 GPipe flushes" in row["method"] else 1
    if name.startswith("dfm-case3"):
        flushes = int(row["method"].partition(" flushes")[0].rpartition(" ")[2])
    averaging = next((value for text, value in AVERAGINGS.items() if text in row["method"]), "library")
    fields: dict[str, Any] = {
        "kind": "pipeline", "name": "dtfm", "schedules": ["gpipe"], "stages": STAGES, "flushes": flushes,
        "microbatches": int(row["batch_per_worker_tokens"]) // TOKENS // flushes, "forward": forward_s,
        "backward": 3 * forward_s, "activation_bytes": "8 MiB", "replicas": replicas, "networks": [network_of(name)],
        "update": update_s,
    }  # fmt: skip
    if replicas > 1:
        fields |= {"gradient_bytes": GRADIENT_BYTES, "averaging": averaging}
    if "-wo-sched-" in name:
        fields["placement"] = places_of_map(name.rpartition("-")[2])
    return fields


def network_of(name: str) -> dict[str, Any]:
    """Return the network of a row, as a user describes it."""
    row = rows()[name]
    if name.startswith("dfm-case3"):
        return case3()
    line = {"latency": float(row["rtt_ms"]) / 2e3, "bandwidth": f"{row['link_gbit_s']} Gbit/s"}
    return {"name": "lines", **(UNSHAPED if row["link_gbit_s"] == "up to 10" else line), "nccl": True}


def case3() -> dict[str, Any]:
    """Return the network of DT-FM's case 3: 64 machines in two regions, shaped machine by machine."""
    case = _networks()["case3"]
    inside, line = (
        {"latency": ms * 1e-3, "bandwidth": f"{gbit_s} Gbit/s"} for ms, gbit_s in (case["intra"], case["inter"])
    )
    return {
        "name": "case 3", "kind": "matrix", "places": {"ohio": 32, "virginia": 32}, "inside": inside,
        "lines": [{"from": "ohio", "to": "virginia", **line}], "per": "host", "nccl": True,
    }  # fmt: skip


def _networks() -> Any:
    return json.loads((REFERENCE / "wan" / "networks.json").read_text(encoding="utf-8"))["dtfm_cases"]


def places_of_map(seed: str) -> list[str]:
    """Return the place of each rank by DT-FM's map of this seed; machines 0 to 31 are in Ohio."""
    ranks = _networks()["rank_maps"][seed]
    return ["ohio" if ranks.index(rank) < 32 else "virginia" for rank in range(len(ranks))]


def simulated_s(fields: Mapping[str, Any]) -> float:
    """Return the makespan that ``syncline pipeline`` prints for these fields."""
    spec = validate(PipelineSpec, dict(fields))
    return run_placed(spec, "gpipe", spec.links[0]).timeline.makespan_s


@cache
def forward_s_of(anchor: str, update_s: float = 0.0) -> float:
    """Return the seconds of a forward pass with which the prediction of an unshaped row is what was measured."""
    measured_s = float(rows()[anchor]["value"])
    return float(brentq(lambda f: simulated_s(fields_of(anchor, f, update_s)) - measured_s, 1e-3, 0.1, xtol=1e-6))


def predicted(name: str, update_s: float = 0.0) -> Prediction:
    """Return a row with its prediction."""
    group = next(group for group, starts in GROUPS.items() if name.startswith(starts))
    fields = fields_of(name, forward_s_of(anchor_of(name), update_s), update_s)
    return Prediction(name, group, simulated_s(fields), float(rows()[name]["value"]))


@cache
def predictions(update_s: float = 0.0) -> tuple[Prediction, ...]:
    """Return the predictions of all rows that no computing comes from."""
    return tuple(predicted(name, update_s) for name in rows() if name != anchor_of(name))


def median_error(found: Iterable[Prediction]) -> float:
    """Return the median of the absolute errors."""
    return float(np.median([abs(prediction.error) for prediction in found]))


def left_out_uncertainties() -> dict[str, Uncertainty]:
    """Return, for each group of rows, the uncertainty that follows from the rows of the other groups."""
    return {
        group: uncertainty_of([row.error for row in predictions() if row.group != group], group) for group in GROUPS
    }


def covered() -> float:
    """Return the part of all rows whose measured time is between the bounds from the other groups."""
    bounds = left_out_uncertainties()
    return float(np.mean([
        bounds[row.group].low <= row.measured_s / row.predicted_s <= bounds[row.group].high for row in predictions()
    ]))  # fmt: skip


def draw(path: Path) -> None:
    """Draw predicted over measured seconds, one dot a row, and the errors by line and by averaging."""
    from syncline.analysis import save
    from syncline.analysis.validation import predicted_against_measured

    found = predictions()
    points = {
        group: (
            [row.measured_s for row in found if row.group == group],
            [row.predicted_s for row in found if row.group == group],
        )
        for group in GROUPS
    }
    by_line: dict[str, list[float]] = {}
    by_averaging: dict[str, list[float]] = {}
    for row in found:
        link = rows()[row.name]["link_gbit_s"]
        by_line.setdefault("10" if link == "up to 10" else link, []).append(row.error)
        replicas = int(rows()[row.name]["workers"])
        kind = "none" if replicas == 1 else "sharded" if "Sharded" in row.name else "central"
        by_averaging.setdefault(kind, []).append(row.error)
    by_line = {link: by_line[link] for link in sorted(by_line, key=float)}
    errors = {"Gbit/s of the lines": by_line, "averaging": by_averaging}
    save(predicted_against_measured(points, errors, title="median errors", measured="seconds of an update"), path)


def main() -> None:
    """Print all rows and the errors of each group; draw the figure if it is named."""
    for row in predictions():
        print(f"{row.name:42s} {row.predicted_s:7.2f} s, measured {row.measured_s:6.2f} s, {row.error:+7.1%}")
    bounds = left_out_uncertainties()
    for group in GROUPS:
        found = sorted((row for row in predictions() if row.group == group), key=lambda row: abs(row.error))
        ends = f"best {found[0].name} {found[0].error:+.1%}, worst {found[-1].name} {found[-1].error:+.1%}"
        print(f"{group}: {len(found)} rows, median {median_error(found):.1%}, {ends}; bounds from the other groups "
              f"{bounds[group].low:.3f} to {bounds[group].high:.3f}")  # fmt: skip
    print(f"covered by bounds from the other groups: {covered():.0%}")
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
