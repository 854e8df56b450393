"""Basis Rotation's numbers: stages of large models, memory, delays, bounds, and the theorem on (1,1)-norms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from replication.theory import delayed_adam_bound
from replication.theory.basis_rotation import block_bytes, effective_delay, stages_needed
from replication.theory.kronecker import FAMILIES, SideNorms, kronecker, side_norms
from replication.theory.products import Products, cauchy_norm_11
from syncline.costmodel import Link
from syncline.costmodel.compute.update_work import rotation_elements, stage_renewal_intervals
from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.seeds import seed64
from syncline.sim import Durations, Pipeline, report, run_pipeline, schedule

# Appendix A: the number of stages of a model.


class LlamaBlock(NamedTuple):
    """A model of the table, with ``parameters`` in millions per block."""

    width: int
    heads: int
    parameters: float
    blocks: int


LLAMAS: Mapping[str, LlamaBlock] = {
    "3.2-1B": LlamaBlock(2048, 32, 67, 16), "3.2-3B": LlamaBlock(3072, 24, 113, 28),
    "1-7B": LlamaBlock(4096, 32, 202, 32), "1-13B": LlamaBlock(5120, 40, 317, 40),
    "1-33B": LlamaBlock(6656, 52, 535, 60), "1-65B": LlamaBlock(8192, 64, 810, 80),
    "3.1-405B": LlamaBlock(16384, 128, 3190, 126),
}  # fmt: skip
MEMORY_GB = {"RTX3070": 8, "RTX3080": 16, "RTX3090": 24, "A6000": 48, "A100": 80}


def stages_of(model: str, device: str) -> int:
    """Return the number of stages that a model needs on a device, for a batch of one sequence of 4,096 tokens.

    The memory of a device is in decimal GB.
    """
    shape = LLAMAS[model]
    block = block_bytes(shape.parameters * 1e6, sequence=4096, width=shape.width, heads=shape.heads)
    return stages_needed(shape.blocks, block, MEMORY_GB[device] * 1e9)


def block_gb(model: str) -> float:
    """Return the memory of a block by equation (7), in GB."""
    shape = LLAMAS[model]
    return block_bytes(shape.parameters * 1e6, sequence=4096, width=shape.width, heads=shape.heads) / 1e9


# Appendix H: memory.


def rotation_gib(source: str, geometry: str, columns: int) -> float:
    """Return the memory of the rotation of a matrix with 4,096 rows, in GiB of fp32."""
    return 4 * rotation_elements(4096, columns, source, geometry) / 2**30


def share_of_adam(width: int = 1024) -> float:
    """Return the memory of 1st/unilateral over the ``4 m n`` that Appendix H names for Adam's states, in percent."""
    return 100 * rotation_elements(4 * width, width, "1st", "unilateral") / (4 * 4 * width * width)


# Delays.


def latest_delays(stages: int) -> float:
    """Return the largest difference of the delays counted from events from K - k.

    The maximum is over all stages and the micro-batches after the first ``stages``, while the pipeline is full.
    """
    microbatches = 3 * stages
    rng = np.random.default_rng(seed64(0, "late gradients"))
    times = Durations(*(np.exp(rng.standard_normal((stages, microbatches))) * mean for mean in (1.0, 2.0)))
    pipeline_schedule = schedule("async-1f1b", stages, microbatches)
    pipeline_report = report(
        run_pipeline(Pipeline(pipeline_schedule, stages, times), Link(0.5, 1e15)), pipeline_schedule, stages
    )
    counted = np.array([stage.delays for stage in pipeline_report.stages])[:, stages:]
    return float(np.abs(counted - stage_delays(stages)[:, None]).max())


def uniform_effective_delay(stages: int) -> float:
    """Return the effective delay of equation (3) for stages of equal curvature."""
    return float(effective_delay(stage_delays(stages)))


def effective_delays(stages: int = 32) -> dict[str, float]:
    """Return the effective delays with the most curvature in the first stages, equal curvature, or most in the last."""
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
    """Return the idle share of a stage's time until all micro-batches are done, in percent.

    A backward pass takes twice as long as a forward pass, and messages take no time.
    """
    pipeline_schedule = schedule(name, stages, microbatches)
    timeline = run_pipeline(Pipeline(pipeline_schedule, stages, Durations(1.0, 2.0)), Link(0.0, 1e15))
    return 100 * float(report(timeline, pipeline_schedule, stages).bubble)


def finite_frequencies(stages: int) -> int:
    """Return the number of stages at which Appendix I's printed rule gives a positive, finite frequency."""
    mid = stages // 2 - 1
    offsets = [mid - tau if tau > mid else mid + 1 - tau for tau in range(stages)]
    return sum(1 - n / mid > 0 for n in offsets)


def relative_renewals(stages: int, base: int = 10) -> float:
    """Return the renewals of all stages by the corrected rule over those with the period ``base`` at every stage."""
    periods = stage_renewal_intervals([int(tau) for tau in stage_delays(stages)], base)
    return sum(1 / period for period in periods if period) * base / stages


# Theorems 2.3 and E.6.


def bound_slowdown(delay: float, dimension: float, smoothness: float) -> float:
    """Return the steps that the bound without noise needs with a delay, over those that it needs without one."""
    constants: dict[str, Any] = {"gap": 450.0, "noise": 0.0, "dimension": dimension, "smoothness": smoothness}
    delayed_bound, undelayed_bound = (float(delayed_adam_bound(1e6, tau, **constants)) for tau in (delay, 0.0))
    return (delayed_bound / undelayed_bound) ** 2


def bound_by_misalignment() -> dict[str, float]:
    """Return the bound at a delay of 8 for the (1,1)-norms of an aligned and of a misaligned Hessian."""
    constants: dict[str, Any] = {"gap": 1.0, "noise": 0.1, "dimension": 100.0}
    norms = {"aligned": 1.0, "misaligned": 4.0}
    return {name: float(delayed_adam_bound(1e6, 8.0, smoothness=norm, **constants)) for name, norm in norms.items()}


def bound_exponent() -> float:
    """Return the power of the number of steps with which the bound falls without noise."""
    constants: dict[str, Any] = {"smoothness": 1.0, "gap": 1.0, "noise": 0.0, "dimension": 10.0}
    short, long = (float(delayed_adam_bound(steps, 4.0, **constants)) for steps in (1e4, 1e6))
    return float(np.log(long / short) / np.log(100))


# The theorem on (1,1)-norms.

CASES = 300


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(seed64(0, "(1,1)-norms") % 2**63)


@cache
def _failed(family: str, m: int, n: int) -> float:
    first, second = side_norms(FAMILIES[family](CASES, m, n, _generator()), m, n).violations()
    return 100 * float((first | second).double().mean())


def norm_violations(family: str, m: int, n: int) -> float:
    """Return the share of 300 random Hessians for which ``H_UV <= H_U <= H`` fails, in percent."""
    return _failed(family, m, n)


def bilateral_over_least(m: int, n: int) -> float:
    """Return the largest ratio of the bilaterally rotated norm to the least norm of all rotations.

    The maximum is over 300 random Kronecker products.
    """
    norms = side_norms(kronecker(CASES, m, n, _generator()), m, n)
    return float((norms.bilateral / norms.least).max())


def first_moment_violations(rank: int, which: int) -> float:
    """Return the share of 300 random 2 by 2 means for which an inequality of Theorem F.5 fails, in percent.

    ``which`` 0 is the first inequality, 1 the second.
    """
    generator = _generator()
    left_factor, right_factor = (
        torch.randn(CASES, *shape, generator=generator, dtype=torch.float64) for shape in ((2, rank), (rank, 2))
    )
    mean = left_factor @ right_factor
    _, sigma, vt = torch.linalg.svd(mean, full_matrices=False)
    unilateral = (sigma.unsqueeze(-1) * vt).abs().sum((-2, -1))
    norms = SideNorms(
        mean.abs().sum((-2, -1)).square(), unilateral.square(), sigma.sum(-1).square(), mean.square().sum((-2, -1))
    )
    return 100 * float(norms.violations()[which].double().mean())


# Appendix D.3.


def cauchy_over_exact(draws: int = 200, size: int = 64) -> float:
    """Return the (1,1)-norm that Cauchy vectors estimate over the exact one, of a dense random Hessian."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    hessian = root + root.T
    products = Products(size, hessian.dtype, hessian.device, hessian.matmul)
    estimate = cauchy_norm_11(products, draws, generator)
    return float(estimate.norm / hessian.abs().sum())
