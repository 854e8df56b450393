"""Pipelines in closed form: how long a schedule takes, what part of it is bubble, how many stages a model needs.

With K equal stages, M micro-batches, forward F, backward B (of a split one the input's gradient; W the weights') and no
time on links:

| schedule      | makespan                           | peak in flight at stage k |
|---------------|------------------------------------|---------------------------|
| `gpipe`       | (M + K - 1) (F + B)                | M                         |
| `1f1b`        | (M + K - 1) (F + B)                | min(M, K - k)             |
| `interleaved` | (M + (K - 1) / v) (F + B)          |                           |
| `zb-h1`       | M (F + B + W) + (K - 1)(F + B - W) | min(M, K)                 |
| `async-1f1b`  | (M + K - 1) (F + B)                | min(M, K - k)             |

Stages count from 0. In the interleaved schedule F and B are of all v chunks of a stage. Sources: as in
`syncline.sim.pipelines.schedules`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray
from syncline.errors import SpecError, one_of

CLOSED_FORMS = ("gpipe", "1f1b", "interleaved", "zb-h1", "async-1f1b")
"""Schedules that have one."""


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
    """Seconds from the first forward to the last backward of M micro-batches, by the table above.

    Args:
        schedule: one of ``CLOSED_FORMS``.
        stages: K.
        microbatches: M; of an interleaved schedule a multiple of K, of zb-h1 at least K.
        forward_s: F of a stage and micro-batch, in seconds.
        backward_s: B; where the schedule splits it, of the input's gradient alone, with W <= B <= F + W.
        weight_s: W, which every other schedule has in B.
        chunks: v.

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
    """The part of its time that a stage of GPipe or 1F1B stands still: ``(K - 1) / (v M + K - 1)``.

    Source: Y. Huang et al., "GPipe" (2019), section 2.3; with v chunks as in
    `syncline.sim.pipelines.schedules.interleaved`.

    >>> f"{bubble(4, 8):.4f}, {bubble(4, 8, chunks=2):.4f}"
    '0.2727, 0.1579'
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)


def stage_delays(stages: int) -> np.ndarray:
    """Updates between a weight's use and the update by its gradient in steady state: ``K - 1 - k``, ``(K,)``.

    Source: Basis Rotation, section 2.3 (stages from 1 there).
    """
    return np.arange(stages)[::-1].copy()


def effective_delay(delays: Sequence[float] | np.ndarray, curvature: Sequence[float] | np.ndarray = (1.0,)) -> float:
    """The one delay that bounds convergence as these do: ``sqrt(sum C_k^2 tau_k^2 / sum C_k^2)``.

    Args:
        delays: tau_k, of stages or of coordinates.
        curvature: C_k, coordinate-wise smoothness; C_k^2 summed over a stage's coordinates is its weight. One value for
            all is equal weights: ``sqrt((K - 1)(2 K - 1) / 6)`` for stages with delays 0, ..., K - 1.

    Raises:
        SpecError: no delay, or weights that are all 0.

    Source: Basis Rotation, equation (3) and Theorem E.6.

    >>> f"{effective_delay(stage_delays(32)):.2f}"
    '18.04'
    """
    tau, weight = np.broadcast_arrays(np.asarray(delays, dtype=float), np.square(np.asarray(curvature, dtype=float)))
    if tau.size == 0 or weight.sum() <= 0:
        raise SpecError("delays", delays, "at least one delay, with a curvature above 0")
    return float(np.sqrt((weight * tau**2).sum() / weight.sum()))


def delayed_sgd_limit(delay: IntOrArray) -> FloatOrArray:
    """The largest stable step size times curvature of gradient descent with a delay: ``2 sin(pi / (2 (2 tau + 1)))``.

    x_{t+1} = x_t - a x_{t - tau} is stable for 0 < a < this: 2 without delay, 1 with delay 1.

    Source: S. A. Levin, R. May, "A note on difference-delay equations", Theoretical Population Biology 9 (1976).

    >>> [round(float(delayed_sgd_limit(delay)), 4) for delay in (0, 1, 2, 31)]
    [2.0, 1.0, 0.618, 0.0499]
    """
    return 2 * np.sin(np.pi / (2 * (2 * np.asarray(delay) + 1)))


def even_parts(count: int, parts: int) -> list[range]:
    """So many things in so many runs, in their order; the first runs are longer by one where it does not come out even.

    >>> [len(part) for part in even_parts(8, 3)]
    [3, 3, 2]
    """
    size, longer = divmod(count, parts)
    firsts = [part * size + min(part, longer) for part in range(parts + 1)]
    return [range(firsts[part], firsts[part + 1]) for part in range(parts)]


def block_stages(blocks: int, stages: int) -> list[range]:
    """The blocks of each stage.

    Raises:
        SpecError: no stage, or more stages than blocks.
    """
    if not 1 <= stages <= blocks:
        raise SpecError("stages", stages, f"from 1 to {blocks}: a stage has at least one of the model's blocks")
    return even_parts(blocks, stages)


def block_bytes(parameters: float, *, sequence: int, width: int, heads: int, batch: int = 1) -> float:
    """Bytes that one transformer block needs to train with AdamW in mixed precision: ``16 W + 34 s b h + 5 b a s^2``.

    Two bytes a weight, two a gradient, twelve for master weights and both moments; the activations are as
    V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2023), count them.

    Args:
        parameters: W, of the block.
        sequence: s, tokens.
        width: h.
        heads: a.
        batch: b, sequences.

    Source: Basis Rotation, Appendix A, equation (7).
    """
    return 16 * parameters + 34 * sequence * batch * width + 5 * batch * heads * sequence**2


def stages_needed(blocks: int, block: float, memory_bytes: float) -> int:
    """Stages that hold L blocks: ``ceil(L / floor(m / block))``; ``2 L``, at least, where no block fits.

    Args:
        blocks: L.
        block: bytes of one block, as `block_bytes`.
        memory_bytes: m, of one device.

    Of the 35 cells of Appendix A's table this gives 31, with memories in decimal (8 GB is 8e9 bytes; with 2^30 it gives
    24). The other four are of the 405B model where a block does not fit: 2 * 126 = 252, and the table has 512, twice
    256, although its last cell, one block per device, has 126.

    Source: Basis Rotation, Appendix A.

    >>> llama_7b = block_bytes(202e6, sequence=4096, width=4096, heads=32)
    >>> [stages_needed(32, llama_7b, memory) for memory in (8e9, 16e9, 24e9, 48e9, 80e9)]
    [32, 16, 11, 5, 3]
    """
    fit = int(memory_bytes // block)
    return 2 * blocks if fit == 0 else -(-blocks // fit)
