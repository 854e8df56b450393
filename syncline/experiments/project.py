"""``syncline project``: the clock alone, in closed form. NumPy and pydantic; no torch, no training."""

from __future__ import annotations

from typing import Any

from syncline.costmodel import bytes_per_step, mean_step
from syncline.errors import within
from syncline.experiments.paper_tables import sync_rows, traffic_rows, volume_rows
from syncline.specs import CurvaDionTableSpec, ProjectSpec, TableSpec, TrafficTableSpec


def project(spec: ProjectSpec | TableSpec) -> list[dict[str, Any]]:
    """The rows of a projection, one per method and network; of a table, those of the paper."""
    if isinstance(spec, ProjectSpec):
        return project_methods(spec)
    if isinstance(spec, CurvaDionTableSpec):
        return sync_rows(spec)
    return traffic_rows(spec) if isinstance(spec, TrafficTableSpec) else volume_rows(spec)


def project_methods(spec: ProjectSpec) -> list[dict[str, Any]]:
    """Mean step of each method on each network; speedups are against the first method, on the same network."""
    shape = spec.model
    compute_s = spec.compute.base_s(shape.flops_per_token * spec.tokens_per_worker, shape.name)
    sent = []
    for number, method in enumerate(spec.methods):
        with within(f"methods.{number}"):
            sent.append(method.exchanges(shape.tensors, spec.workers) if spec.workers > 1 else [])
    rows = []
    for link in spec.networks:
        baseline_s: float | None = None
        for method, exchanges in zip(spec.methods, sent, strict=True):
            step = mean_step(compute_s, exchanges, spec.steps, spec.workers, link)
            step_time_s = float(step.step_time_s)
            baseline_s = step_time_s if baseline_s is None else baseline_s
            rows.append({
                "method": method.name,
                "network": link.name,
                "workers": spec.workers,
                "step_time_s": step_time_s,
                "compute_s": float(step.compute_s),
                "communication_s": float(step.communication_s),
                "communication_share": float(step.communication_s) / step_time_s if step_time_s else 0.0,
                "exposed_communication_s": float(step.exposed_communication_s),
                "bytes_per_worker": bytes_per_step(exchanges, spec.steps),
                "wall_clock_s": step_time_s * spec.steps,
                "speedup": baseline_s / step_time_s if step_time_s else 1.0,
            })  # fmt: skip
    return rows
