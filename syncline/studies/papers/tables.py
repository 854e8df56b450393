"""Tables of papers, computed anew: each row has the paper's number beside ours."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

from syncline.costmodel import (
    bytes_per_step,
    collective_s,
    curvadion_speedup,
    curvadion_step_s,
    mean_bytes_per_step,
)
from syncline.specs import CurvaDionTableSpec, TrafficTableSpec, VolumeTableSpec

ANY_GROUP = 2
"""Workers: what the methods of these tables send does not depend on how many there are."""

UNITS = {
    "MB": {"MB": 10**6, "MiB": 2**20},
    "GB": {"GB": 10**9, "1000 MiB": 1000 * 2**20, "GiB": 2**30},
}
"""What may be meant by a printed unit, in bytes."""


def sync_rows(spec: CurvaDionTableSpec) -> list[dict[str, Any]]:
    """CurvaDion's projection per network, and the same with the sync time of a ring all-reduce on the link alone.

    ``unexplained_sync_s`` is what the paper's sync time holds beyond latency and bandwidth.
    """
    parts = (spec.compute, spec.optimizer, spec.flag)
    rows = []
    for measured in spec.networks:
        link = measured.network
        link_sync_s = float(collective_s("all_reduce", spec.workers, spec.payload_bytes, link))
        step_s = curvadion_step_s(*parts, measured.sync, spec.sync_rate)
        rows.append({
            "method": "curvadion",
            "network": link.name,
            "workers": spec.workers,
            "step_time_s": step_s,
            "baseline_step_time_s": curvadion_step_s(spec.compute, spec.optimizer, 0.0, measured.sync, 1.0),
            "compute_s": spec.compute + spec.optimizer,
            "communication_s": spec.flag + spec.sync_rate * measured.sync,
            "exposed_communication_s": spec.flag + spec.sync_rate * measured.sync,
            "bytes_per_worker": spec.sync_rate * spec.payload_bytes,
            "speedup": curvadion_speedup(*parts, measured.sync, spec.sync_rate),
            "sync_s": measured.sync,
            "alpha_beta_sync_s": link_sync_s,
            "alpha_beta_speedup": curvadion_speedup(*parts, link_sync_s, spec.sync_rate),
            "unexplained_sync_s": measured.sync - link_sync_s,
        })  # fmt: skip
    return rows


def traffic_rows(spec: TrafficTableSpec) -> list[dict[str, Any]]:
    """Decimal MB per worker and step; a row matches if it is the paper's number when cut off after as many digits."""
    rows = []
    for row in spec.rows:
        nbytes = mean_bytes_per_step(row.method.exchanges(row.model.tensors, ANY_GROUP))
        megabytes, paper = Decimal(nbytes) / 10**6, row.paper_megabytes_per_step
        rows.append({
            "method": row.method.name,
            "model": row.model.name,
            "k": getattr(row.method, "k", None),
            "chunk": getattr(row.method, "chunk", None),
            "bytes_per_worker": nbytes,
            "megabytes_per_step": float(megabytes),
            "paper_megabytes_per_step": float(paper),
            "matches": megabytes.quantize(paper, ROUND_DOWN) == paper,
            "deviation": _deviation(paper, megabytes),
        })  # fmt: skip
    return rows


def volume_rows(spec: VolumeTableSpec) -> list[dict[str, Any]]:
    """Volumes in that reading of the printed unit in which ours is nearest to the paper's.

    A row matches if it is then the paper's number, rounded to as many digits; if not, no reading makes it so.
    """
    rows = []
    for row in spec.rows:
        nbytes = Decimal(bytes_per_step(row.method.exchanges(row.model.tensors, ANY_GROUP), row.steps) * row.steps)
        paper = row.paper_volume
        volumes = {unit: nbytes / size for unit, size in UNITS[row.paper_unit].items()}
        unit = min(volumes, key=lambda unit: abs(volumes[unit] / paper - 1))
        rows.append({
            "method": row.method.name,
            "model": row.model.name,
            "steps": row.steps,
            "bytes": float(nbytes),
            "volume": float(volumes[unit]),
            "unit": unit,
            "unit_bytes": UNITS[row.paper_unit][unit],
            "paper_volume": float(paper),
            "paper_unit": row.paper_unit,
            "matches": volumes[unit].quantize(paper, ROUND_HALF_UP) == paper,
            "deviation": _deviation(paper, volumes[unit]),
        })  # fmt: skip
    return rows


def _deviation(paper: Decimal, ours: Decimal) -> float:
    """How far the paper's number is from ours, as a share of ours."""
    return float(paper / ours - 1) if ours else math.inf
