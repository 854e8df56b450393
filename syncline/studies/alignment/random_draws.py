"""Random quadratics like the one of an alignment study: how often what it shows holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from syncline.analysis.statistics.ranks import rank_correlation
from syncline.specs.study import Record, Report
from syncline.studies.alignment.points import RECORD, ROW, finite, or_inf, quadratics, rule_of, share_of
from syncline.studies.alignment.spec import AlignmentSpec, RandomQuadraticsSpec

if TYPE_CHECKING:
    from torch import Tensor

CLAIMS = {
    "slower at the last angle than at the first": lambda s: s[-1] > s[0],
    "slowdown falls at no larger angle": lambda s: bool((np.diff(s) >= 0).all()),
    "rank correlation above 0": lambda s: rank_correlation(np.arange(len(s)), s) > 0,
    "rank correlation at least 0.9": lambda s: rank_correlation(np.arange(len(s)), s) >= 0.9 - 1e-12,
}
"""What may hold of a problem's median slowdowns, in the order of the angles."""


def random_records(spec: AlignmentSpec, family: RandomQuadraticsSpec, report: Report) -> list[Record]:
    """A record per random problem and angle, with medians over its draws; none after Ctrl-C.

    Quadratics have no scale of their own, so the learning rate is 1 and the start as many of it away as drawn.
    """
    import torch

    from syncline.analysis.theory.hessian import angle_to_axes_deg, misalignment
    from syncline.studies.alignment.walks import loss_at_most, walk

    torch.set_num_threads(1)
    assert spec.target_loss is not None
    problems = draw_problems(spec, family)
    angles = torch.deg2rad(torch.tensor(spec.angles_deg, dtype=torch.float64))
    basis = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1).unflatten(-1, (2, 2))
    spectra = torch.stack([problems.condition, torch.ones_like(problems.condition)], -1)
    hessians = torch.einsum("aij,pj,akj->paik", basis, spectra, basis)
    start = torch.einsum("aij,pnj->pani", basis, problems.start)  # problem, angle, draw
    target = spec.target_loss / max(spec.problem.spectrum) / spec.rates[0] ** 2 * problems.condition
    shape = (*start.shape[:3], 2)  # late or not comes last
    steps = torch.full(shape, math.inf, dtype=torch.float64)
    try:
        for number, beta2 in enumerate(family.beta2):
            own = problems.beta2 == number
            if not own.any():
                continue
            size = (int(own.sum()), *shape[1:])
            delays = torch.stack([torch.zeros_like(problems.delay), problems.delay], -1)[own][:, None, None]
            h = hessians[own][:, :, None, None].expand(*size, 2, 2).flatten(0, 3)
            gone = walk(
                start[own].unsqueeze(-2).expand(*size, 2).flatten(0, 3),
                quadratics(h),
                rule_of("adam", beta2, lambda position: h),  # noqa: B023
                1.0,
                delays.expand(size).flatten(),
                spec.steps,
                loss_at_most(target[own][:, None, None, None].expand(size).flatten()),
                lambda done, before=number * spec.steps: report(before + done),  # type: ignore[misc]
            )
            steps[own] = gone.steps.view(size)
        report(len(family.beta2) * spec.steps)
    except KeyboardInterrupt:
        return []
    on_time, late = steps.quantile(0.5, dim=2, interpolation="nearest").unbind(-1)
    ratios = (steps[..., 1] / steps[..., 0]).nan_to_num(nan=math.inf).quantile(0.5, dim=2, interpolation="nearest")
    measures = {"axes_deg": angle_to_axes_deg(hessians), "misalignment": misalignment(hessians)}
    measures |= {"steps": on_time, "steps_delayed": late, "slowdown": ratios}
    return [
        RECORD
        | {"part": "random", "method": "adam", "lr": 1.0, "problem": p, "angle_deg": angle}
        | {name: finite(float(values[p, a])) for name, values in measures.items()}
        for p in range(family.problems)
        for a, angle in enumerate(spec.angles_deg)
    ]


class RandomProblems(NamedTuple):
    """P random quadratics; ``start`` is ``(P, N, 2)`` in the eigenbasis, ``beta2`` the place in the family's list."""

    condition: Tensor
    start: Tensor
    beta2: Tensor
    delay: Tensor


def draw_problems(spec: AlignmentSpec, family: RandomQuadraticsSpec) -> RandomProblems:
    """The random problems, lengths in learning rates."""
    import torch

    from syncline.problems.streams import torch_generator

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
    """A row per claim: of how many problems it holds, of those with a slowdown at every angle."""
    of: dict[int, list[float]] = {}
    for record in records:
        if record["part"] == "random":
            of.setdefault(record["problem"], []).append(or_inf(record["slowdown"]))
    told = [np.array(ratios) for ratios in of.values() if all(map(math.isfinite, ratios))]
    return [
        ROW
        | {"part": "random", "method": "adam", "draws": len(of), "arrived": len(told), "claim": claim}
        | {"share": share_of([bool(holds(ratios)) for ratios in told])}
        for claim, holds in CLAIMS.items()
        if of
    ]
