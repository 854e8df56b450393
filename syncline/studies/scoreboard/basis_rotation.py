"""Basis Rotation's numbers: stages of large models, memory, delays, bounds, and the theorem on (1,1)-norms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from syncline.analysis.theory import delayed_adam_bound
from syncline.analysis.theory.kronecker import FAMILIES, SideNorms, kronecker, side_norms
from syncline.costmodel.compute.rotation import rotation_elements, stage_frequencies
from syncline.costmodel.network.link import Link
from syncline.costmodel.pipeline.closed_form import (
    block_bytes,
    effective_delay,
    stage_delays,
    stages_needed,
)
from syncline.seeds import seed64
from syncline.sim import Durations, Pipeline, report, run_pipeline, schedule

# Appendix A: how many stages a model needs.


class LlamaBlock(NamedTuple):
    """A model of the table: width, heads, millions of parameters in a block, blocks."""

    width: int
    heads: int
    parameters: float
    blocks: int


LLAMAS: Mapping[str, LlamaBlock] = {
    "3.2-1B": LlamaBlock(2048, 32, 67, 16),
    "3.2-3B": LlamaBlock(3072, 24, 113, 28),
    "1-7B": LlamaBlock(4096, 32, 202, 32),
    "1-13B": LlamaBlock(5120, 40, 317, 40),
    "1-33B": LlamaBlock(6656, 52, 535, 60),
    "1-65B": LlamaBlock(8192, 64, 810, 80),
    "3.1-405B": LlamaBlock(16384, 128, 3190, 126),
}
MEMORY_GB = {"RTX3070": 8, "RTX3080": 16, "RTX3090": 24, "A6000": 48, "A100": 80}


def stages_of(model: str, device: str) -> int:
    """Of a sequence of 4,096 and a batch of 1; memory in decimal GB."""
    shape = LLAMAS[model]
    block = block_bytes(shape.parameters * 1e6, sequence=4096, width=shape.width, heads=shape.heads)
    return stages_needed(shape.blocks, block, MEMORY_GB[device] * 1e9)


def block_gb(model: str) -> float:
    """Bytes of a block by equation (7), in GB."""
    shape = LLAMAS[model]
    return block_bytes(shape.parameters * 1e6, sequence=4096, width=shape.width, heads=shape.heads) / 1e9


# Appendix H: memory.


def rotation_gib(source: str, geometry: str, columns: int) -> float:
    """Of a matrix of 4,096 rows, in fp32."""
    return 4 * rotation_elements(4096, columns, source, geometry) / 2**30


def share_of_adam(width: int = 1024) -> float:
    """What 1st/unilateral adds to an MLP matrix's two moments, in percent."""
    return 100 * rotation_elements(4 * width, width, "1st", "unilateral") / (2 * 4 * width * width)


# Delays.


def latest_delays(stages: int) -> float:
    """Largest difference of the delays counted from events and K - k, over stages and micro-batches in full flight."""
    microbatches = 3 * stages
    rng = np.random.default_rng(seed64(0, "late gradients"))
    times = Durations(*(np.exp(rng.standard_normal((stages, microbatches))) * mean for mean in (1.0, 2.0)))
    made = schedule("async-1f1b", stages, microbatches)
    told = report(run_pipeline(Pipeline(made, stages, times), Link(0.5, 1e15)), made, stages)
    counted = np.array([stage.delays for stage in told.stages])[:, stages:]
    return float(np.abs(counted - stage_delays(stages)[:, None]).max())


def uniform_effective_delay(stages: int) -> float:
    """Equation (3) for stages of equal curvature."""
    return float(effective_delay(stage_delays(stages)))


def effective_delays(stages: int = 32) -> dict[str, float]:
    """Of curvature in the first, in all, and in the last stages."""
    delays = stage_delays(stages)
    return {
        name: float(effective_delay(delays, curvature))
        for name, curvature in (
            ("first", np.arange(stages, 0, -1.0)),
            ("uniform", np.ones(stages)),
            ("last", np.arange(1.0, stages + 1)),
        )
    }


def bubble_by_events(name: str, stages: int, microbatches: int) -> float:
    """Share of the time until all are through in which a stage idles, backward twice forward, links free: percent."""
    made = schedule(name, stages, microbatches)
    timeline = run_pipeline(Pipeline(made, stages, Durations(1.0, 2.0)), Link(0.0, 1e15))
    return 100 * float(report(timeline, made, stages).bubble)


def finite_frequencies(stages: int) -> int:
    """At how many stages Appendix I's rule, as printed, has a frequency: neither divided by zero nor negative."""
    mid = stages // 2 - 1
    offsets = [mid - tau if tau > mid else mid + 1 - tau for tau in range(stages)]
    return sum(1 - n / mid > 0 for n in offsets)


def renewals_kept(stages: int, base: int = 10) -> float:
    """All renewals of the mended rule over those of ``base`` at every stage."""
    found = stage_frequencies([int(tau) for tau in stage_delays(stages)], base)
    return sum(1 / f for f in found if f) * base / stages


# Theorems 2.3 and E.6.


def bound_slowdown(delay: float, dimension: float, smoothness: float) -> float:
    """Steps that the bound without noise needs under a delay, over those without."""
    at: dict[str, Any] = {"gap": 450.0, "noise": 0.0, "dimension": dimension, "smoothness": smoothness}
    late, prompt = (float(delayed_adam_bound(1e6, tau, **at)) for tau in (delay, 0.0))
    return (late / prompt) ** 2


def bound_by_misalignment() -> dict[str, float]:
    """The bound at a delay of 8 by the Hessian's (1,1)-norm."""
    at: dict[str, Any] = {"gap": 1.0, "noise": 0.1, "dimension": 100.0}
    norms = {"aligned": 1.0, "misaligned": 4.0}
    return {name: float(delayed_adam_bound(1e6, 8.0, smoothness=norm, **at)) for name, norm in norms.items()}


def bound_exponent() -> float:
    """By which power of the steps the bound falls without noise."""
    at: dict[str, Any] = {"smoothness": 1.0, "gap": 1.0, "noise": 0.0, "dimension": 10.0}
    one, other = (float(delayed_adam_bound(steps, 4.0, **at)) for steps in (1e4, 1e6))
    return float(np.log(other / one) / np.log(100))


# The theorem on (1,1)-norms.

CASES = 300


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(seed64(0, "(1,1)-norms") % 2**63)


@cache
def _failed(family: str, m: int, n: int) -> float:
    first, second = side_norms(FAMILIES[family](CASES, m, n, _generator()), m, n).violations()
    return 100 * float((first | second).double().mean())


def norm_violations(family: str, m: int, n: int) -> float:
    """How often ``H_UV <= H_U <= H`` fails, of 300 random Hessians, in percent."""
    return _failed(family, m, n)


def bilateral_over_least(m: int, n: int) -> float:
    """Of Kronecker products the norm rotated from both sides over the least of all rotations, at worst."""
    norms = side_norms(kronecker(CASES, m, n, _generator()), m, n)
    return float((norms.bilateral / norms.least).max())


def first_moment_violations(rank: int, which: int) -> float:
    """How often Theorem F.5's first or second inequality fails, of 300 random 2 by 2 means, in percent."""
    source = _generator()
    left, right = (torch.randn(CASES, *of, generator=source, dtype=torch.float64) for of in ((2, rank), (rank, 2)))
    mean = left @ right
    _, sigma, vt = torch.linalg.svd(mean, full_matrices=False)
    one = (sigma.unsqueeze(-1) * vt).abs().sum((-2, -1))
    norms = SideNorms(
        mean.abs().sum((-2, -1)).square(), one.square(), sigma.sum(-1).square(), mean.square().sum((-2, -1))
    )
    return 100 * float(norms.violations()[which].double().mean())
