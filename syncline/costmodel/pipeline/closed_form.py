"""Pipelines in closed form: seconds of a schedule, its bubble, gradient delays, and the stages that a model needs.

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

from collections.abc import Sequence

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


def effective_delay(delays: Sequence[float] | np.ndarray, curvature: Sequence[float] | np.ndarray = (1.0,)) -> float:
    """Return the delay, equal for all stages, with the convergence bound of these delays.

    It is ``sqrt(sum C_k^2 tau_k^2 / sum C_k^2)``.

    Args:
        delays: tau_k, delays of stages or of coordinates, in updates.
        curvature: C_k, coordinate-wise smoothness; the weight of a stage is the sum of C_k^2 over its coordinates. A
            single value means equal weights: ``sqrt((K - 1)(2 K - 1) / 6)`` for stages with delays 0, ..., K - 1.

    Raises:
        SpecError: no delay, or only weights of 0.

    Source: Basis Rotation, equation (3) and Theorem E.6.

    >>> f"{effective_delay(stage_delays(32)):.2f}"
    '18.04'
    """
    tau, weight = np.broadcast_arrays(np.asarray(delays, dtype=float), np.square(np.asarray(curvature, dtype=float)))
    if tau.size == 0 or weight.sum() <= 0:
        raise SpecError("delays", delays, "at least one delay, with a curvature above 0")
    return float(np.sqrt((weight * tau**2).sum() / weight.sum()))


def delayed_sgd_limit(delay: IntOrArray) -> FloatOrArray:
    """Return the largest stable step size times curvature of delayed gradient descent: ``2 sin(pi / (2 (2 tau + 1)))``.

    With a delay of tau steps, x_{t+1} = x_t - a x_{t - tau} is stable for 0 < a < limit. The limit is 2 without delay
    and 1 with delay 1.

    Source: S. A. Levin, R. May, "A note on difference-delay equations", Theoretical Population Biology 9 (1976).

    >>> [round(float(delayed_sgd_limit(delay)), 4) for delay in (0, 1, 2, 31)]
    [2.0, 1.0, 0.618, 0.0499]
    """
    return 2 * np.sin(np.pi / (2 * (2 * np.asarray(delay) + 1)))


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


def block_bytes(parameters: float, *, sequence: int, width: int, heads: int, batch: int = 1) -> float:
    """Return the bytes to train one transformer block with AdamW in mixed precision: ``16 W + 34 s b h + 5 b a s^2``.

    A parameter takes two bytes for the weight, two for the gradient, and twelve for the master weight and both moments;
    activations are as V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2023),
    count them.

    Args:
        parameters: W, parameters of the block.
        sequence: s, tokens of a sequence.
        width: h, width of the model.
        heads: a, attention heads of the block.
        batch: b, sequences in a batch.

    Source: Basis Rotation, Appendix A, equation (7).
    """
    return 16 * parameters + 34 * sequence * batch * width + 5 * batch * heads * sequence**2


def stages_needed(blocks: int, bytes_per_block: float, memory_bytes: float) -> int:
    """Return the number of stages that hold L blocks of b bytes: ``ceil(L / floor(m / b))``, or 2 L if no block fits.

    Args:
        blocks: L, number of blocks.
        bytes_per_block: b, by `block_bytes`.
        memory_bytes: m, memory of one device.

    The formula gives 31 of the 35 cells of Appendix A's table with decimal memories (8 GB is 8e9 bytes), and 24 with
    2^30 bytes per GB. The other four cells are those of the 405B model where a block does not fit: the formula gives
    2 * 126 = 252, the table has 512, twice 256, although its last cell, with one block per device, has 126.

    Source: Basis Rotation, Appendix A.

    >>> llama_7b = block_bytes(202e6, sequence=4096, width=4096, heads=32)
    >>> [stages_needed(32, llama_7b, memory) for memory in (8e9, 16e9, 24e9, 48e9, 80e9)]
    [32, 16, 11, 5, 3]
    """
    blocks_per_device = int(memory_bytes // bytes_per_block)
    return 2 * blocks if blocks_per_device == 0 else -(-blocks // blocks_per_device)
