from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.compute.model_shape import ModelShape
from syncline.costmodel.layouts.memory import activation_parts
from syncline.costmodel.layouts.pipelines import even_parts
from syncline.costmodel.layouts.transformer_time import (
    STEP_FIELDS,
    STEP_TIMES,
    TENSOR_FIELDS,
    Layouts,
    Node,
    StepConstants,
    layer_s,
    step_s,
)
from syncline.costmodel.network.link import Link
from syncline.costmodel.numerics.measured_times import nvlink_all_reduce
from syncline.errors import SpecError
from syncline.sim.pipelines.pipeline import Durations, Pipeline
from syncline.sim.pipelines.run import run_pipeline
from syncline.sim.pipelines.schedules import one_f_one_b

A100 = STEP_TIMES["a100-megatron-deepspeed"]
MS = 1e-3


def layouts(**given):
    numbers = {"layers": 24, "width": 2048, "heads": 16, "sequence": 1024, "micro_batch": 4, "microbatches": 8}
    return Layouts(**numbers | given)


def constants(**given):
    """Round numbers: everything that is not given takes next to no time."""
    nothing = {name: 1e-30 if name.endswith("_s") and "_per_s" not in name else 1e30 for name in STEP_FIELDS}
    return StepConstants(**nothing | {"tensor_call_s": 1e-30, "tensor_bytes_per_s": 1e30} | given)


def one(values):
    (value,) = values
    return value


def test_the_host_or_the_device_limits_a_layer():
    """b = 4, s = 1024, h = 2048: 24 b s h^2 + 4 b s^2 h FLOPs are 412316860416 + 34359738368; backward twice that."""
    flops = 412316860416 + 34359738368
    on_device = constants(matmul_flops=1e14, serial_s=1 * MS, launch_s=13 * MS)
    assert one(layer_s(layouts(), on_device)) == pytest.approx(1 * MS + 3 * flops / 1e14)
    on_host = replace(on_device, launch_s=14 * MS)
    assert one(layer_s(layouts(), on_host)) == pytest.approx(15 * MS)


def test_bytes_through_memory_by_hand():
    """13 of each of 16 x 1024 scores of a token, 42 of each of its 2048 numbers; 4096 tokens."""
    nbytes = 4096 * (13 * 16 * 1024 + 42 * 2048)
    assert one(layer_s(layouts(), constants(memory_bytes_per_s=1e12))) == pytest.approx(3 * nbytes / 1e12)
    shared = 4096 * (13 * 16 * 1024 / 4 + 20 * 2048 / 4 + 22 * 2048)
    assert one(layer_s(layouts(tensor=4), constants(memory_bytes_per_s=1e12))) == pytest.approx(3 * shared / 1e12)


def test_tensor_parallelism_adds_four_sums():
    """A ring over 4: 2 x 3/4 of 2 x 4096 x 2048 bytes, and a call, four times."""
    told = constants(tensor_call_s=1 * MS, tensor_bytes_per_s=1e10)
    assert one(layer_s(layouts(tensor=4), told)) == pytest.approx(4 * (1 * MS + 1.5 * 2 * 4096 * 2048 / 1e10))
    assert one(layer_s(layouts(tensor=1), told)) < 1e-12
    again = layer_s(layouts(tensor=4, recomputed=True), told)  # two more, of the second forward pass
    assert one(again / layer_s(layouts(tensor=4), told)) == pytest.approx(6 / 4)


def test_computing_again_is_a_third_more():
    kept, again = (layer_s(layouts(recomputed=r), constants(matmul_flops=1e14, serial_s=1.0)) for r in (False, True))
    assert one(again / kept) == pytest.approx(4 / 3)


def test_a_step_without_a_pipeline_is_a_sum():
    given = {"serial_s": 2 * MS, "head_s": 5 * MS, "step_s": 7 * MS, "head_flops": 1e14}
    head = 5 * MS + 6 * 4096 * 2048 * 51200 / 1e14
    assert one(step_s(layouts(), constants(**given))) == pytest.approx(8 * (24 * 2 * MS + head) + 7 * MS)
    # Where the output layer is split it runs at the rate of the others.
    split = 5 * MS + 6 * 4096 * 2048 * 51200 / (2 * 1e13)
    told = step_s(layouts(tensor=2, layers=1, microbatches=1), constants(head_s=5 * MS, matmul_flops=1e13))
    assert one(told) == pytest.approx(split + one(layer_s(layouts(tensor=2), constants(matmul_flops=1e13))))


def test_what_follows_the_backward_pass_by_hand():
    """N = 12 h^2 L + V h = 1312817152; of 8 replicas each updates an eighth, and 7/8 of 2 N bytes go round twice."""
    n = 12 * 2048**2 * 24 + 51200 * 2048
    assert one(layouts().parameters_of(0)) == n == 1312817152
    assert one(step_s(layouts(data=8), constants(memory_bytes_per_s=1e12, link_bytes_per_s=1e30))) == pytest.approx(
        8 * 24 * one(layer_s(layouts(), constants(memory_bytes_per_s=1e12))) + 28 * n / 8 / 1e12
    )
    assert one(step_s(layouts(data=8), constants(link_bytes_per_s=1e11))) == pytest.approx(2 * 7 / 8 * 2 * n / 1e11)
    assert one(step_s(layouts(data=1), constants(link_bytes_per_s=1e11))) < 1e-12


@given(st.integers(2, 7), st.integers(1, 9), st.sampled_from([1, 2, 8]), st.booleans())
def test_a_pipeline_is_what_the_events_play(stages, microbatches, data, recomputed):
    of = layouts(stages=stages, microbatches=microbatches, data=data, recomputed=recomputed)
    layers = [len(part) for part in even_parts(24, stages)]
    blocks = one(layer_s(of, A100)) * np.array(layers)[:, None]
    head = A100.head_s + 6 * 4096 * 2048 * 51200 / A100.head_flops
    back = 3 / 4 if recomputed else 2 / 3
    forward, backward = blocks * (1 - back), blocks * back
    forward[-1] += head / 3
    backward[-1] += head * 2 / 3
    send = 2 * 4096 * 2048 / A100.link_bytes_per_s
    schedule = one_f_one_b(stages, microbatches)
    timeline = run_pipeline(Pipeline(schedule, stages, Durations(forward, backward)), Link(send, 1e15))
    ends = []
    for stage in range(stages):
        n = 12 * 2048**2 * layers[stage] + (51200 * 2048 if stage in (0, stages - 1) else 0)
        after = A100.step_s + 28 * n / data / A100.memory_bytes_per_s
        after += 2 * (data - 1) / data * 2 * n / A100.link_bytes_per_s
        ends.append(timeline.end_s[timeline.worker == stage].max() + after)
    assert one(step_s(of, A100)) == pytest.approx(max(ends), rel=1e-12)


def test_many_at_once_are_each_alone_for_any_number_of_constants():
    many = Layouts(
        layers=[24, 12, 24, 16], width=[1024, 2048, 2048, 1024], heads=16, sequence=1024, micro_batch=[1, 2, 4, 8],
        microbatches=[4, 4, 2, 4], data=[1, 2, 4, 2], stages=[2, 4, 1, 2], tensor=[1, 1, 2, 4],
    )  # fmt: skip
    assert len(many) == 4
    names = (*STEP_FIELDS, *TENSOR_FIELDS)
    sets = [A100, replace(A100, **{name: 1.3 * getattr(A100, name) for name in names})]
    both = {name: np.array([[getattr(each, name)] for each in sets]) for name in names}
    together = step_s(many, replace(A100, **both))
    assert together.shape == (2, 4)
    for row, each in zip(together, sets, strict=True):
        np.testing.assert_allclose(step_s(many, each), row, rtol=1e-13)
        for i in range(4):
            np.testing.assert_allclose(step_s(many.select(np.array([i])), each), row[i], rtol=1e-13)


@pytest.mark.parametrize("name", (*STEP_FIELDS, *TENSOR_FIELDS))
def test_every_constant_moves_a_step_the_right_way(name):
    of = layouts(micro_batch=[1, 4], tensor=2 if name in TENSOR_FIELDS else 1, data=2, stages=2)
    more = replace(A100, **{name: 1.5 * getattr(A100, name)})
    change = step_s(of, more) - step_s(of, A100)
    rate = name.endswith(("_per_s", "_flops"))
    assert np.any(change < 0 if rate else change > 0) and np.all(change <= 0 if rate else change >= 0)


def test_memory_is_that_of_the_memory_model():
    """Layers of `activation_parts` beside 16 bytes of each parameter, in one device that keeps everything."""
    shape = ModelShape("m", layers=24, width=2048, heads=16, vocabulary=51200, sequence=1024)
    layers = activation_parts(shape, 4).layers
    assert one(layouts().memory_bytes) == pytest.approx(16 * 1312817152 + layers)
    # Four stages: the first holds as many micro-batches as it has stages behind and itself.
    quarter = layouts(stages=4)
    assert one(quarter.memory_bytes) == pytest.approx(16 * one(quarter.parameters_of(0)) + layers)
    assert one(layouts(stages=4, microbatches=2).memory_bytes) < one(quarter.memory_bytes)
    split = layouts(data=4)
    assert one(split.memory_bytes) == pytest.approx((4 + 12 / 4) * 1312817152 + layers)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layers": 0}, "layers: got 0"),
        ({"micro_batch": [1, 0]}, "micro_batch: got 0"),
        ({"stages": 25}, "layers: got 24; expected a layer at least for each stage"),
        ({"data": -1}, "data: got -1"),
    ],
)
def test_layouts_that_cannot_be_are_refused(given, message):
    with pytest.raises(SpecError, match=message):
        layouts(**given)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_constants_are_positive(value):
    for name in (*STEP_FIELDS, *TENSOR_FIELDS):
        with pytest.raises(SpecError, match=name):
            replace(A100, **{name: value})


def test_fields_are_in_one_of_the_two_lists():
    known = {"tensor_times", "tensor_calibrated_bytes", "node", "calibrated_on", "name", "source"}
    assert {field.name for field in fields(StepConstants)} == {*STEP_FIELDS, *TENSOR_FIELDS, *known}


def test_larger_sums_than_were_calibrated_on_take_as_long_as_they_were_measured():
    constants = replace(A100, tensor_times=nvlink_all_reduce("a100"))
    for batch, tensor, changes in ((8, 8, False), (64, 8, True), (64, 1, False), (64, 16, False)):
        of = layouts(micro_batch=batch, tensor=tensor)  # sums of 2 x batch x 1024 x 2048 bytes: 2^25, then 2^28
        assert (one(layer_s(of, constants)) != one(layer_s(of, A100))) == changes
    of, nbytes = layouts(micro_batch=64, tensor=8), 2.0**28
    fitted_s = A100.tensor_call_s + 2 * 7 / 8 * nbytes / A100.tensor_bytes_per_s
    measured_s = float(nvlink_all_reduce("a100").time_s(nbytes, 8))
    assert one(layer_s(of, A100)) - one(layer_s(of, constants)) == pytest.approx(4 * (fitted_s - measured_s))


def test_rings_of_replicas_share_the_cards_of_a_node():
    joined = replace(A100, node=Node(8, 1e11))
    same = layouts(data=4, tensor=2)  # in one node
    assert one(step_s(same, joined)) == one(step_s(same, A100))
    for tensor, data in ((1, 16), (4, 4), (8, 2)):
        of = layouts(data=data, tensor=tensor)
        nbytes = 2 * (data - 1) / data * 2 * one(of.parameters_of(0))
        more_s = nbytes / min(1e11 / tensor, A100.link_bytes_per_s) - nbytes / A100.link_bytes_per_s
        assert one(step_s(of, joined)) - one(step_s(of, A100)) == pytest.approx(more_s)
