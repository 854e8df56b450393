from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel.traffic.call import CallsByStep
from syncline.errors import SpecError
from syncline.sim import Call, Collective, Compute, Send, Wait, data_parallel


def test_data_parallel_training_in_full():
    calls = [Call(1, "all_reduce", 8.0, label="gradient"), Call(1, "broadcast", 2.0)]
    first, second = data_parallel([[1.0, 2.0], [3.0, 4.0]], calls)
    exchange = [
        Collective("all_reduce", 8.0, (1, 0), "gradient", 1),
        Wait((1, 0)),
        Collective("broadcast", 2.0, (1, 1), "", 1),
        Wait((1, 1)),
    ]
    assert first == [Compute(1.0, step=0), Compute(3.0, step=1), *exchange]
    assert second == [Compute(2.0, step=0), Compute(4.0, step=1), *exchange]


def test_calls_of_a_step_keep_their_order():
    calls = [Call(2, "broadcast", 1.0), Call(0, "all_reduce", 2.0), Call(2, "all_reduce", 3.0)]
    by_step = CallsByStep(calls, 3)
    assert [by_step[step] for step in range(3)] == [[calls[1]], [], [calls[0], calls[2]]]
    assert by_step.calls == [calls[1], calls[0], calls[2]]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (Call(3, "all_reduce", 1.0), r"calls\[0\].step: got 3; expected a step from 0 to 2"),
        (Call(-1, "all_reduce", 1.0), r"calls\[0\].step: got -1"),
        (Call(0, "all_redoce", 1.0), r"calls\[0\].collective: got 'all_redoce'.*did you mean 'all_reduce'"),
        (Call(0, "all_reduce", -1.0), r"calls\[0\].payload_bytes: got -1.0"),
        (Call(0, "all_reduce", float("nan")), r"calls\[0\].payload_bytes: got nan"),
    ],
)
def test_calls_that_cannot_be(call, line):
    with pytest.raises(SpecError, match=line):
        CallsByStep([call], 3)


@pytest.mark.parametrize("compute_s", [1.0, [1.0], [[-1.0]], [[float("inf")]], np.ones((2, 2, 2))])
def test_compute_times_that_cannot_be(compute_s):
    with pytest.raises(SpecError, match="compute_s"):
        data_parallel(compute_s, [])


@pytest.mark.parametrize("make", [lambda: Compute(-1.0), lambda: Compute(float("nan")), lambda: Send(1, -1.0)])
def test_instructions_that_cannot_be(make):
    with pytest.raises(SpecError, match="at least 0"):
        make()


@pytest.mark.parametrize("make", [lambda of: Send(1, 1.0, stream=of), lambda of: Collective("x", 1.0, "", stream=of)])
def test_computing_has_its_stream_to_itself(make):
    with pytest.raises(SpecError, match="stream: got 'compute'"):
        make("compute")
