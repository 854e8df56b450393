"""Seconds of a step inside a replica, without its gradients and the traffic between replicas, in closed form.

A replica distributes a model over t workers that share matrices, c that share a sequence, e that share experts, and k
pipeline stages with v chunks. The workers of one data-parallel rank compute M micro-batches of u tokens.
`replica_calls` lists the collectives of a micro-batch, and `replica_times` adds up computing, collectives and pipeline.

Sources: D. Narayanan et al. (2021), sections 2.2, 3.2 and 4.1; V. Korthikanti et al. (2022), section 4.2.2 (sums as
reduce-scatter and all-gather); A. Grattafiori et al., "The Llama 3 Herd of Models" (2024), section 3.3.2 (context by
all-gathers); D. Lepikhin et al., "GShard" (2020).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.partition import LayerKind, StageLayers, stage_flops, stage_layers
from syncline.costmodel.numerics.arrays import FloatOrArray


class ReplicaCall(NamedTuple):
    """A collective inside a replica that a stage waits for, with its number of calls.

    Attributes:
        dimension: dimension of parallelism, ``tensor``, ``context`` or ``expert``.
        collective: one of ``COLLECTIVES``.
        ranks: ranks of the first group that makes the call.
        payload_bytes: payload bytes of a worker.
        per_layer: number of calls per micro-batch in each layer.
        per_recomputed: number of further calls per micro-batch in each layer that the backward pass recomputes.
        at_ends: number of further calls per micro-batch at the first stage, and as many at the last stage.
        layers: kind of the layers that make the calls.
        copies: copies of each token in the payload.
    """

    dimension: str
    collective: str
    ranks: range
    payload_bytes: float
    per_layer: int
    per_recomputed: int = 0
    at_ends: int = 0
    layers: LayerKind = "all"
    copies: int = 1

    def counts(self, layers: StageLayers, recomputed: StageLayers) -> NDArray[np.int64]:
        """Return the number of calls per micro-batch of each pipeline stage, ``(stages,)``.

        Args:
            recomputed: those of ``layers`` that the backward pass recomputes.
        """
        counts = self.per_layer * layers.counts(self.layers) + self.per_recomputed * recomputed.counts(self.layers)
        counts[0] += self.at_ends
        counts[-1] += self.at_ends  # a single stage has both ends
        return counts


class ReplicaTimes(NamedTuple):
    """Components of the time of a step inside a replica in seconds, each a number or an array.

    Attributes:
        step_s: the whole step, with computing.
        compute_s: computing of a worker if all stages were equal and no worker waited.
        tensor_s: sums over the workers that share matrices, at the slowest stage.
        context_s: collectives of keys and values, at the slowest stage.
        expert_s: all-to-alls of tokens to experts and back, at the slowest stage.
        pipeline_s: the rest of the step: bubble, messages between stages, unequal stages.
    """

    step_s: FloatOrArray
    compute_s: FloatOrArray
    tensor_s: FloatOrArray = 0.0
    context_s: FloatOrArray = 0.0
    expert_s: FloatOrArray = 0.0
    pipeline_s: FloatOrArray = 0.0


def replica_calls(
    model: ModelShape, layout: Layout, micro_tokens: float, bytes_per_number: int = 2
) -> list[ReplicaCall]:
    """Return the collectives of a micro-batch inside a replica, without gradients and messages between stages.

    h is the width of the model, q and g the number of elements of a token's queries and keys, E' the experts per token.
    R is 1 in a layer that the backward pass recomputes, else 0.

    | dimension and bytes              | collectives per micro-batch and layer                                       |
    |----------------------------------|-----------------------------------------------------------------------------|
    | tensor, of ``w u h / c``         | 4 (+ 2 R) sums over t, each a reduce-scatter and an all-gather; 2 at the ends |
    | context, of ``2 w u g / (t c)``  | 2 (+ R) all-gathers of keys and values, 1 reduce-scatter of their gradients |
    | ... all-to-all                   | 2 (+ R) of ``w u (q + 2 g) / (t c)`` and as many of ``w u q / (t c)``       |
    | expert, of ``w u h E' / (t c)``  | 4 (+ 2 R) all-to-alls over e, of tokens to their experts and back           |
    | ... on each of f workers         | 2 (+ R) all-gathers of these tokens over f, and as many reduce-scatters     |

    In a layer with experts the workers that share the other matrices sum only around attention and shared experts: each
    sends its own 1/t of the tokens to the experts. Without expert parallelism, f = t, experts are like one MLP.

    Args:
        micro_tokens: u, tokens of a micro-batch.
        bytes_per_number: w, bytes of an activation.
    """
    t, c, w = layout.tensor, layout.context, bytes_per_number
    shard_bytes = w * micro_tokens * model.width / (t * c)
    calls: list[ReplicaCall] = []
    # If this is false, the workers share the matrices of experts like those of one MLP.
    has_own_experts = model.experts > 1 and (layout.expert > 1 or layout.expert_tensor_workers < t)
    if t > 1:
        sums_in_all_mlps = not has_own_experts or model.shared_experts > 0
        per_layer = 4 if sums_in_all_mlps else 2  # around attention and around the MLP, forward and backward
        calls += _calls_of_sums("tensor", layout.tensor_group, shard_bytes, per_layer, at_ends=1)
        if not sums_in_all_mlps and model.dense_layers:
            calls += _calls_of_sums("tensor", layout.tensor_group, shard_bytes, per_layer=2, layers="dense")
    group = layout.context_group
    if c > 1 and layout.context_by == "gathers":
        key_bytes = w * micro_tokens * 2 * model.key_width / (t * c)
        calls.append(ReplicaCall("context", "all_gather", group, key_bytes, per_layer=2, per_recomputed=1))
        calls.append(ReplicaCall("context", "reduce_scatter", group, c * key_bytes, per_layer=1))
    elif c > 1:
        for elements in (model.attention_inputs_width, model.attention_output_width):
            nbytes = w * micro_tokens * elements / (t * c)
            calls.append(ReplicaCall("context", "all_to_all", group, nbytes, per_layer=2, per_recomputed=1))
    copies = model.experts_per_token if layout.expert > 1 else 1  # each expert of a token gets a copy
    if layout.expert > 1:
        expert_call = ReplicaCall("expert", "all_to_all", layout.expert_group, shard_bytes * copies, per_layer=4)
        calls.append(expert_call._replace(per_recomputed=2, layers="experts", copies=copies))
    if has_own_experts and layout.expert_tensor_workers > 1:
        expert_ranks = range(layout.expert_tensor_workers)
        calls += _calls_of_sums("expert", expert_ranks, shard_bytes * copies, per_layer=2, layers="experts")
    return calls


def _calls_of_sums(
    dimension: str, ranks: range, shard_bytes: float, per_layer: int, at_ends: int = 0, layers: LayerKind = "all"
) -> list[ReplicaCall]:
    """Return the reduce-scatters of tensors and the all-gathers of shards that carry the sums over a group.

    Half of the ``per_layer`` sums are in the forward pass, which a recomputed layer repeats.
    """
    gather = ReplicaCall(
        dimension, "all_gather", ranks, shard_bytes, per_layer, per_recomputed=per_layer // 2, at_ends=at_ends,
        layers=layers,
    )  # fmt: skip
    return [gather, gather._replace(collective="reduce_scatter", payload_bytes=len(ranks) * shard_bytes)]


def distinct_share(units: int, copies: int) -> float:
    """Return the fraction of a token's messages that remains if a node gets the token once for all of its experts.

    A token goes to each of its E' experts. Libraries for experts send it once to each of the nodes (or workers) that
    have any of them, which forward it: over m nodes and evenly chosen experts the share is
    ``m (1 - (1 - 1/m)^E') / E'``.

    Args:
        units: m, number of nodes or workers that share the experts.
        copies: E', experts of a token; without this saving each gets a copy.

    >>> distinct_share(1, 8), round(8 * distinct_share(4, 8), 2)
    (0.125, 3.6)
    """
    return units * (1 - (1 - 1 / units) ** copies) / copies


@lru_cache(maxsize=512)
def _stage_shares(model: ModelShape, layout: Layout) -> NDArray[np.float64]:
    """Return the fraction of a model's FLOPs on each pipeline stage, ``(stages,)``."""
    flops = np.array(stage_flops(model, layout.pipeline, blocks_by_stage=stage_layers(model, layout).blocks))
    return np.asarray(flops / flops.sum())


def replica_times(
    model: ModelShape,
    layout: Layout,
    compute_s: FloatOrArray,
    micro_batches: int,
    micro_tokens: float,
    collective_s: Callable[[ReplicaCall], FloatOrArray],
    message_s: Callable[[float], FloatOrArray],
    bytes_per_number: int = 2,
    most_recomputed: int = 0,
    overlapped: tuple[str, ...] = (),
) -> ReplicaTimes:
    """Return the seconds of a step inside a replica and their components.

    A stage has its share of the computing by FLOPs, and waits for its collectives. Software can overlap two kinds of
    collectives with computing. It can cut tensor parallelism's collectives, and the products beside them, into t
    pieces: a collective of x seconds then costs ``max(x / t, x - y)``, where y is the computing of a micro-batch per
    collective. It can compute another micro-batch beside experts' messages; these then cost ``max(0, x - y)``.

    Args:
        compute_s: computing seconds of a worker in a step if the work is split evenly, with recomputation.
        micro_batches: M, number of micro-batches.
        micro_tokens: u, tokens of a micro-batch.
        collective_s: function from a call to its seconds.
        message_s: function from bytes to the seconds of a message between stages.
        bytes_per_number: bytes of an activation.
        most_recomputed: number of first layers of each chunk that the backward pass recomputes.
        overlapped: dimensions whose collectives overlap with computing, ``tensor`` or ``expert``.

    >>> from syncline.costmodel.compute.models import MODELS
    >>> free = replica_times(MODELS["gpt-160m"], Layout(pipeline=4), 1.0, 8, 1024, lambda _: 0.0, lambda _: 0.0)
    >>> slowest = max(stage_flops(MODELS["gpt-160m"], 4)) / sum(stage_flops(MODELS["gpt-160m"], 4))
    >>> bool(np.isclose(free.step_s, 7 / 8 * 4 * slowest + 4 / 8))
    True
    """
    stages = layout.pipeline
    layers, recomputed = stage_layers(model, layout), stage_layers(model, layout, most_recomputed)
    calls = replica_calls(model, layout, micro_tokens, bytes_per_number)
    num_calls_in_layers: Counter[str] = Counter()  # per micro-batch, by dimension, without the ends
    for call in calls:
        num_calls_in_layers[call.dimension] += int(call.counts(layers, recomputed).sum()) - 2 * call.at_ends

    # Waiting seconds per micro-batch of each stage, by dimension.
    waits_s: dict[str, list[FloatOrArray]] = {name: [0.0] * stages for name in ("tensor", "context", "expert")}
    for call in calls:
        call_s = collective_s(call)
        if call.dimension in overlapped:
            # Computing of a micro-batch in all stages, per call: y.
            beside_s = stages * compute_s / micro_batches / num_calls_in_layers[call.dimension]
            least_s = call_s / layout.tensor if call.dimension == "tensor" else 0.0  # the last of t pieces
            call_s = np.maximum(least_s, call_s - beside_s)
        stage_waits_s = waits_s[call.dimension]
        for stage, count in enumerate(call.counts(layers, recomputed).tolist()):
            stage_waits_s[stage] = stage_waits_s[stage] + count * call_s

    stage_s = []
    for stage, share in enumerate(_stage_shares(model, layout)):
        computing_s = compute_s * (stages * share / micro_batches)  # an even split has ``share = 1 / stages``
        stage_s.append(computing_s + sum(stage_waits_s[stage] for stage_waits_s in waits_s.values()))
    slowest_stage = int(np.argmax([np.max(seconds) for seconds in stage_s]))
    tensor_s, context_s, expert_s = (micro_batches * seconds[slowest_stage] for seconds in waits_s.values())
    if stages == 1:
        pipeline_s = 0.0 * compute_s  # zeros in the shape of the other times
        return ReplicaTimes(micro_batches * stage_s[0], compute_s, tensor_s, context_s, expert_s, pipeline_s)
    message_bytes = bytes_per_number * micro_tokens * model.width / (layout.tensor * layout.context)
    step_s = _pipeline_s(stage_s, micro_batches, message_s(message_bytes), layout.chunks)
    pipeline_s = step_s - compute_s - tensor_s - context_s - expert_s
    return ReplicaTimes(step_s, compute_s, tensor_s, context_s, expert_s, pipeline_s)


def _pipeline_s(stage_s: list[FloatOrArray], microbatches: int, message_s: FloatOrArray, chunks: int) -> FloatOrArray:
    """Return the seconds of a pipeline's step by the schedule 1F1B over k unequal stages.

    Stage i takes s_i seconds for a micro-batch, and a message to the next stage takes p seconds. From one micro-batch
    to the next it takes tau seconds, by the slowest stage i, or the slowest loop from a stage i to the last and back:

        tau = max over i of s_i, and over i > k - M of (s_i + ... + s_k + 2 (k - i) p) / (k - i + 1)
        step = (M - 1) tau + sum s_i + 2 (k - 1) p                                     without chunks
        step = M max s + (sum s_i - max s) / v + 2 (k v - 1) p + (M - 1) 2 p           with v > 1 chunks

    The step equals `one_f_one_b_s` if messages take no time and M >= k, and is never shorter. If a message takes up to
    half as long as a stage, the step is up to 5% longer for M >= 3 k, and up to 11% longer for smaller M. If a message
    takes up to twenty times as long as a stage, these bounds are 16% and 46%.

    Args:
        stage_s: s_i of each stage.
        microbatches: M.
        message_s: p.
        chunks: v, chunks of a stage.
    """
    stages = len(stage_s)
    total_s: FloatOrArray = 0.0  # seconds of this stage and all stages behind it
    period_s: FloatOrArray = 0.0  # tau
    largest_s: FloatOrArray = 0.0  # max s
    for stages_behind, seconds in enumerate(reversed(stage_s)):
        total_s = total_s + seconds
        largest_s = np.maximum(largest_s, seconds)
        period_s = np.maximum(period_s, seconds)
        if stages_behind < microbatches:  # a stage has at most M micro-batches in flight
            period_s = np.maximum(period_s, (total_s + 2 * stages_behind * message_s) / (stages_behind + 1))
    if chunks == 1:
        return (microbatches - 1) * period_s + total_s + 2 * (stages - 1) * message_s
    messages = 2 * (stages * chunks - 1) * message_s + 2 * (microbatches - 1) * message_s
    return microbatches * largest_s + (total_s - largest_s) / chunks + messages
