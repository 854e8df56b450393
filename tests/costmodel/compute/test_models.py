from __future__ import annotations

import dataclasses

import pytest

from syncline.costmodel import MODELS, ModelShape, TensorShape
from syncline.errors import SpecError


@pytest.mark.parametrize(("name", "mebibytes"), [("gpt-160m", 619), ("gpt-350m", 1545)])
def test_curvadions_models_have_its_synchronised_bytes(name: str, mebibytes: int) -> None:
    assert round(MODELS[name].parameter_bytes() / 2**20) == mebibytes


@pytest.mark.parametrize(
    ("name", "millions"),
    [("gpt-160m", 162), ("mt-dao-16m", 16), ("mt-dao-125m", 125), ("mt-dao-360m", 360), ("mt-dao-720m", 720)],
)
def test_models_have_about_the_parameters_of_their_names(name: str, millions: float) -> None:
    assert MODELS[name].parameters / 1e6 == pytest.approx(millions, rel=0.03)


def test_every_tensor_of_a_small_model_counted_by_hand() -> None:
    layer = 4 * (6 * 6) + 2 * (6 * 24)
    plain = ModelShape("plain", layers=2, width=6, heads=3, vocabulary=10, sequence=5)
    assert plain.parameters == 2 * layer + 2 * 10 * 6
    tied = dataclasses.replace(plain, tied=True)
    assert tied.parameters == 2 * layer + 10 * 6
    full = dataclasses.replace(tied, position_embedding=True, norms_per_layer=2)
    assert full.parameters == tied.parameters + 5 * 6 + (2 * 2 + 1) * 6
    assert plain.matmul_parameters == tied.matmul_parameters == full.matmul_parameters == 2 * layer + 10 * 6


def test_work_of_a_token() -> None:
    shape = ModelShape("small", layers=2, width=6, heads=3, vocabulary=10, sequence=5)
    # forward: 2 per weight; per layer 2 d T for the scores and 2 d T for the weighted sum; backward twice that
    forward = 2 * shape.matmul_parameters + 2 * (2 * 6 * 5 + 2 * 6 * 5)
    assert shape.flops_per_token == 3 * forward


def test_a_layer_with_everything_counted_by_hand() -> None:
    shape = ModelShape(
        "full", layers=3, width=6, heads=4, vocabulary=10, sequence=5, hidden=7, kv_heads=2, head_width=2, gated=True,
        fused_gate=False, biases=("qkv", "out", "mlp", "norm"), head_norms=True, norms_per_layer=2, experts=3,
        experts_per_token=2, position_embedding=True, positions=9,
    )  # fmt: skip
    attention = 8 * 6 + 2 * 4 * 6 + 6 * 8
    expert = 2 * 7 * 6 + 6 * 7
    vectors = (8 + 4 + 4) + 6 + 3 * (7 + 7 + 6) + 2 * 2 + 2 * (6 + 6)
    assert sum(one.elements for one in shape.layer) == attention + 3 * 6 + 3 * expert + vectors
    assert shape.parameters == 3 * (attention + 3 * 6 + 3 * expert + vectors) + 2 * 10 * 6 + 9 * 6 + (6 + 6)
    assert shape.matmul_parameters == 3 * (attention + 3 * 6 + 2 * expert) + 10 * 6  # two of the three experts
    assert shape.flops_per_token == 6 * shape.matmul_parameters + 12 * 3 * 8 * 5  # four heads of 2, not of 6 / 4
    assert TensorShape("2.expert_1.gate", (7, 6), is_matrix=True) in shape.tensors
    assert TensorShape("0.key_norm", (2,)) in shape.tensors


def test_what_is_counted_is_what_is_listed() -> None:
    for name, model in MODELS.items():
        assert model.source, name
        assert model.parameters == sum(tensor.elements for tensor in model.tensors), name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("vocabulary", -1),
        ("heads", 5),
        ("kv_heads", 4),
        ("experts_per_token", 2),
        ("hidden", 0),
        ("experts", 10**6),
        ("layers", 10**8),
        ("biases", ("queries",)),
    ],
)
def test_impossible_shapes_name_their_field(field: str, value: int) -> None:
    with pytest.raises(SpecError, match=rf"model\.{field}"):
        dataclasses.replace(MODELS["gpt-160m"], **{field: value})
