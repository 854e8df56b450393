"""Late gradients by how the curvature lies to the coordinates: steps to arrive, over the angle of the eigenvectors."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from syncline.analysis.statistics.ranks import rank_correlation
from syncline.specs.study import Piece, Record, Report
from syncline.studies.alignment.points import (
    RECORD,
    ROW,
    Points,
    finite,
    or_inf,
    points_of,
    quadratics,
    rule_of,
    share_of,
)
from syncline.studies.alignment.random_draws import random_records, random_rows
from syncline.studies.alignment.spec import AlignmentSpec
from syncline.studies.alignment.trap import trap_records, trap_rows

if TYPE_CHECKING:
    from syncline.studies.alignment.walks import Walk


def alignment_pieces(spec: AlignmentSpec) -> list[Piece]:
    """One per learning rate and method, then the random problems, then the trap; in steps."""
    out = [Piece(spec.steps, partial(angle_records, spec, lr, method)) for lr in spec.rates for method in spec.methods]
    if spec.random:
        out.append(Piece(spec.steps * len(spec.random.beta2), partial(random_records, spec, spec.random)))
    if spec.trap:
        out.append(Piece(spec.trap.steps * len(spec.trap.rates), partial(trap_records, spec, spec.trap)))
    return out


def angle_walk(spec: AlignmentSpec, lr: float, method: str, points: Points, report: Report) -> Walk:
    """Let the study's points walk."""
    from syncline.problems.spiral import spiral, spiral_hessian
    from syncline.studies.alignment.walks import loss_at_most, turned_by, walk

    if spec.turn_deg is not None:
        reached = turned_by(points.start, spec.turn_deg)
    else:
        assert spec.target_loss is not None
        reached = loss_at_most(spec.target_loss)
    oracle = spiral if spec.on_spiral else quadratics(points.hessians)
    hessian = spiral_hessian if spec.on_spiral else lambda position: points.hessians
    rule = rule_of(method, spec.beta2, hessian)
    return walk(points.start, oracle, rule, lr, points.delays, spec.steps, reached, report)


def angle_records(spec: AlignmentSpec, lr: float, method: str, report: Report) -> list[Record]:
    """A record per angle and draw; none after Ctrl-C."""
    import torch

    from syncline.analysis.theory.hessian import angle_to_axes_deg, dominant_eigenvector, misalignment, oscillation

    torch.set_num_threads(1)
    points = points_of(spec)
    try:
        gone = angle_walk(spec, lr, method, points, report)
    except KeyboardInterrupt:
        return []
    moves = gone.way.diff(dim=0)
    walking = torch.arange(len(moves))[:, None] < gone.steps
    undone = oscillation(moves * walking[..., None], dominant_eigenvector(points.hessians)).undone
    draws = [(angle, seed) for angle in spec.angles_deg for seed in spec.seeds]
    columns = {
        "axes_deg": angle_to_axes_deg(points.hessians),
        "misalignment": misalignment(points.hessians),
        "steps": gone.steps,
        "undone": undone,
    }
    on_time = {name: values[: len(draws)].tolist() for name, values in columns.items()}
    late = {f"{name}_delayed": columns[name][len(draws) :].tolist() for name in ("steps", "undone")}
    return [
        RECORD
        | {"part": "angles", "method": method, "lr": lr, "angle_deg": angle, "seed": seed}
        | {name: finite(values[i]) for name, values in (on_time | late).items()}
        | {"slowdown": slowdown(on_time["steps"][i], late["steps_delayed"][i])}
        for i, (angle, seed) in enumerate(draws)
    ]


def slowdown(steps: float, steps_delayed: float) -> float | None:
    """Late over on time; none where one of the two did not arrive, or had arrived before the first step.

    >>> slowdown(10.0, 25.0), slowdown(10.0, math.inf), slowdown(0.0, 0.0)
    (2.5, None, None)
    """
    return steps_delayed / steps if 0 < steps < math.inf and steps_delayed < math.inf else None


def alignment_rows(spec: AlignmentSpec, records: list[Record]) -> list[Record]:
    """One row per learning rate, method and angle; per claim of random problems; per learning rate of the trap."""
    return _angle_rows(spec, records) + random_rows(spec, records) + trap_rows(spec, records)


def _angle_rows(spec: AlignmentSpec, records: list[Record]) -> list[Record]:
    out = []
    angles = [record for record in records if record["part"] == "angles"]
    aligned = {
        (r["lr"], r["seed"]): (r["steps"], r["steps_delayed"])
        for r in angles
        if r["method"] == "adam" and r["angle_deg"] == 0 and not spec.on_spiral
    }
    for lr in spec.rates:
        for method in spec.methods:
            own = [r for r in angles if (r["lr"], r["method"]) == (lr, method)]
            if not own:
                continue
            by_angle = [[r for r in own if r["angle_deg"] == angle] for angle in spec.angles_deg]
            medians = [_of_draws(draws) for draws in by_angle]
            ranks = {
                "steps_rank": _rank(medians, "steps"),
                "slowdown_rank": _rank(medians, "slowdown"),
                "slowdown_rank_draws": _rank(own, "slowdown"),
            }
            for angle, draws, middle in zip(spec.angles_deg, by_angle, medians, strict=True):
                same = [aligned[lr, r["seed"]] == (r["steps"], r["steps_delayed"]) for r in draws] if aligned else []
                own_part = {
                    "part": "angles",
                    "method": method,
                    "lr": lr,
                    "angle_deg": angle,
                    "restored": share_of(same),
                }
                out.append(ROW | own_part | middle | ranks)
    return out


def _rank(records: list[Record], name: str) -> float | None:
    """The rank correlation of a measure with the misalignment; what did not arrive has the largest."""
    return finite(rank_correlation([r["misalignment"] for r in records], [or_inf(r[name]) for r in records]))


def _of_draws(draws: list[Record]) -> Record:
    ratios = [or_inf(r["slowdown"]) for r in draws]
    out: Record = {"draws": len(draws), "arrived": sum(r["slowdown"] is not None for r in draws)}
    for name in ("axes_deg", "misalignment", "steps", "steps_delayed", "undone", "undone_delayed"):
        out[name] = finite(_median([or_inf(r[name]) for r in draws]))
    return out | {
        "slowdown": finite(_median(ratios)),
        "slowdown_min": finite(min(ratios)),
        "slowdown_max": finite(max(ratios)),
    }


def _median(values: list[float]) -> float:
    """The middle value, the lower one of two: no average with an infinite one."""
    return sorted(values)[(len(values) - 1) // 2] if math.inf in values else float(np.median(values))
