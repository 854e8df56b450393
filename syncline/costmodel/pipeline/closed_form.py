"""Pipelines in closed form: seconds of a schedule, its bubble, gradient delays, and the blocks of each stage.

A pipeline has K equal stages, M micro-batches, forward F and backward B, and links take no time. A split backward pass
has B for the gradient of the inputs and W for that of the weights:

| schedule      | makespan                           | peak in flight at stage k |
|---------------|------------------------------------|---------------------------|
| `gpipe`       | (M + K - 1) (F + B)                | M                         |
| `1f1b`        | (M + K - 1) (F + B)                | min(M, K - k)             |
| `interleaved` | (M + (K - 1) / v) (F + B)          |                           |
| `zb-h1`       | M (F + B + W) + (K - 1)(F + B - W) | min(M, K)                 |
| `async-1f1b`  | (M + K - 1) (F + B)                | min(M, K - k)             |

Stages count from 0. In the interleaved schedule F and B cover all v chunks of a stage. For the sources see
`syncline.sim.pipelines.schedules`.
"""

from __future__ import annotations

import numpy as np

from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.errors import SpecError, one_of

CLOSED_FORMS = ("gpipe", "1f1b", "interleaved", "zb-h1", "async-1f1b")
"""Schedules with a closed form."""


def pipeline_s(
    schedule: str,
    stages: IntOrArray,
    microbatches: IntOrArray,
    forward_s: FloatOrArray,
    backward_s: FloatOrArray,
    *,
    weight_s: FloatOrArray = 0.0,
    chunks: IntOrArray = 1,
) -> FloatOrArray:
    """Return the seconds from the first forward to the last backward pass of all micro-batches, by this module's table.

    Args:
        schedule: one of ``CLOSED_FORMS``.
        stages: K, number of stages.
        microbatches: M, number of micro-batches; a multiple of K for ``interleaved``, at least K for ``zb-h1``.
        forward_s: F, seconds of a forward pass per stage and micro-batch.
        backward_s: B, seconds of a backward pass; for ``zb-h1`` only for the gradient of the inputs, with
            W <= B <= F + W.
        weight_s: W, seconds for the gradient of the weights with ``zb-h1``; other schedules include it in B.
        chunks: v, chunks per stage.

    Raises:
        SpecError: a schedule without a closed form.

    >>> [pipeline_s(name, 4, 8, 1.0, 2.0) for name in ("gpipe", "1f1b", "async-1f1b")]
    [33.0, 33.0, 33.0]
    >>> pipeline_s("interleaved", 4, 8, 1.0, 2.0, chunks=2), pipeline_s("zb-h1", 4, 8, 1.0, 1.0, weight_s=1.0)
    (28.5, 27.0)
    """
    if schedule not in CLOSED_FORMS:
        raise SpecError("schedule", schedule, one_of(CLOSED_FORMS, schedule))
    if schedule == "zb-h1":
        work = microbatches * (forward_s + backward_s + weight_s)
        return work + (stages - 1) * (forward_s + backward_s - weight_s)
    return (microbatches + (stages - 1) / chunks) * (forward_s + backward_s)


def bubble(stages: IntOrArray, microbatches: IntOrArray, chunks: IntOrArray = 1) -> FloatOrArray:
    """Return the fraction of time that a stage of GPipe or 1F1B is idle: ``(K - 1) / (v M + K - 1)``.

    K is the number of stages, M that of micro-batches, and v the number of chunks of a stage.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3; with v chunks as in
    `syncline.sim.pipelines.schedules.kinds.interleaved`.

    >>> f"{bubble(4, 8):.4f}, {bubble(4, 8, chunks=2):.4f}"
    '0.2727, 0.1579'
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)


def stage_delays(stages: int) -> np.ndarray:
    """Return the steady-state gradient delay of each stage k of K in updates: ``K - 1 - k``, ``(K,)``.

    The delay is the number of updates between the use of a weight and the update by the weight's gradient.

    Source: Basis Rotation, section 2.3 (which counts stages from 1).
    """
    return np.arange(stages)[::-1].copy()


def even_parts(count: int, parts: int) -> list[range]:
    """Split ``count`` items into ``parts`` runs in order; the first runs get one more item if the split is not even.

    >>> [len(part) for part in even_parts(8, 3)]
    [3, 3, 2]
    """
    size, remainder = divmod(count, parts)
    firsts = [part * size + min(part, remainder) for part in range(parts + 1)]
    return [range(firsts[part], firsts[part + 1]) for part in range(parts)]


def block_stages(blocks: int, stages: int) -> list[range]:
    """Return the consecutive blocks of each stage; stages differ by at most one block.

    Raises:
        SpecError: no stage, or more stages than blocks.
    """
    if not 1 <= stages <= blocks:
        raise SpecError("stages", stages, f"from 1 to {blocks}: a stage has at least one of the model's blocks")
    return even_parts(blocks, stages)
