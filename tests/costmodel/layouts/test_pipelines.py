"""Pipelines in closed form: published tables, limits, and schedules small enough to draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.layouts.pipelines import CLOSED_FORMS, block_stages, bubble, even_parts, pipeline_s
from syncline.errors import SpecError

counts = st.integers(1, 64)
seconds = st.floats(0.01, 10)

# Makespans and bubbles.


@given(stages=counts, microbatches=counts, forward=seconds, backward=seconds)
def test_gpipe_and_1f1b_wait_for_the_other_stages_twice(stages, microbatches, forward, backward):
    """A stage works M (F + B) and waits (K - 1)(F + B): the way down of a forward and the way up of a backward."""
    work, wait = microbatches * (forward + backward), (stages - 1) * (forward + backward)
    for name in ("gpipe", "1f1b", "async-1f1b"):
        got = pipeline_s(name, stages, microbatches, forward, backward)
        assert got == pytest.approx(work + wait, rel=1e-12)
    assert bubble(stages, microbatches) == pytest.approx(wait / (work + wait), rel=1e-12)
    assert bubble(stages, microbatches) == pytest.approx((stages - 1) / (microbatches + stages - 1), rel=1e-12)


@given(stages=counts, rounds=st.integers(1, 8), chunks=st.integers(1, 8), forward=seconds, backward=seconds)
def test_interleaving_divides_the_wait_by_the_chunks(stages, rounds, chunks, forward, backward):
    microbatches = rounds * stages
    plain = pipeline_s("1f1b", stages, microbatches, forward, backward)
    work = microbatches * (forward + backward)
    got = pipeline_s("interleaved", stages, microbatches, forward, backward, chunks=chunks)
    assert got - work == pytest.approx((plain - work) / chunks, rel=1e-9, abs=1e-9)
    assert bubble(stages, microbatches, chunks) == pytest.approx((got - work) / got, rel=1e-9, abs=1e-12)


@given(stages=counts, more=st.integers(0, 64), forward=seconds, weight=seconds, extra=st.floats(0, 1))
def test_a_zero_bubble_schedule_waits_for_all_but_the_weight_gradients(stages, more, forward, weight, extra):
    backward, microbatches = weight + extra * forward, stages + more
    got = pipeline_s("zb-h1", stages, microbatches, forward, backward, weight_s=weight)
    plain = pipeline_s("1f1b", stages, microbatches, forward, backward + weight)
    assert plain - got == pytest.approx((stages - 1) * 2 * weight, rel=1e-9, abs=1e-9)


def test_equal_thirds_leave_a_third_of_the_bubble():
    """F = B = W: (K - 1)(F + B - W) against 3 (K - 1). Source: Zero Bubble Pipeline Parallelism, section 2.3."""
    work = 24.0
    waits = [pipeline_s(name, 4, 8, 1.0, b, weight_s=w) - work for name, b, w in (("zb-h1", 1, 1), ("1f1b", 2, 0))]
    assert waits == [3.0, 9.0]


@given(stages=counts, microbatches=counts)
def test_an_asynchronous_pipeline_of_forward_one_and_backward_two(stages, microbatches):
    assert pipeline_s("async-1f1b", stages, microbatches, 1.0, 2.0) == 3 * (microbatches + stages - 1)


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_arrays_broadcast(name):
    stages, microbatches = np.array([1, 2, 4])[:, None], np.array([4, 8])
    got = pipeline_s(name, stages, microbatches, 1.0, np.full((2,), 2.0), weight_s=np.array([1.0, 2.0]), chunks=2)
    assert got.shape == (3, 2)
    for i, k in enumerate((1, 2, 4)):
        for j, m in enumerate((4, 8)):
            assert got[i, j] == pipeline_s(name, k, m, 1.0, 2.0, weight_s=float(j + 1), chunks=2)
    assert bubble(stages, microbatches).shape == (3, 2)


def test_one_stage_has_no_bubble_and_many_microbatches_have_little():
    for name in CLOSED_FORMS:
        assert pipeline_s(name, 1, 5, 1.0, 2.0) == 15.0
    assert bubble(1, 5) == 0
    assert bubble(8, 10**6) == pytest.approx(7e-6, rel=1e-4)


def test_a_schedule_without_a_closed_form_is_refused():
    with pytest.raises(SpecError, match=r"^schedule: got 'greedy'; expected one of '1f1b', 'async-1f1b', 'gpipe', "):
        pipeline_s("greedy", 4, 8, 1.0, 2.0)


# Stages.


@given(count=st.integers(0, 300), parts=st.integers(1, 64))
def test_even_parts_are_all_things_once_in_order(count, parts):
    runs = even_parts(count, parts)
    assert [i for run in runs for i in run] == list(range(count))
    sizes = [len(run) for run in runs]
    assert len(runs) == parts and max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("blocks", "stages"), [(8, 9), (8, 0), (1, 2)])
def test_more_stages_than_blocks_are_refused(blocks, stages):
    with pytest.raises(SpecError, match=rf"^stages: got {stages}; expected from 1 to {blocks}: "):
        block_stages(blocks, stages)
