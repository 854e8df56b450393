"""What a layout is, whom it joins, and what of a model its workers have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import MODELS, ModelShape, activation_bytes
from syncline.costmodel.compute.model_shape import ModuleShape
from syncline.costmodel.compute.tensors import TensorShape
from syncline.costmodel.layouts.layout import Layout
from syncline.costmodel.layouts.memory import (
    POLICIES,
    ActivationPolicy,
    offloaded_layer_bytes,
    worker_activation_bytes,
)
from syncline.costmodel.layouts.partition import _stage_tensors, stage_flops, stage_layers, worker_tensors
from syncline.costmodel.traffic.call import groups_like
from syncline.errors import SpecError

SMALL = ModelShape(
    "small", layers=4, width=16, heads=4, kv_heads=2, vocabulary=50, sequence=8, hidden=24, gated=True,
    fused_gate=False, norms_per_layer=2, experts=4, experts_per_token=2, dense_layers=1,
)  # fmt: skip


def test_who_is_together() -> None:
    layout = Layout(tensor=2, context=2, data=4, pipeline=2)
    assert layout.workers == 32
    assert list(layout.tensor_group) == [0, 1]
    assert list(layout.context_group) == [0, 2]
    assert list(Layout(tensor=2, data=4, expert=4).expert_group) == [0, 2, 4, 6]
    assert list(Layout(tensor=2, context=2, data=2, expert=4).expert_group) == [0, 2, 4, 6]
    # eight for contexts and experts alike need no more than eight: Megatron Core's MoE guide
    assert Layout(context=8, expert=8).workers == 8
    assert list(layout.gradient_group) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert list(layout.pipeline_group) == [0, 16]
    assert list(layout.replica_group(96)) == [0, 32, 64]
    assert groups_like(layout.replica_group(96), 96)[5] == range(5, 96, 32)


@given(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_workers_together_have_the_model(tensor: int, expert: int, pipeline: int, context: int) -> None:
    layout = Layout(tensor, context, expert, pipeline, expert)
    own = worker_tensors(layout.check(SMALL), layout)
    cut = [one for one in SMALL.tensors if one.is_matrix or one.name in ("embedding", "head")]
    if pipeline == 1:
        routers = 3 * 4 * 16
        experts = 3 * 4 * 3 * 16 * 24
        others = sum(one.elements for one in cut) - routers - experts
        vectors = 9 * 16
        assert own.elements == others // tensor + experts // (tensor * expert) + routers + vectors
        of_experts = [tensor for tensor, is_expert in zip(own.tensors, own.experts, strict=True) if is_expert]
        assert sum(tensor.elements for tensor in of_experts) == experts // (tensor * expert)
    else:
        assert own.elements * layout.workers >= SMALL.parameters


def test_one_worker_has_all_in_its_order() -> None:
    assert list(worker_tensors(SMALL, Layout()).tensors) == SMALL.tensors
    assert worker_tensors(MODELS["llama-7b"], Layout(tensor=8, pipeline=4)).elements == (
        (MODELS["llama-7b"].parameters - 65 * 4096 - 2 * 32000 * 4096) // 32 + 8 * 2 * 4096 + 32000 * 512 + 4096
    )  # the last stage: its head and the last norm


def test_vocabularies_are_padded_and_a_tied_head_is_at_both_ends() -> None:
    tied = ModelShape("tied", layers=2, width=8, heads=4, vocabulary=10, sequence=4, tied=True)
    first = worker_tensors(tied, Layout(tensor=4, pipeline=2)).tensors
    assert first[0] == TensorShape("embedding", (3, 8))
    assert sum(one.elements for one in first) == 3 * 8 + 12 * 64 // 4


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ({"tensor": 0}, "layout.tensor", "at least 1"),
        ({"tensor": 3}, "layout.tensor", "a divisor of the heads of llama-3-8b, 32"),
        ({"tensor": 16}, "layout.tensor", "a divisor of the heads of keys of llama-3-8b, 8"),
        ({"pipeline": 33}, "layout.pipeline", "at most the 32 layers"),
        ({"pipeline": 8, "chunks": 8}, "layout.chunks", "at most 4"),
        ({"data": 2, "expert": 8, "context": 2}, "layout.expert", "a divisor of context times data, 4"),
        ({"chunks": 2}, "layout.chunks", "1 without a pipeline"),
        ({"data": 4, "expert": 8}, "layout.expert", "a divisor of layout.data, which is 4"),
        ({"data": 4, "expert": 4}, "layout.expert", "1, as there are no experts"),
        ({"context": 3}, "layout.context", "a divisor of the sequence of 8,192"),
    ],
)
def test_what_does_not_divide_is_told(fields: dict[str, Any], path: str, expected: str) -> None:
    with pytest.raises(SpecError) as raised:
        Layout(**fields).check(MODELS["llama-3-8b"])
    assert raised.value.path == path
    assert expected in raised.value.expected


def test_experts_modules_and_workers_that_do_not_fit() -> None:
    with pytest.raises(SpecError, match="a divisor of the 8 experts"):
        Layout(data=3, expert=3).check(MODELS["mixtral-8x7b"])
    with pytest.raises(SpecError, match="as mine is a module"):
        Layout(data=2).check(ModuleShape("mine", (TensorShape("a", (2, 2)),), 24.0))
    with pytest.raises(SpecError, match="a multiple of 32, the workers of a replica by layout"):
        Layout(tensor=8, pipeline=4).replicas(48)
    assert Layout(tensor=8, pipeline=4).replicas(64) == 2


def test_activations_are_those_of_the_paper() -> None:
    gpt = MODELS["gpt3-175b"]
    s, h, a, layers, v = 2048, 12288, 96, 96, 50257
    ends = s * (h + 4 * v) + 4 * s * h
    gradients = 10 * s * h  # of one layer's hidden numbers and outputs
    for kept in POLICIES:
        policy = ActivationPolicy(kept)
        assert worker_activation_bytes(gpt, Layout(), 4, 4, policy) == activation_bytes(gpt, 1, kept)
    stored = worker_activation_bytes(gpt, Layout(tensor=8), 4, 4, ActivationPolicy("stored"))
    assert stored == pytest.approx((layers * s * h * (34 + 5 * a * s / h) + ends) / 8)  # equation 4
    # k stages of L / k layers, of which the first has k micro-batches: equation 5
    stages = worker_activation_bytes(gpt, Layout(tensor=8, pipeline=8), 64, 64)
    assert stages == pytest.approx((layers * s * h * 34 + 8 * s * h + gradients) / 8)
    again = worker_activation_bytes(gpt, Layout(tensor=8, pipeline=8), 64, 64, ActivationPolicy("recomputed"))
    layer = s * h * 34
    assert again == pytest.approx((8 * (12 * 2 * s * h + s * h) + layer + gradients) / 8)
    chunks = worker_activation_bytes(gpt, Layout(tensor=8, pipeline=8, chunks=2), 64, 64)
    assert chunks == pytest.approx(((1 + 7 / 16) * (layers * s * h * 34 + 8 * s * h) + gradients) / 8)
    few = worker_activation_bytes(gpt, Layout(pipeline=8), 2, 2)
    assert few == pytest.approx(
        max(2 / 8 * layers * s * h * 34 + 2 * s * h + gradients, layers / 8 * s * h * 34 + ends - s * h)
    )


def test_activations_of_some_layers_are_recomputed_or_moved_by_hand() -> None:
    """GPT-3 on 8 x 8 workers: stages of 12 layers, of which some keep their input alone, or nothing."""
    gpt, layout = MODELS["gpt3-175b"], Layout(tensor=8, pipeline=8)
    s, h = 2048, 12288
    layer, given, gradients = 34 * s * h, 2 * s * h, 10 * s * h

    def bytes_of(**fields: Any) -> float:
        kind = "recomputed" if "offloaded_layers" not in fields else "selective"
        return worker_activation_bytes(gpt, layout, 64, 64, ActivationPolicy(kind, **fields))

    block = 8 * (9 * layer + 3 * given + s * h) + layer + gradients
    assert bytes_of(recomputed_layers=3) == pytest.approx(block / 8)
    uniform = 8 * (3 * given + s * h) + 4 * layer + gradients  # three checkpoints of four layers
    assert bytes_of(layers_per_checkpoint=4) == pytest.approx(uniform / 8)
    moved = 8 * (7 * layer + s * h) + 2 * layer + gradients
    assert bytes_of(offloaded_layers=5) == pytest.approx(moved / 8)
    assert bytes_of(recomputed_layers=12) == bytes_of() == bytes_of(recomputed_layers=99)
    assert offloaded_layer_bytes(gpt, layout, 1) == pytest.approx(layer / 8)
    chunked = worker_activation_bytes(
        gpt, Layout(tensor=8, pipeline=8, chunks=2), 64, 64, ActivationPolicy("recomputed", recomputed_layers=2)
    )  # two of six layers of each of two chunks
    assert chunked == pytest.approx((11.5 * (8 * layer + 4 * given + s * h) + layer + gradients) / 8)


def test_virtual_stages_count_the_ends_as_layers_or_have_the_layers_that_are_given() -> None:
    llama = MODELS["llama-3.1-405b"]
    ends = Layout(tensor=8, pipeline=16, chunks=8, ends_as_layers=True)
    assert ends.check(llama) is llama
    assert ends.layers_of_chunks(126) == (0, *[1] * 126, 0)
    assert [len(blocks) for blocks in stage_layers(llama, ends).blocks] == [7, *[8] * 14, 7]
    uneven = Layout(pipeline=4, chunk_layers=(30, 33, 33, 30))
    assert [blocks[0] for blocks in stage_layers(llama, uneven).blocks] == [0, 30, 63, 96]
    assert stage_layers(llama, uneven, 2).blocks[1] == (30, 31)
    flops = stage_flops(llama, 4, blocks_by_stage=stage_layers(llama, uneven).blocks)
    assert flops[1] == pytest.approx(33 * llama.block_flops() / 3)
    parameters = [tensors.elements for tensors in _stage_tensors(llama, uneven)]
    assert sum(parameters) == llama.parameters and parameters[1] == parameters[2] > parameters[0]


@pytest.mark.parametrize(("tensor", "ways", "expert", "data"), [(2, 1, 8, 4), (4, 2, 4, 2), (2, 1, 1, 2), (2, 2, 4, 4)])
def test_workers_with_experts_of_their_own_order_have_the_model(tensor: int, ways: int, expert: int, data: int) -> None:
    """Experts are spread over tensor x data workers: e ways with f parts of each matrix, and copies on the others."""
    mixtral = MODELS["mixtral-8x7b"]
    layout = Layout(tensor=tensor, data=data, expert=expert, expert_tensor=ways)
    assert len(layout.expert_gradient_group) * len(layout.expert_group) * ways == layout.workers
    own = worker_tensors(mixtral, layout)
    counts = [
        sum(one.elements for one, mask in zip(own.tensors, own.experts, strict=True) if mask == wanted)
        for wanted in (True, False)
    ]
    experts = 32 * 8 * 3 * 4096 * 14336
    whole = 32 * (8 * 4096 + 2 * 4096) + 4096  # routers and norms
    assert counts[0] == experts // (ways * expert)
    assert counts[1] == (mixtral.parameters - experts - whole) // tensor + whole


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ({"tensor": 4, "expert_tensor": 3}, "layout.expert_tensor", "a divisor of layout.tensor, 4"),
        ({"tensor": 2, "expert_tensor": 1, "expert": 16}, "layout.expert", "tensor times context times data, 2"),
        ({"context": 2, "context_by": "ring"}, "layout.context_by", "gathers"),
        ({"context": 16, "context_by": "all-to-all"}, "layout.context", "the heads of keys of mixtral-8x7b, 8"),
        ({"pipeline": 4, "chunk_layers": (8, 8, 8)}, "layout.chunk_layers", "4 numbers of layers"),
        ({"pipeline": 2, "chunk_layers": (8, 8)}, "layout.chunk_layers", "whose sum is 32"),
        ({"ends_as_layers": True}, "layout.ends_as_layers", "false without a pipeline"),
        ({"pipeline": 17, "chunks": 2, "ends_as_layers": True}, "layout.chunks", "34 layers with the ends"),
    ],
)
def test_what_no_layout_has_is_told(fields: dict[str, Any], path: str, expected: str) -> None:
    if path == "layout.chunks":
        assert Layout(**fields).check(MODELS["mixtral-8x7b"]).layers == 32  # 34 chunks, the ends count
        fields, expected = fields | {"chunks": 3}, "at most 2: there are 34 layers with the ends"
    with pytest.raises(SpecError) as raised:
        Layout(**fields).check(MODELS["mixtral-8x7b"])
    assert raised.value.path == path
    assert expected in raised.value.expected
