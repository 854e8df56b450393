"""The figures of an alignment study: ways on contours, swings along the steepest direction, steps over angles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from syncline.analysis.figures.alignment import (
    LATE,
    ON_TIME,
    Panel,
    Plot,
    Scatter,
    measured_over,
    swings,
    trajectory_grid,
)
from syncline.analysis.figures.style import method_styles
from syncline.analysis.theory.basis_rotation import trap_radius
from syncline.specs.study import Figures, Record
from syncline.studies.alignment.points import floor_point, points_of, quadratics, rule_of
from syncline.studies.alignment.spec import AlignmentSpec
from syncline.studies.alignment.study import angle_walk

WAY_STEPS = 4000
"""Steps of a way on the spiral, at most."""

WAY_FROM_DEG = 20.0
"""Where it starts: the way inwards comes to an axis soon."""

NAMES = {
    "ada-sgd": "AdaSGD",
    "adam": "Adam",
    "rotated": "Adam, Hessian's basis",
    "rotated-ema": "Adam, basis of $gg^T$",
}


def alignment_figures(spec: AlignmentSpec, records: list[Record], rows: list[Record]) -> Figures:
    """All figures of a study, of what was finished."""
    angles = [record for record in records if record["part"] == "angles"]
    if angles:
        yield "steps_and_slowdown", _over_angles(spec, angles)
    if any(record["part"] == "trap" for record in records):
        yield "trap", _trap(records)
    yield from (_spiral_ways if spec.on_spiral else _quadratic_ways)(spec)


def _over_angles(spec: AlignmentSpec, records: list[Record]) -> Any:
    """Steps on time and slowdown, over the misalignment of a quadratic or the place on a spiral, per learning rate."""
    along = "angle_deg" if spec.on_spiral else "misalignment"
    x = "polar angle on the spiral (degrees)" if spec.on_spiral else "(1,1)-norm over its least"
    marks = [90.0 * k for k in range(5)] if spec.on_spiral else []
    plots = []
    for lr in sorted(spec.rates):
        for name, y in (("steps", "steps, on time"), ("slowdown", "slowdown, late / on time")):
            measured = {}
            for method in spec.methods:
                own = [r for r in records if (r["method"], r["lr"]) == (method, lr)]
                if not own:
                    continue
                values = [math.nan if r[name] is None else r[name] for r in own]
                places = sorted({r[along] for r in own})
                medians = [_median([v for r, v in zip(own, values, strict=True) if r[along] == at]) for at in places]
                measured[NAMES[method]] = Scatter([r[along] for r in own], values, (places, medians))
            title = f"learning rate {lr:g}" if len(spec.rates) > 1 else ""
            plots.append(Plot(measured, x, y, marks, title=title))
    styles = method_styles(NAMES[method] for method in spec.methods)
    return measured_over(plots, styles, mark_label="the valley lies along an axis")


def _median(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if 2 * len(known) > len(values) else math.nan


def _trap(records: list[Record]) -> Any:
    measured = {}
    for lr in sorted({r["lr"] for r in records if r["part"] == "trap"}):
        own = [r for r in records if r["part"] == "trap" and r["lr"] == lr]
        ratio = np.array([r["radius"] for r in own]) / float(trap_radius(lr))
        order = np.argsort(ratio)
        arcs = np.array([r["arc"] for r in own])
        measured[f"learning rate {lr:g}"] = Scatter(ratio, arcs, (ratio[order], arcs[order]))
    across = (1.0, "$r^*$: what starts\nleft of it stays")
    return measured_over([Plot(measured, "radius / $r^*$", "way along the valley\n(learning rates)", across=across)])


def _quadratic_ways(spec: AlignmentSpec) -> Figures:
    """The first draw's ways, per method and angle; and the steps of two angles along the steepest direction."""
    import torch

    from syncline.analysis.theory.hessian import dominant_eigenvector

    one = spec.model_copy(update={"seeds": spec.seeds[:1], "steps": min(spec.steps, WAY_STEPS)})
    lr, points, count = spec.rates[0], points_of(one), len(spec.angles_deg)
    dominant = dominant_eigenvector(points.hessians[:count])
    labels = {"on time": ON_TIME, f"{spec.delay} steps late": LATE}
    panels, steps = [], {}
    for method in spec.methods:
        gone = angle_walk(one, lr, method, points, lambda done: None)
        row = []
        for a, angle in enumerate(spec.angles_deg):
            ways, told = {}, []
            for label, i in zip(labels, (a, count + a), strict=True):
                n = len(gone.way) - 1 if torch.isinf(gone.steps[i]) else int(gone.steps[i])
                ways[label] = gone.way[: n + 1, i].numpy()
                told.append(str(n) if torch.isfinite(gone.steps[i]) else "-")
            f = quadratics(points.hessians[a])
            panel = Panel(lambda x, f=f: f(torch.from_numpy(x))[0].numpy(), ways, dominant[a].numpy(), spec.target_loss,  # type: ignore[misc]
                          f"{told[0]} and {told[1]} steps")  # fmt: skip
            row.append(panel)
            if angle in (spec.angles_deg[0], spec.angles_deg[-1]) and method in ("adam", "rotated"):
                moves = {label: np.diff(way, axis=0) @ panel.dominant for label, way in ways.items()}
                steps[f"{NAMES[method]}, {angle:g}°"] = moves
        panels.append(row)
    columns = [f"{angle:g}°" for angle in spec.angles_deg]
    grid = trajectory_grid(panels, [NAMES[method] for method in spec.methods], columns, labels)
    yield "trajectories", grid
    if steps:
        yield "swings", swings(steps, labels, label="update along the\ndominant direction")


def _spiral_ways(spec: AlignmentSpec) -> Figures:
    """Ways inwards from one place, on time, per learning rate and method."""
    import torch

    from syncline.problems.spiral import spiral, spiral_hessian
    from syncline.studies.alignment.walks import walk

    start = torch.stack([floor_point(WAY_FROM_DEG, spec.problem.radius)])
    styles = {"from the start": LATE}
    panels = []
    for lr in spec.rates:
        row = []
        for method in spec.methods:
            gone = walk(
                start, spiral, rule_of(method, spec.beta2, spiral_hessian), lr, torch.zeros(1, dtype=torch.long),
                min(spec.steps, WAY_STEPS), lambda position, loss: loss <= 1.0,
            )  # fmt: skip
            way = gone.way[:, 0].numpy()
            note = f"{len(way) - 1:,} steps, to r = {np.hypot(*way[-1]):.2g}"
            row.append(Panel(lambda x: spiral(torch.from_numpy(x))[0].numpy(), {"from the start": way}, note=note))
        panels.append(row)
    rows = [f"learning rate {lr:g}" for lr in spec.rates]
    columns = [NAMES[method] for method in spec.methods]
    reach = 1.1 * spec.problem.radius
    yield "trajectories", trajectory_grid(panels, rows, columns, styles, reach=reach, smooth=False)
