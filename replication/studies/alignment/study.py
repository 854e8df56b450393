"""Pieces and rows of an alignment study: steps to the target with and without delay, over the eigenvectors' angle."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from replication.studies.alignment.points import (
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
from replication.studies.alignment.random_draws import random_records, random_rows
from replication.studies.alignment.spec import AlignmentSpec
from replication.studies.alignment.trap import trap_records, trap_rows
from replication.theory.ranks import rank_correlation
from syncline.specs import Piece, Record, Report

if TYPE_CHECKING:
    from replication.studies.alignment.walks import Walk


def alignment_pieces(spec: AlignmentSpec) -> list[Piece]:
    """Return a piece per learning rate and method, then the random problems and the trap; lengths are in steps."""
    out = [Piece(spec.steps, partial(angle_records, spec, lr, method)) for lr in spec.rates for method in spec.methods]
    if spec.random_quadratics:
        out.append(
            Piece(spec.steps * len(spec.random_quadratics.beta2), partial(random_records, spec, spec.random_quadratics))
        )
    if spec.trap:
        out.append(Piece(spec.trap.steps * len(spec.trap.rates), partial(trap_records, spec, spec.trap)))
    return out


def angle_walk(spec: AlignmentSpec, lr: float, method: str, points: Points, report: Report) -> Walk:
    """Run a method from all starting points of the study until the target and return their trajectories."""
    from replication.studies.alignment.walks import loss_at_most, turned_by, walk
    from syncline.problems.landscapes import spiral, spiral_hessian

    if spec.target_turn_deg is not None:
        reached = turned_by(points.start, spec.target_turn_deg)
    else:
        assert spec.target_loss is not None
        reached = loss_at_most(spec.target_loss)
    oracle = spiral if spec.on_spiral else quadratics(points.hessians)
    hessian = spiral_hessian if spec.on_spiral else lambda position: points.hessians
    rule = rule_of(method, spec.beta2, hessian)
    return walk(points.start, oracle, rule, lr, points.delays, spec.steps, reached, report)


def angle_records(spec: AlignmentSpec, lr: float, method: str, report: Report) -> list[Record]:
    """Return a record per angle and seed of one learning rate and method; no records after Ctrl-C."""
    import torch

    from replication.theory.hessian import angle_to_axes_deg, dominant_eigenvector, misalignment, oscillation

    torch.set_num_threads(1)
    points = points_of(spec)
    try:
        walked = angle_walk(spec, lr, method, points, report)
    except KeyboardInterrupt:
        return []
    moves = walked.way.diff(dim=0)
    walking = torch.arange(len(moves))[:, None] < walked.steps
    undone = oscillation(moves * walking[..., None], dominant_eigenvector(points.hessians)).undone
    axes_deg, misalignments = angle_to_axes_deg(points.hessians), misalignment(points.hessians)
    draws = list(product(spec.angles_deg, spec.seeds))
    records = []
    for i, (angle, seed) in enumerate(draws):
        delayed = len(draws) + i  # the same point with delayed gradients
        measured = {
            "axes_deg": axes_deg[i], "misalignment": misalignments[i], "steps": walked.steps[i], "undone": undone[i],
            "steps_delayed": walked.steps[delayed], "undone_delayed": undone[delayed],
        }  # fmt: skip
        record = RECORD | {"part": "angles", "method": method, "lr": lr, "angle_deg": angle, "seed": seed}
        record |= {name: finite(value.item()) for name, value in measured.items()}
        record["slowdown"] = slowdown(walked.steps[i].item(), walked.steps[delayed].item())
        records.append(record)
    return records


def slowdown(steps: float, steps_delayed: float) -> float | None:
    """Return the steps with delay over the steps without delay.

    The result is None if a point did not arrive or started at the target.

    >>> slowdown(10.0, 25.0), slowdown(10.0, math.inf), slowdown(0.0, 0.0)
    (2.5, None, None)
    """
    return steps_delayed / steps if 0 < steps < math.inf and steps_delayed < math.inf else None


def alignment_rows(spec: AlignmentSpec, records: list[Record]) -> list[Record]:
    """Return the rows of all parts.

    There is a row per learning rate, method and angle, per claim about random problems, and per learning rate of the
    trap.
    """
    return _angle_rows(spec, records) + random_rows(spec, records) + trap_rows(spec, records)


def _angle_rows(spec: AlignmentSpec, records: list[Record]) -> list[Record]:
    """Return a row per learning rate, method and angle, with medians over the seeds."""
    rows = []
    angle_draws = [record for record in records if record["part"] == "angles"]
    aligned_steps = {}  # steps of Adam on aligned axes, without and with delay, by rate and seed
    if not spec.on_spiral:
        for record in angle_draws:
            if record["method"] == "adam" and record["angle_deg"] == 0:
                aligned_steps[record["lr"], record["seed"]] = record["steps"], record["steps_delayed"]
    for lr, method in product(spec.rates, spec.methods):
        method_records = [r for r in angle_draws if (r["lr"], r["method"]) == (lr, method)]
        if not method_records:
            continue
        draws_by_angle = [[r for r in method_records if r["angle_deg"] == angle] for angle in spec.angles_deg]
        medians = [_medians(draws) for draws in draws_by_angle]
        ranks = {
            "steps_rank": _rank(medians, "steps"),
            "slowdown_rank": _rank(medians, "slowdown"),
            "slowdown_rank_draws": _rank(method_records, "slowdown"),
        }
        for angle, draws, angle_medians in zip(spec.angles_deg, draws_by_angle, medians, strict=True):
            is_restored = []
            if aligned_steps:
                is_restored = [aligned_steps[lr, r["seed"]] == (r["steps"], r["steps_delayed"]) for r in draws]
            fields = {"part": "angles", "method": method, "lr": lr, "angle_deg": angle}
            rows.append(ROW | fields | {"restored": share_of(is_restored)} | angle_medians | ranks)
    return rows


def _rank(records: list[Record], name: str) -> float | None:
    """Return the rank correlation of a measure with the misalignment; a missing value ranks as the largest."""
    return finite(rank_correlation([r["misalignment"] for r in records], [or_inf(r[name]) for r in records]))


def _medians(draws: list[Record]) -> Record:
    """Return the medians of each measure over the seeds of one angle, and the range of the slowdown."""
    medians: Record = {"draws": len(draws), "arrived": sum(r["slowdown"] is not None for r in draws)}
    for name in ("axes_deg", "misalignment", "steps", "steps_delayed", "undone", "undone_delayed", "slowdown"):
        medians[name] = finite(_median([or_inf(r[name]) for r in draws]))
    slowdowns = [or_inf(r["slowdown"]) for r in draws]
    return medians | {"slowdown_min": finite(min(slowdowns)), "slowdown_max": finite(max(slowdowns))}


def _median(values: list[float]) -> float:
    """Return the median; if a value is infinite, the lower of two middle values, to avoid an average with infinity."""
    return sorted(values)[(len(values) - 1) // 2] if math.inf in values else float(np.median(values))
