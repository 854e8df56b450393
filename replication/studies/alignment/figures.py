"""Figures of an alignment study: trajectories on contours, swings along the steepest direction, steps over angles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from replication.figures.alignment import (
    LATE,
    ON_TIME,
    Panel,
    Plot,
    Scatter,
    measured_over,
    swings,
    trajectory_grid,
)
from replication.studies.alignment.points import floor_point, points_of, quadratics, rule_of
from replication.studies.alignment.spec import AlignmentSpec
from replication.studies.alignment.study import angle_walk
from replication.theory.basis_rotation import trap_radius
from syncline.analysis import method_styles
from syncline.specs import Figures, Record

WAY_STEPS = 4000
"""Maximum number of steps of a trajectory."""

WAY_FROM_DEG = 20.0
"""Polar angle at which a trajectory on the spiral starts, in degrees; it soon crosses an axis on its way inwards."""

NAMES = {
    "ada-sgd": "AdaSGD", "adam": "Adam", "rotated": "Adam, Hessian's basis", "rotated-ema": "Adam, basis of $gg^T$",
}  # fmt: skip


def alignment_figures(spec: AlignmentSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Yield the name and figure of each figure of a study, drawn from the finished parts."""
    angles = [record for record in records if record["part"] == "angles"]
    if angles:
        yield "steps_and_slowdown", _over_angles(spec, angles)
    if any(record["part"] == "trap" for record in records):
        yield "trap", _trap(records)
    yield from (_spiral_ways if spec.on_spiral else _quadratic_ways)(spec)


def _over_angles(spec: AlignmentSpec, records: list[Record]) -> Any:
    """Draw steps without delay and the slowdown, per learning rate.

    The horizontal axis is the misalignment of a quadratic or the polar angle on the spiral.
    """
    field = "angle_deg" if spec.on_spiral else "misalignment"
    x = "polar angle on the spiral (degrees)" if spec.on_spiral else "(1,1)-norm over its least"
    marks = [90.0 * k for k in range(5)] if spec.on_spiral else []
    plots = []
    for lr in sorted(spec.rates):
        for name, y in (("steps", "steps, on time"), ("slowdown", "slowdown, late / on time")):
            measured = {}
            for method in spec.methods:
                method_records = [r for r in records if (r["method"], r["lr"]) == (method, lr)]
                if not method_records:
                    continue
                values = [math.nan if r[name] is None else r[name] for r in method_records]
                places = sorted({r[field] for r in method_records})
                medians = [
                    _median([v for r, v in zip(method_records, values, strict=True) if r[field] == place])
                    for place in places
                ]
                measured[NAMES[method]] = Scatter([r[field] for r in method_records], values, (places, medians))
            title = f"learning rate {lr:g}" if len(spec.rates) > 1 else ""
            plots.append(Plot(measured, x, y, marks, title=title))
    styles = method_styles(NAMES[method] for method in spec.methods)
    return measured_over(plots, styles, mark_label="the valley lies along an axis")


def _median(values: list[float]) -> float:
    arrived = [value for value in values if not math.isnan(value)]
    return float(np.median(arrived)) if 2 * len(arrived) > len(values) else math.nan


def _trap(records: list[Record]) -> Any:
    measured = {}
    for lr in sorted({r["lr"] for r in records if r["part"] == "trap"}):
        lr_records = [r for r in records if r["part"] == "trap" and r["lr"] == lr]
        ratio = np.array([r["radius"] for r in lr_records]) / float(trap_radius(lr))
        order = np.argsort(ratio)
        arcs = np.array([r["arc"] for r in lr_records])
        measured[f"learning rate {lr:g}"] = Scatter(ratio, arcs, (ratio[order], arcs[order]))
    across = (1.0, "$r^*$: what starts\nleft of it stays")
    return measured_over([Plot(measured, "radius / $r^*$", "way along the valley\n(learning rates)", across=across)])


def _quadratic_ways(spec: AlignmentSpec) -> Figures:
    """Yield the first seed's trajectories per method and angle, and its updates along the steepest direction.

    Updates are drawn for the first and the last angle.
    """
    import torch

    from replication.theory.hessian import dominant_eigenvector

    one_seed_spec = spec.model_copy(update={"seeds": spec.seeds[:1], "steps": min(spec.steps, WAY_STEPS)})
    lr, points, count = spec.rates[0], points_of(one_seed_spec), len(spec.angles_deg)
    dominant = dominant_eigenvector(points.hessians[:count])
    labels = {"on time": ON_TIME, f"{spec.delay} steps late": LATE}
    panels, steps = [], {}
    for method in spec.methods:
        walked = angle_walk(one_seed_spec, lr, method, points, lambda done: None)
        row = []
        for a, angle in enumerate(spec.angles_deg):
            paths, step_counts = {}, []
            for label, i in zip(labels, (a, count + a), strict=True):
                n = len(walked.way) - 1 if torch.isinf(walked.steps[i]) else int(walked.steps[i])
                paths[label] = walked.way[: n + 1, i].numpy()
                step_counts.append(str(n) if torch.isfinite(walked.steps[i]) else "-")
            f = quadratics(points.hessians[a])
            panel = Panel(lambda x, f=f: f(torch.from_numpy(x))[0].numpy(), paths, dominant[a].numpy(),  # type: ignore[misc]
                          spec.target_loss, f"{step_counts[0]} and {step_counts[1]} steps")  # fmt: skip
            row.append(panel)
            if angle in (spec.angles_deg[0], spec.angles_deg[-1]) and method in ("adam", "rotated"):
                moves = {label: np.diff(path, axis=0) @ panel.dominant for label, path in paths.items()}
                steps[f"{NAMES[method]}, {angle:g}°"] = moves
        panels.append(row)
    columns = [f"{angle:g}°" for angle in spec.angles_deg]
    grid = trajectory_grid(panels, [NAMES[method] for method in spec.methods], columns, labels)
    yield "trajectories", grid
    if steps:
        yield "swings", swings(steps, labels, label="update along the\ndominant direction")


def _spiral_ways(spec: AlignmentSpec) -> Figures:
    """Yield trajectories without delay from one point of the spiral inwards, per learning rate and method."""
    import torch

    from replication.studies.alignment.walks import walk
    from syncline.problems.landscapes import spiral, spiral_hessian

    start = torch.stack([floor_point(WAY_FROM_DEG, spec.problem.radius)])
    styles = {"from the start": LATE}
    panels = []
    for lr in spec.rates:
        row = []
        for method in spec.methods:
            walked = walk(
                start, spiral, rule_of(method, spec.beta2, spiral_hessian), lr, torch.zeros(1, dtype=torch.long),
                min(spec.steps, WAY_STEPS), lambda position, loss: loss <= 1.0,
            )  # fmt: skip
            trajectory = walked.way[:, 0].numpy()
            note = f"{len(trajectory) - 1:,} steps, to r = {np.hypot(*trajectory[-1]):.2g}"
            row.append(
                Panel(lambda x: spiral(torch.from_numpy(x))[0].numpy(), {"from the start": trajectory}, note=note)
            )
        panels.append(row)
    rows = [f"learning rate {lr:g}" for lr in spec.rates]
    columns = [NAMES[method] for method in spec.methods]
    reach = 1.1 * spec.problem.radius
    yield "trajectories", trajectory_grid(panels, rows, columns, styles, reach=reach, smooth=False)
