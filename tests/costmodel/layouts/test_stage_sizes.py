"""Shapes cut into stages: nothing is lost, and the ends have what is theirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import MODELS, activation_bytes
from syncline.costmodel.layouts.partition import (
    blocks_of_stages,
    stage_activation_bytes,
    stage_flops,
    stage_parameters,
)
from syncline.errors import SpecError

names = st.sampled_from(sorted(MODELS))


@given(names, st.integers(1, 4), st.integers(1, 3))
def test_the_stages_together_are_the_model(name, stages, chunks):
    model = MODELS[name]
    if stages * chunks > model.layers:
        with pytest.raises(SpecError, match="stages"):
            blocks_of_stages(model, stages, chunks)
        return
    assert sum(map(len, blocks_of_stages(model, stages, chunks))) == model.layers
    assert sum(stage_flops(model, stages, chunks)) == pytest.approx(model.flops_per_token / 3)
    twice = model.vocabulary * model.width if model.tied and stages > 1 else 0
    assert sum(stage_parameters(model, stages, chunks)) == model.parameters + twice
    whole = activation_bytes(model, 512 / model.sequence, "selective")
    assert sum(stage_activation_bytes(model, stages, 512, chunks)) == pytest.approx(whole)


def test_the_head_makes_the_last_stage_slower_and_both_ends_larger():
    model = MODELS["gpt-160m"]  # twelve blocks of 12 d^2, untied tables of V d
    d, table = model.width, model.vocabulary * model.width
    assert stage_parameters(model, 4) == [36 * d**2 + table, 36 * d**2, 36 * d**2, 36 * d**2 + table]
    block = 2 * 12 * d**2 + 4 * d * model.sequence
    assert stage_flops(model, 4) == pytest.approx([3 * block] * 3 + [3 * block + 2 * table])


def test_chunks_go_round_the_stages():
    assert list(map(len, blocks_of_stages(MODELS["gpt-160m"], 2, chunks=5))) == [2 + 1 + 1 + 1 + 1, 2 + 1 + 1 + 1 + 1]
