"""Models cut into stages: the same function, each parameter in one place."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.layouts.pipelines import stage_delays
from syncline.errors import SpecError
from syncline.problems import TextGPT, coordinate_delays, parameter_stages, split_into_stages

DEEP = TextGPT(width=8, layers=32, heads=2, context=8, batch_size=2, tied=False)
TOKENS = torch.arange(16).view(2, 8)


@pytest.fixture(scope="module")
def deep():
    return DEEP.initial_network(0, torch.float64)


@pytest.mark.parametrize("stages", range(1, 33))
def test_the_stages_one_after_another_are_the_model(deep, stages):
    parts, x = split_into_stages(deep, stages), TOKENS
    for part in parts:
        x = part(x)
    assert len(parts) == stages
    assert torch.equal(x, deep(TOKENS))


@pytest.mark.parametrize("stages", range(1, 33))
def test_each_parameter_is_in_the_one_stage_that_is_told(deep, stages):
    of = parameter_stages([name for name, _ in deep.named_parameters()], stages)
    parts = split_into_stages(deep, stages)
    held = [(name, k) for k, part in enumerate(parts) for name, _ in part.named_parameters()]
    assert len(held) == len(of)
    assert dict(held) == of
    whole = dict(deep.named_parameters())
    assert all(p is whole[name] for part in parts for name, p in part.named_parameters())
    blocks = [len(part.blocks) for part in parts]
    assert sum(blocks) == 32 and max(blocks) - min(blocks) <= 1 and blocks == sorted(blocks, reverse=True)


def test_the_gradient_through_the_stages_is_the_models(deep):
    loss = deep(TOKENS).square().mean()
    expected = torch.autograd.grad(loss, list(deep.parameters()))
    x = TOKENS
    for part in split_into_stages(deep, 32):
        x = part(x)
    for g, e in zip(torch.autograd.grad(x.square().mean(), list(deep.parameters())), expected, strict=True):
        assert torch.equal(g, e)


def test_a_tied_model_is_one_stage_at_most():
    tied = TextGPT(width=8, layers=2, heads=2, context=8).initial_network(0)
    (whole,) = split_into_stages(tied, 1)
    assert torch.equal(whole(TOKENS), tied(TOKENS))
    with pytest.raises(SpecError, match=r"^problem\.tied: got True; expected false"):
        split_into_stages(tied, 2)


@pytest.mark.parametrize("stages", [33, 64, 0, -1])
def test_more_stages_than_blocks_are_refused_in_one_line(deep, stages):
    with pytest.raises(SpecError, match=rf"^stages: got {stages}; expected from 1 to 32: .*blocks$"):
        split_into_stages(deep, stages)
    with pytest.raises(SpecError, match=rf"^stages: got {stages}; expected from 1 to 32: "):
        parameter_stages([name for name, _ in deep.named_parameters()], stages)


def test_a_model_without_blocks_is_no_pipeline():
    with pytest.raises(SpecError, match=r"^problem: got .*; expected text-gpt"):
        parameter_stages(["hidden.weight"], 2)


@given(stages=st.integers(1, 32), more=st.integers(0, 40))
def test_coordinates_are_dealt_to_stages_like_blocks(stages, more):
    delays = coordinate_delays(stages + more, stages, stage_delays(stages).tolist())
    counts = delays.flip(0).bincount().flip(0)
    assert delays.tolist() == sorted(delays.tolist(), reverse=True)
    assert len(counts) == stages and counts.sum() == stages + more and counts.max() - counts.min() <= 1
