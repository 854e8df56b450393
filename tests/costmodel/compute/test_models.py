from __future__ import annotations

import dataclasses

import pytest

from syncline.costmodel import MODELS, ModelShape, model
from syncline.errors import SpecError


@pytest.mark.parametrize(("name", "mebibytes"), [("gpt-160m", 619), ("gpt-350m", 1545)])
def test_curvadions_models_have_its_synchronised_bytes(name: str, mebibytes: int) -> None:
    assert round(model(name).parameter_bytes() / 2**20) == mebibytes


@pytest.mark.parametrize(
    ("name", "millions"),
    [("gpt-160m", 162), ("mt-dao-16m", 16), ("mt-dao-125m", 125), ("mt-dao-360m", 360), ("mt-dao-720m", 720)],
)
def test_models_have_about_the_parameters_of_their_names(name: str, millions: float) -> None:
    assert model(name).parameters / 1e6 == pytest.approx(millions, rel=0.03)


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


def test_presets_are_found_by_name_and_have_sources() -> None:
    assert all(model(name.upper()) is shape and shape.source for name, shape in MODELS.items())
    with pytest.raises(SpecError, match="did you mean 'gpt-160m'"):
        model("gpt160m")


@pytest.mark.parametrize(("field", "value"), [("layers", 0), ("vocabulary", -1), ("heads", 5)])
def test_impossible_shapes_name_their_field(field: str, value: int) -> None:
    with pytest.raises(SpecError, match=rf"model\.{field}"):
        dataclasses.replace(model("gpt-160m"), **{field: value})
