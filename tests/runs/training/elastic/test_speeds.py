"""Workers that differ: by their hardware, and with batches as large as they are fast."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from syncline.costmodel.compute.hardware import HARDWARE
from syncline.errors import SpecError
from syncline.problems import Rows
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.specs import RunSpec, validate
from tests.runs.training.elastic.late import DDP, DILOCO, SHARED, spec_of

INSTANT = {"latency": 0, "bandwidth": "100 Tbit/s"}


def rate(name: str) -> float:
    return HARDWARE[name].peak_flops * HARDWARE[name].mfu


@pytest.mark.parametrize(
    ("compute", "of"), [({"hardware": "h100"}, "h100"), ({"seconds": 1.0}, "rtx-4090"), ({}, "cpu-core")]
)
def test_hardware_by_name_is_its_rate_over_that_of_compute(compute: dict[str, Any], of: str) -> None:
    """Seconds are those of the first that is named."""
    spec = spec_of(DDP, compute=compute, speeds=["rtx-4090", "h100", 0.5, "a100"])
    expected = [rate("rtx-4090") / rate(of), rate("h100") / rate(of), 0.5, rate("a100") / rate(of)]
    assert spec.relative_speeds == pytest.approx(expected)
    assert spec.step_times(2.0, 1)[0].tolist() == pytest.approx([2.0 / speed for speed in expected])
    assert validate(RunSpec, spec.model_dump(mode="json", exclude_none=True)).speeds == spec.speeds


def test_synchronous_steps_take_as_long_as_those_of_the_slowest_machine() -> None:
    speeds = ["h100", "h100", "rtx-4090", "h100"]
    spec = spec_of(DDP, compute={"seconds": 1.0}, speeds=speeds, network=INSTANT, seeds=[0])
    clock = time_method(spec, train_method(spec, spec.method), spec.network)
    assert clock is not None and clock.step_time_s == pytest.approx(rate("h100") / rate("rtx-4090"))


TEACHER = {"kind": "teacher-student", "batch_size": 8}


def test_batches_as_large_as_workers_are_fast_end_together_and_weigh_by_their_samples() -> None:
    """A server's step with everybody's gradient is one with ``sum b_m g_m / sum b_m``, of batches of b_m."""
    speeds, batches, lr = [1.0, 0.5, 0.25, 1.0], [8, 4, 2, 8], 0.05
    how = {"buffer_size": 4, "synchronous": True, "update_weights": "tokens", "dynamic_local_updates": "batch"}
    method = {"kind": "ddp", "rule": {"kind": "sgdm", "momentum": 0.0}, "lr": lr}
    spec = spec_of(method, how, problem=TEACHER, speeds=speeds, steps=5, seeds=[0], eval_every=0, network=INSTANT)
    out = train_method(spec, spec.method)
    assert out.asynchronous is not None
    # A worker of half the speed has half a batch, so all updates of a version arrive with the first.
    assert out.asynchronous.result.step_end_s == pytest.approx(np.repeat(np.arange(1.0, 6.0), 4))
    tasks = [
        replace(spec.problem, batch_size=b).build(Rows((0,), (m,), 4), dtype=torch.float64)
        for m, b in enumerate(batches)
    ]
    losses = []
    for t in range(5):
        losses.append(np.mean([float(task.step_gradients(t)[0].detach()) for task in tasks]))
        for name in tasks[0].params:
            grads = [task.params[name].grad for task in tasks]
            mean = sum(b * g for b, g in zip(batches, grads, strict=True)) / sum(batches)
            for task in tasks:
                with torch.no_grad():
                    task.params[name] -= lr * mean
    np.testing.assert_allclose(out.history.loss[:, 0], losses, rtol=1e-6)


def test_what_a_batch_takes_is_what_compute_says_of_it() -> None:
    """Of a table, by its sizes; of hardware, by operations."""
    own = {"problem": TEACHER, "speeds": [1.0, 0.5, 0.25, 1.0], "steps": 2, "seeds": [0], "eval_every": 0}
    for compute, expected in (
        ({"batch_times": {"2": 0.5, "4": 0.6, "8": 1.0}}, (1.0, 0.6, 0.5, 1.0)),
        ({"hardware": "h100"}, (1.0, 0.5, 0.25, 1.0)),
    ):
        spec = spec_of(
            DILOCO | {"period": 1}, {"dynamic_local_updates": "batch"}, compute=compute, network=INSTANT, **own
        )
        out = train_method(spec, spec.method)
        assert out.asynchronous is not None and out.asynchronous.plan.relative_durations == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"method": DDP, "speeds": ["h10", 1, 1, 1]}, r"speeds.0: got 'h10'; expected .*'h100'"),
        (
            {"method": DDP | {"asynchronous": {"dynamic_local_updates": "bach"}}},
            "asynchronous.dynamic_local_updates: got 'bach'",
        ),
    ],
)
def test_what_cannot_be_is_told_in_one_line(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as told:
        validate(RunSpec, SHARED | fields)
    assert "\n" not in str(told.value)


def test_batches_adapt_only_where_there_are_some() -> None:
    spec = spec_of(DDP, {"dynamic_local_updates": "batch"})
    with pytest.raises(
        SpecError, match=r"asynchronous.dynamic_local_updates: got 'batch'; expected yes or no, as .* no batch_size"
    ):
        train_method(spec, spec.method)
