"""Workers in step are one batch: to the bit what the synchronous engine makes of them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from syncline.runs.training.async_training import AsyncWorkers
from syncline.runs.training.async_workers import teams_of
from syncline.runs.training.trained import Trained, build_task
from syncline.training import Recorder
from tests.runs.training.elastic.late import ADAM, DDP, DILOCO, LOCAL_SGD, spec_of, trained

DIGITS = {"kind": "digits", "hidden": 16, "batch_size": 4}
SCHEDULE = {"warmup_steps": 4, "cooldown_steps": 8}


def check_same_bits(one: Trained, other: Trained) -> None:
    """Losses of all steps, and the model at the end; on the way it is evaluated before updates have arrived."""
    assert torch.equal(torch.from_numpy(one.history.loss), torch.from_numpy(other.history.loss))
    for name, values in other.history.last_evaluation().items():
        assert torch.equal(torch.from_numpy(one.history.last_evaluation()[name]), torch.from_numpy(values)), name


@cache
def synchronous(training: str) -> Trained:
    """Train a method with the fields of a spec, both as JSON, without asynchronous workers."""
    method, fields = json.loads(training)
    return trained(method, **fields)


@pytest.mark.parametrize("method", [DDP, ADAM, DILOCO, LOCAL_SGD])
@pytest.mark.parametrize(
    "how",
    [
        {"buffer_size": 4},
        {"buffer_size": 4, "synchronous": True},
        {"buffer_size": 2, "synchronous": True, "grace_period": "1 s"},
    ],
)
@pytest.mark.parametrize("fields", [{}, {"problem": DIGITS, "dtype": "float32", "schedule": SCHEDULE}])
def test_where_nobody_is_late_it_has_the_bits_of_the_synchronous_method(
    method: dict[str, Any], how: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Equal workers: a buffer of all, who waits for all, and a quorum whose grace all are within."""
    late = trained(method, how, **fields)
    check_same_bits(late, synchronous(json.dumps([method, fields])))
    assert late.asynchronous and teams_of(late.asynchronous.plan) == ((0, 1, 2, 3),)


def test_workers_of_one_speed_are_a_team_and_their_steps_change_nothing_but_rounding() -> None:
    """Two fast ones and two slow ones, who wait for nobody; the same events with everybody by himself."""
    spec = spec_of(DILOCO, {}, speeds=[1.0, 1.0, 0.4, 0.4])
    late = trained(DILOCO, {}, speeds=[1.0, 1.0, 0.4, 0.4])
    assert late.asynchronous and teams_of(late.asynchronous.plan) == ((0, 1), (2, 3))
    recorder = Recorder()
    build = lambda rows, problem: build_task(problem, rows, torch.device("cpu"), "float64")  # noqa: E731
    late.asynchronous.plan.simulate(AsyncWorkers(spec, spec.method, build, recorder, lambda done: None))
    np.testing.assert_allclose(recorder.history(spec.seeds).loss, late.history.loss, rtol=1e-12)


ALONE = ((0,), (1,), (2,), (3,))


@pytest.mark.parametrize(
    ("fields", "teams"),
    [
        ({"speeds": [1.0, 0.9, 0.8, 0.7]}, ALONE),
        ({"compute": {"seconds": 1.0, "jitter": 0.2}}, ALONE),
        ({"failures": {"rates": "1000 h"}}, ALONE),
        ({"steps": 25}, ((0,), (1, 2, 3))),  # the last steps, too few for a period of each, are the first worker's
    ],
    ids=str,
)
def test_who_is_not_in_step_steps_alone(fields: dict[str, Any], teams: tuple[tuple[int, ...], ...]) -> None:
    late = trained(DILOCO, {"buffer_size": 4}, **fields)
    assert late.asynchronous and teams_of(late.asynchronous.plan) == teams
