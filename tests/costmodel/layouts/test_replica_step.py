"""What a step takes inside a replica: by hand, in the limits, and against the recurrence of 1F1B."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import MODELS
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.partition import stage_flops
from syncline.costmodel.layouts.pipelines import one_f_one_b_s
from syncline.costmodel.layouts.replica_step import ReplicaCall, distinct_share, replica_calls, replica_times

LLAMA = MODELS["llama-3-8b"]


def nothing(_: object) -> float:
    """Takes no time."""
    return 0.0


def test_what_is_sent_for_a_layer() -> None:
    tensor, scattered = replica_calls(LLAMA, Layout(tensor=8), 8192)
    assert tensor == ReplicaCall("tensor", "all_gather", range(8), 2 * 8192 * 4096 / 8, 4, 2, 1)
    assert scattered == ReplicaCall("tensor", "reduce_scatter", range(8), 2 * 8192 * 4096, 4, 2, 1)
    keys, gradients = replica_calls(LLAMA, Layout(context=4), 8192)
    assert (keys.payload_bytes, keys.per_layer) == (2 * 2048 * 2 * 1024, 2)  # eight heads of 128, keys and values
    assert (gradients.payload_bytes, gradients.per_layer) == (4 * keys.payload_bytes, 1)
    (there,) = replica_calls(MODELS["mixtral-8x7b"], Layout(data=8, expert=8), 8192)
    assert there == ReplicaCall("expert", "all_to_all", range(8), 2 * 8192 * 4096 * 2, 4, 2, 0, "experts", 2)
    assert replica_calls(LLAMA, Layout(data=8, pipeline=4), 8192) == []


def test_experts_over_tensor_and_data_workers_get_each_worker_s_own_tokens() -> None:
    """Four of eight experts' workers are the two of a matrix times two of the data; sums are around attention alone."""
    mixtral, tokens = MODELS["mixtral-8x7b"], 2 * 8192 * 4096  # bytes of a micro-batch
    whole = Layout(tensor=2, data=2, expert=4, expert_tensor=1)
    gather, scatter, there = replica_calls(mixtral, whole, 8192)
    assert (gather.per_layer, gather.per_recomputed, gather.at_ends) == (2, 1, 1) and scatter.per_layer == 2
    assert there == ReplicaCall("expert", "all_to_all", range(4), tokens / 2 * 2, 4, 2, 0, "experts", 2)
    shared = Layout(tensor=2, data=4, expert=4)
    *_, there, copies, sums = replica_calls(mixtral, shared, 8192)
    assert list(there.ranks) == [0, 2, 4, 6] and there.payload_bytes == tokens / 2 * 2
    assert copies == ReplicaCall("expert", "all_gather", range(2), tokens / 2 * 2, 2, 1, 0, "experts")
    assert (sums.collective, sums.payload_bytes) == ("reduce_scatter", tokens * 2)
    alone = replica_calls(mixtral, Layout(tensor=2), 8192)  # no messages to experts: like one MLP
    assert [(call.dimension, call.per_layer) for call in alone] == [("tensor", 4), ("tensor", 4)]
    deepseek = replica_calls(MODELS["deepseek-v3"], Layout(tensor=2, data=4, expert=8, expert_tensor=1), 4096)
    assert [(call.dimension, call.per_layer, call.layers) for call in deepseek][:2] == [
        ("tensor", 4, "all")
    ] * 2  # shared ones


def test_contexts_exchange_heads_or_keys() -> None:
    inputs, outputs = replica_calls(LLAMA, Layout(context=4, context_by="all-to-all"), 8192)
    assert (inputs.collective, inputs.payload_bytes, inputs.per_layer) == ("all_to_all", 2 * 2048 * (4096 + 2048), 2)
    assert (outputs.payload_bytes, outputs.per_recomputed) == (2 * 2048 * 4096, 1)


def test_a_step_by_hand() -> None:
    def takes(call: ReplicaCall) -> float:
        return {"all_gather": 1e-3, "reduce_scatter": 2e-3}[call.collective]

    times = replica_times(LLAMA, Layout(tensor=8), 10.0, 4, 8192, takes, nothing)
    sums_s = 4 * (32 * 4 + 2) * (1e-3 + 2e-3)
    assert times.step_s == pytest.approx(10.0 + sums_s)
    assert (times.compute_s, times.tensor_s, times.pipeline_s) == (10.0, pytest.approx(sums_s), 0.0)
    again = replica_times(LLAMA, Layout(tensor=8), 10.0, 4, 8192, takes, nothing, most_recomputed=32)
    assert again.tensor_s == pytest.approx(4 * (32 * 6 + 2) * 3e-3)
    some = replica_times(LLAMA, Layout(tensor=8), 10.0, 4, 8192, takes, nothing, most_recomputed=5)
    assert some.tensor_s == pytest.approx(4 * (32 * 4 + 5 * 2 + 2) * 3e-3)


def test_messages_to_experts_hide_behind_another_micro_batch() -> None:
    mixtral, layout = MODELS["mixtral-8x7b"], Layout(data=8, expert=8)
    calls, per_call_s = 4 * 32, 10.0 / 4 / (4 * 32)  # of a micro-batch; 32 layers with experts
    for message_s, exposed_s in ((0.5 * per_call_s, 0.0), (1.5 * per_call_s, 4 * calls * 0.5 * per_call_s)):
        times = replica_times(mixtral, layout, 10.0, 4, 8192, lambda _: message_s, nothing, overlapped=("expert",))  # noqa: B023
        assert times.expert_s == pytest.approx(exposed_s)
        apart = replica_times(mixtral, layout, 10.0, 4, 8192, lambda _: message_s, nothing)  # noqa: B023
        assert apart.expert_s == pytest.approx(4 * calls * message_s)


def test_copies_that_are_left_if_each_unit_gets_a_token_once() -> None:
    """Against a count of all choices of two of four experts' units, and draws."""
    choices = [(i, j) for i in range(4) for j in range(4)]
    assert 2 * distinct_share(4, 2) == pytest.approx(np.mean([len(set(choice)) for choice in choices]))
    drawn = np.random.default_rng(0).integers(0, 4, (20_000, 8))
    assert 8 * distinct_share(4, 8) == pytest.approx(np.mean([len(set(row)) for row in drawn.tolist()]), rel=0.01)
    assert distinct_share(5, 1) == pytest.approx(1.0)


def test_one_worker_takes_what_it_computes() -> None:
    assert replica_times(LLAMA, Layout(), 1.25, 3, 8192, nothing, nothing).step_s == pytest.approx(1.25)
    assert replica_times(LLAMA, Layout(data=8), 1.25, 1, 8192, nothing, nothing).step_s == 1.25


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([2, 3, 4, 8]), st.integers(1, 24), st.floats(0, 0.5))
def test_a_pipeline_is_the_recurrence(stages: int, micro_batches: int, part: float) -> None:
    share = np.array(stage_flops(LLAMA, stages)) / sum(stage_flops(LLAMA, stages))
    one_s = stages * share / micro_batches
    send_s = part * one_s.mean()
    told = replica_times(LLAMA, Layout(pipeline=stages), 1.0, micro_batches, 1.0, nothing, lambda _: send_s)
    happened = one_f_one_b_s(one_s / 3, 2 * one_s / 3, micro_batches, send_s).max()
    few = micro_batches < 3 * stages
    assert told.step_s == pytest.approx(happened, rel=(0.12 if few else 0.05) if part else 1e-9)
    assert told.step_s >= happened * (1 - 1e-9) or micro_batches <= stages
    whole = told.compute_s + told.tensor_s + told.context_s + told.expert_s + told.pipeline_s
    assert whole == pytest.approx(told.step_s)


def test_chunks_shorten_the_bubble() -> None:
    def of(chunks: int) -> float:
        layout = Layout(pipeline=4, chunks=chunks)
        return float(replica_times(MODELS["gpt3-175b"], layout, 1.0, 8, 2048, nothing, nothing).step_s)

    share = max(stage_flops(MODELS["gpt3-175b"], 4)) / sum(stage_flops(MODELS["gpt3-175b"], 4))
    assert of(1) - 4 * share == pytest.approx(4 * (1 / 8) * (1 - share))
    assert of(2) - 4 * share == pytest.approx((of(1) - 4 * share) / 2)
