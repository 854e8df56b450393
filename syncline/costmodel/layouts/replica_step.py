"""What a step of a replica takes on its workers, without what replicas and gradients send, in closed form.

Of a model with L layers on t workers that share matrices, c a sequence, k stages with v chunks and e experts' workers,
in M micro-batches of u tokens on the workers of one ``data``, with w bytes per number (R: 1 more where layers are
computed again):

| what                          | of each micro-batch, for each layer of a stage                                   |
|-------------------------------|----------------------------------------------------------------------------------|
| tensor, of ``w u h / c``      | 4 (+ 2 R) sums over t: a reduce-scatter and an all-gather each; 2 more at the ends |
| context, of ``2 w u g / (t c)`` | all-gathers of keys and values: 2 (+ R), and one reduce-scatter of their gradients |
| expert, of ``w u h E' / (t c)`` | 4 (+ 2 R) all-to-alls over e: there and back, of tokens that E' experts each take |

Nothing of it travels beside computing. A stage takes s_i for a micro-batch, with what it computes (shared out by
FLOPs), and hands ``w u h / (t c)`` on, which takes p. 1F1B's slowest way round says how often a micro-batch
is done:

    tau = max over i of max(s_i, (s_i + ... + s_k + 2 (k - i) p) / (k - i + 1))
    step = (M - 1) tau + sum s_i + 2 (k - 1) p            without chunks
    step = M max s + (sum s_i - max s) / v + 2 (k v - 1) p + (M - 1) 2 p (v > 1)

Equal to `one_f_one_b_s` where messages take no time and M >= k, elsewhere no less: up to 5% more from M = 3 k on, 11%
below, where a message takes up to half as long as a stage; 16% and 46% where it takes up to twenty times as long.

Sources: D. Narayanan et al. (2021), sections 2.2, 3.2 and 4.1; V. Korthikanti et al. (2022), section 4.2.2 (sums as
reduce-scatter and all-gather); A. Grattafiori et al., "The Llama 3 Herd of Models" (2024), section 3.3.2 (context by
all-gathers); D. Lepikhin et al., "GShard" (2020).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.stage_sizes import blocks_of_stages, stage_flops
from syncline.costmodel.numerics.arrays import FloatOrArray


class InsideCall(NamedTuple):
    """Collectives that a stage waits for.

    Attributes:
        why: ``tensor``, ``context`` or ``expert``.
        collective: its kind.
        ranks: of the first group.
        payload_bytes: n.
        per_layer: of each micro-batch in each layer that has it.
        at_ends: at the first stage and at the last, of each micro-batch.
        experts: whether only layers with experts have it.
    """

    why: str
    collective: str
    ranks: range
    payload_bytes: float
    per_layer: int
    at_ends: int = 0
    experts: bool = False


class InsideTimes(NamedTuple):
    """Seconds of a step inside a replica, each a number or an array.

    Attributes:
        step_s: all of it, computing included.
        compute_s: that a worker would compute if all stages were equal, nothing were waited for.
        tensor_s: of sums over those who share matrices, at the slowest stage.
        context_s: likewise of keys and values.
        expert_s: likewise of tokens to experts and back.
        pipeline_s: the rest: bubble, messages between stages, stages that are not equal.
    """

    step_s: FloatOrArray
    compute_s: FloatOrArray
    tensor_s: FloatOrArray = 0.0
    context_s: FloatOrArray = 0.0
    expert_s: FloatOrArray = 0.0
    pipeline_s: FloatOrArray = 0.0


def inside_calls(
    model: ModelShape, layout: Layout, micro_tokens: float, bytes_per_number: int = 2, recomputed: bool = False
) -> list[InsideCall]:
    """What a worker of a replica calls for each micro-batch, but for gradients and what is between stages.

    Args:
        model: it.
        layout: of the replica.
        micro_tokens: u.
        bytes_per_number: w.
        recomputed: R.
    """
    t, c, w = layout.tensor, layout.context, bytes_per_number
    own = w * micro_tokens * model.width / (t * c)
    again = int(recomputed)
    calls: list[InsideCall] = []
    if t > 1:
        both = 4 + 2 * again
        calls.append(InsideCall("tensor", "all_gather", layout.tensor_group, own, both, 1))
        calls.append(InsideCall("tensor", "reduce_scatter", layout.tensor_group, t * own, both, 1))
    if c > 1:
        keys = w * micro_tokens * 2 * model.key_width / (t * c)
        calls.append(InsideCall("context", "all_gather", layout.context_group, keys, 2 + again))
        calls.append(InsideCall("context", "reduce_scatter", layout.context_group, c * keys, 1))
    if layout.expert > 1:
        there = own * model.experts_per_token
        calls.append(InsideCall("expert", "all_to_all", layout.expert_group, there, 4 + 2 * again, experts=True))
    return calls


@lru_cache(maxsize=512)
def _stages(model: ModelShape, layout: Layout) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Of each stage: its part of the work, its layers, its layers with experts; ``(k,)`` each."""
    flops = np.array(stage_flops(model, layout.pipeline, layout.chunks))
    blocks = blocks_of_stages(model, layout.pipeline, layout.chunks)
    experts = [sum(one >= model.dense_layers for one in of) if model.experts > 1 else 0 for of in blocks]
    return flops / flops.sum(), np.array([len(of) for of in blocks]), np.array(experts)


def inside_times(
    model: ModelShape,
    layout: Layout,
    compute_s: FloatOrArray,
    micro_batches: int,
    micro_tokens: float,
    collective_s: Callable[[InsideCall], FloatOrArray],
    message_s: Callable[[float], FloatOrArray],
    bytes_per_number: int = 2,
    recomputed: bool = False,
) -> InsideTimes:
    """What a step takes inside a replica.

    Args:
        model: it.
        layout: of the replica.
        compute_s: of a worker in a step if the work is shared out evenly; with what is computed again.
        micro_batches: M.
        micro_tokens: u.
        collective_s: prices a call.
        message_s: prices so many bytes from stage to stage.
        bytes_per_number: w.
        recomputed: R.

    >>> from syncline.costmodel.compute.models import MODELS
    >>> free = inside_times(MODELS["gpt-160m"], Layout(pipeline=4), 1.0, 8, 1024, lambda _: 0.0, lambda _: 0.0)
    >>> slowest = max(stage_flops(MODELS["gpt-160m"], 4)) / sum(stage_flops(MODELS["gpt-160m"], 4))
    >>> bool(np.isclose(free.step_s, 7 / 8 * 4 * slowest + 4 / 8))
    True
    """
    k, v, m = layout.pipeline, layout.chunks, micro_batches
    work_s = compute_s
    waits: dict[str, list[FloatOrArray]] = {}
    shares, layers, with_experts = _stages(model, layout)
    for call in inside_calls(model, layout, micro_tokens, bytes_per_number, recomputed):
        one_s = collective_s(call)
        of = with_experts if call.experts else layers
        counts = call.per_layer * of
        counts[0] += call.at_ends
        counts[-1] += call.at_ends
        each = waits.setdefault(call.why, [0.0] * k)
        waits[call.why] = [before + int(count) * one_s for before, count in zip(each, counts, strict=True)]
    stage_s = [work_s * (k * share / m) + sum(of[i] for of in waits.values()) for i, share in enumerate(shares)]
    if k == 1:
        step_s: FloatOrArray = m * stage_s[0]
        slowest = 0
        told = {why: m * of[0] for why, of in waits.items()}
    else:
        sent_s = message_s(bytes_per_number * micro_tokens * model.width / (layout.tensor * layout.context))
        step_s = _one_f_one_b(stage_s, m, sent_s, v)
        slowest = int(np.argmax([np.max(one) for one in stage_s]))
        told = {why: m * of[slowest] for why, of in waits.items()}
    tensor_s, context_s, expert_s = (told.get(why, 0.0) for why in ("tensor", "context", "expert"))
    rest_s = step_s - work_s - tensor_s - context_s - expert_s if k > 1 else 0.0 * work_s
    return InsideTimes(step_s, work_s, tensor_s, context_s, expert_s, rest_s)


def _one_f_one_b(stage_s: list[FloatOrArray], microbatches: int, sent_s: FloatOrArray, chunks: int) -> FloatOrArray:
    """The module's closed form of a pipeline."""
    k, m = len(stage_s), microbatches
    total: FloatOrArray = 0.0
    period: FloatOrArray = 0.0
    largest: FloatOrArray = 0.0
    for behind, one in enumerate(reversed(stage_s)):
        total = total + one
        largest = np.maximum(largest, one)
        if behind < m:  # a stage never has more than M under way
            period = np.maximum(period, np.maximum(one, (total + 2 * behind * sent_s) / (behind + 1)))
        else:
            period = np.maximum(period, one)
    if chunks == 1:
        return (m - 1) * period + total + 2 * (k - 1) * sent_s
    return m * largest + (total - largest) / chunks + 2 * (k * chunks - 1) * sent_s + 2 * (m - 1) * sent_s
