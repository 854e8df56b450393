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
from syncline.costmodel.layouts.memory import worker_activation_bytes
from syncline.costmodel.layouts.partition import worker_tensors
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
    for kept in ("stored", "selective", "recomputed"):
        assert worker_activation_bytes(gpt, Layout(), 4, 4, kept) == activation_bytes(gpt, 1, kept)
    stored = worker_activation_bytes(gpt, Layout(tensor=8), 4, 4, "stored")
    assert stored == pytest.approx((layers * s * h * (34 + 5 * a * s / h) + ends) / 8)  # equation 4
    # k stages of L / k layers, of which the first has k micro-batches: equation 5
    stages = worker_activation_bytes(gpt, Layout(tensor=8, pipeline=8), 64, 64, "selective")
    assert stages == pytest.approx((layers * s * h * 34 + 8 * s * h + gradients) / 8)
    again = worker_activation_bytes(gpt, Layout(tensor=8, pipeline=8), 64, 64, "recomputed")
    layer = s * h * 34
    assert again == pytest.approx((8 * (12 * 2 * s * h + s * h) + layer + gradients) / 8)
    chunks = worker_activation_bytes(gpt, Layout(tensor=8, pipeline=8, chunks=2), 64, 64, "selective")
    assert chunks == pytest.approx(((1 + 7 / 16) * (layers * s * h * 34 + 8 * s * h) + gradients) / 8)
    few = worker_activation_bytes(gpt, Layout(pipeline=8), 2, 2, "selective")
    assert few == pytest.approx(
        max(2 / 8 * layers * s * h * 34 + 2 * s * h + gradients, layers / 8 * s * h * 34 + ends - s * h)
    )
