"""Lion Cub's projected steps: Table 4's own cells come back, and no part is faster than it can be."""

from __future__ import annotations

import pytest

from replication.studies.papers.packing import (
    GPT_BATCHES,
    PRECISIONS,
    packed_speedup,
    packed_step,
    packing_s_per_parameter,
    speed_constants,
)
from replication.studies.papers.speed import wire_bits
from syncline.costmodel import MODELS
from syncline.errors import SpecError


@pytest.mark.parametrize("bits", PRECISIONS)
@pytest.mark.parametrize("bandwidth", [1e9, 1e10, 2e11])
def test_the_measured_model_has_the_fit_s_communication(bits, bandwidth):
    spec, constants = speed_constants()
    step = packed_step("gpt2-large", bits, bandwidth)
    assert step.computing_s == pytest.approx(constants.compute_s)
    assert step.links_s == pytest.approx(constants.communication_s(wire_bits(bits, spec.workers), bandwidth))


def test_packing_is_the_middle_of_what_the_cells_need_beyond_their_bytes():
    """By hand, one bit: .252 s (share / (1 - share)) of 41.1, 28.1 and 25 %, without w (V / B + h) of each."""
    _, constants = speed_constants()
    beyond = sorted(
        constants.compute_s * share / (1 - share) - 1.875 * (constants.parameters / of + constants.software_s_per_bit)
        for share, of in ((0.411, 1e9), (0.281, 1e10), (0.25, 2e11))
    )
    assert packing_s_per_parameter(1) * MODELS["gpt2-large"].parameters == pytest.approx(beyond[1])
    assert packing_s_per_parameter(32) < packing_s_per_parameter(8) < packing_s_per_parameter(1)


@pytest.mark.parametrize("model", GPT_BATCHES)
def test_parts_grow_with_the_model_and_speedups_have_their_limit(model):
    size = MODELS[model].parameters / MODELS["gpt2-large"].parameters
    for bits in PRECISIONS:
        step, of_large = packed_step(model, bits, 1e10), packed_step("gpt2-large", bits, 1e10)
        assert (step.links_s, step.packing_s) == pytest.approx((size * of_large.links_s, size * of_large.packing_s))
        assert step.computing_s == pytest.approx(size * GPT_BATCHES[model] / 12 * of_large.computing_s)
        whole = packed_step(model, 32, 1e10)
        assert packed_speedup(model, bits, 1e10) <= sum(whole) / whole.computing_s
    assert packed_speedup(model, 32, 1e10) == 1


def test_only_what_the_paper_has():
    with pytest.raises(SpecError, match="model: got 'gpt-5'"):
        packed_step("gpt-5", 8, 1e9)
    with pytest.raises(SpecError, match="bits: got 2"):
        packed_step("gpt2", 2, 1e9)
