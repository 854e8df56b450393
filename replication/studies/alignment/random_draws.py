"""Random quadratics like that of an alignment study, to measure how often the study's claims hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replication.studies.alignment.points import RECORD, ROW, finite, or_inf, quadratics, rule_of, share_of
from replication.studies.alignment.spec import AlignmentSpec, RandomQuadraticsSpec
from replication.theory.ranks import rank_correlation
from syncline.specs import Record, Report

if TYPE_CHECKING:
    from torch import Tensor

CLAIMS = {
    "slower at the last angle than at the first": lambda s: s[-1] > s[0],
    "slowdown falls at no larger angle": lambda s: bool((np.diff(s) >= 0).all()),
    "rank correlation above 0": lambda s: rank_correlation(np.arange(len(s)), s) > 0,
    "rank correlation at least 0.9": lambda s: rank_correlation(np.arange(len(s)), s) >= 0.9 - 1e-12,
}
"""Claims about a problem's median slowdowns, which are in the order of the angles."""


def random_records(spec: AlignmentSpec, family: RandomQuadraticsSpec, report: Report) -> list[Record]:
    """Return a record per random problem and angle, with medians over the problem's draws; no records after Ctrl-C.

    A quadratic has no length scale, so the learning rate is 1 and distances are in units of the learning rate.
    """
    import torch

    from replication.studies.alignment.walks import loss_at_most, walk
    from replication.theory.hessian import angle_to_axes_deg, misalignment

    torch.set_num_threads(1)
    assert spec.target_loss is not None
    problems = draw_problems(spec, family)
    angles = torch.deg2rad(torch.tensor(spec.angles_deg, dtype=torch.float64))
    basis = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1).unflatten(-1, (2, 2))
    spectra = torch.stack([problems.condition, torch.ones_like(problems.condition)], -1)
    hessians = torch.einsum("aij,pj,akj->paik", basis, spectra, basis)
    start = torch.einsum("aij,pnj->pani", basis, problems.start)  # problem, angle, draw
    target = spec.target_loss / max(spec.problem.spectrum) / spec.rates[0] ** 2 * problems.condition
    shape = (*start.shape[:3], 2)  # the last axis: without and with delay
    steps = torch.full(shape, math.inf, dtype=torch.float64)
    try:
        for number, beta2 in enumerate(family.beta2):
            mask = problems.beta2 == number
            if not mask.any():
                continue
            size = (int(mask.sum()), *shape[1:])
            delays = torch.stack([torch.zeros_like(problems.delay), problems.delay], -1)[mask][:, None, None]
            h = hessians[mask][:, :, None, None].expand(*size, 2, 2).flatten(0, 3)
            walked = walk(
                start[mask].unsqueeze(-2).expand(*size, 2).flatten(0, 3),
                quadratics(h),
                rule_of("adam", beta2, lambda position: h),  # noqa: B023
                1.0,
                delays.expand(size).flatten(),
                spec.steps,
                loss_at_most(target[mask][:, None, None, None].expand(size).flatten()),
                lambda done, before=number * spec.steps: report(before + done),  # type: ignore[misc]
            )
            steps[mask] = walked.steps.view(size)
        report(len(family.beta2) * spec.steps)
    except KeyboardInterrupt:
        return []
    on_time, delayed = steps.quantile(0.5, dim=2, interpolation="nearest").unbind(-1)
    ratios = (steps[..., 1] / steps[..., 0]).nan_to_num(nan=math.inf).quantile(0.5, dim=2, interpolation="nearest")
    measures = {"axes_deg": angle_to_axes_deg(hessians), "misalignment": misalignment(hessians)}
    measures |= {"steps": on_time, "steps_delayed": delayed, "slowdown": ratios}
    return [
        RECORD
        | {"part": "random", "method": "adam", "lr": 1.0, "problem": p, "angle_deg": angle}
        | {name: finite(float(values[p, a])) for name, values in measures.items()}
        for p in range(family.problems)
        for a, angle in enumerate(spec.angles_deg)
    ]


class RandomProblems(NamedTuple):
    """P random quadratics, each with N starting points.

    Attributes:
        condition: condition numbers, ``(P,)``.
        start: starting points in the eigenbasis, in learning rates, ``(P, N, 2)``.
        beta2: indices into the family's list of ``beta2``, ``(P,)``.
        delay: gradient delays in updates, ``(P,)``.
    """

    condition: Tensor
    start: Tensor
    beta2: Tensor
    delay: Tensor


def draw_problems(spec: AlignmentSpec, family: RandomQuadraticsSpec) -> RandomProblems:
    """Return the random problems of a family, with lengths in learning rates."""
    import torch

    from syncline.problems.random_draws import torch_generator

    source = torch_generator(family.seed, "quadratics")

    def uniform(*size: int) -> Tensor:
        return torch.rand(family.problems, *size, generator=source, dtype=torch.float64)

    def log_uniform(low: float, high: float) -> Tensor:
        return low * (high / low) ** uniform()

    condition, radius = log_uniform(*family.condition), log_uniform(*family.radius)
    direction = 2 * math.pi * uniform()
    centre = radius[:, None] * torch.stack([direction.cos(), direction.sin()], -1)
    jitter = getattr(spec.problem, "start_jitter", 0.0) / spec.rates[0]
    start = centre[:, None] + jitter * (2 * uniform(family.draws, 2) - 1)
    beta2 = (uniform() * len(family.beta2)).long()
    delay = torch.tensor(family.delay)[(uniform() * len(family.delay)).long()]
    return RandomProblems(condition, start, beta2, delay)


def random_rows(spec: AlignmentSpec, records: list[Record]) -> list[Record]:
    """Return a row per claim: the share of problems for which it holds, among those with a slowdown at every angle."""
    slowdowns: dict[int, list[float]] = {}
    for record in records:
        if record["part"] == "random":
            slowdowns.setdefault(record["problem"], []).append(or_inf(record["slowdown"]))
    complete = [np.array(ratios) for ratios in slowdowns.values() if all(map(math.isfinite, ratios))]
    return [
        ROW
        | {"part": "random", "method": "adam", "draws": len(slowdowns), "arrived": len(complete), "claim": claim}
        | {"share": share_of([bool(holds(ratios)) for ratios in complete])}
        for claim, holds in CLAIMS.items()
        if slowdowns
    ]
