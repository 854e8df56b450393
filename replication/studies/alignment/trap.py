"""Measurements of the radius below which a spiral's valley traps Adam on an axis, beside the theoretical radius."""

from __future__ import annotations

import math

import numpy as np

from replication.studies.alignment.points import RECORD, ROW, finite, floor_point, rule_of
from replication.studies.alignment.spec import AlignmentSpec, TrapSpec
from replication.theory.basis_rotation import trap_radius
from syncline.specs import Record, Report


def trap_records(spec: AlignmentSpec, trap: TrapSpec, report: Report) -> list[Record]:
    """Measure how far Adam moves along the valley from starts on the axes.

    Returns:
        A record per learning rate, radius and axis with the ``radius`` of the start and ``arc``, the distance along the
        valley in learning rates; no records after Ctrl-C.
    """
    import torch

    from replication.studies.alignment.walks import walk
    from syncline.problems.landscapes import TURNS, spiral, spiral_hessian

    torch.set_num_threads(1)
    records: list[Record] = []
    try:
        for number, lr in enumerate(trap.rates):
            wanted = [(share * float(trap_radius(lr)), axis) for share in trap.radii for axis in range(4)]
            # The steep direction lags the radial direction by this angle.
            turns = [math.degrees(math.atan(1 / (TURNS * radius))) for radius, _ in wanted]
            start = torch.stack([
                floor_point(90 * axis + turn, radius) for (radius, axis), turn in zip(wanted, turns, strict=True)
            ])  # fmt: skip
            walked = walk(
                start,
                spiral,
                rule_of("adam", spec.beta2, spiral_hessian),
                lr,
                torch.zeros(len(start), dtype=torch.long),
                trap.steps,
                lambda position, loss: torch.zeros_like(loss, dtype=torch.bool),
                lambda done, before=number * trap.steps: report(before + done),  # type: ignore[misc]
            )
            radius = start.norm(dim=-1)
            end = walked.way[-min(100, len(walked.way)) :].mean(0)  # averages out the oscillation of single steps
            cross = start[:, 0] * end[:, 1] - start[:, 1] * end[:, 0]
            arc = torch.atan2(cross, (start * end).sum(-1)).abs() * radius / lr
            records += [
                RECORD
                | {"part": "trap", "method": "adam", "lr": lr, "angle_deg": 90.0 * axis}
                | {"radius": float(r), "arc": float(a), "steps": float(trap.steps)}
                for (_, axis), r, a in zip(wanted, radius, arc, strict=True)
            ]
    except KeyboardInterrupt:
        return []
    return records


def trap_rows(spec: AlignmentSpec, records: list[Record]) -> list[Record]:
    """Return a row per learning rate: the measured radius at which starts become free, beside the closed form."""
    out = []
    for lr in spec.trap.rates if spec.trap else ():
        starts = sorted((r["radius"], r["arc"]) for r in records if r["part"] == "trap" and r["lr"] == lr)
        if starts:
            assert spec.trap is not None
            free = [arc >= spec.trap.escape_distance for _, arc in starts]
            fields = {"part": "trap", "method": "adam", "lr": lr, "draws": len(starts), "arrived": sum(free)}
            fields |= {"steps": float(spec.trap.steps), "trap_closed_form": float(trap_radius(lr))}
            out.append(ROW | fields | {"trap_radius": finite(edge([r for r, _ in starts], free))})
    return out


def edge(radii: list[float], free: list[bool]) -> float:
    """Return the radius that best separates trapped starts (below it) from free ones (above it).

    Among the radii that misclassify the fewest starts, this is the middle one.

    Args:
        radii: radii of the starts, in ascending order.
        free: True for a start that left the axis.

    Returns:
        The radius; infinite if all starts are trapped, 0 if all are free.

    >>> edge([1.0, 2.0, 3.0, 4.0], [False, False, True, True])
    2.5
    """
    caught = np.concatenate([[0], np.cumsum(free)])  # free starts below each cut
    missed = np.concatenate([np.cumsum(~np.array(free)[::-1])[::-1], [0]])  # trapped starts above each cut
    bounds = np.concatenate([[0.0], (np.array(radii[1:]) + radii[:-1]) / 2, [math.inf]])
    best = np.flatnonzero(caught + missed == (caught + missed).min())
    return float(bounds[best[len(best) // 2]])
