"""The delay line: late by what was asked for, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from replication.theory.basis_rotation import delayed_sgd_limit
from syncline.errors import SpecError
from syncline.problems import DelayedTask, Quadratic, Rows


def descend(delay, lr, steps, spectrum=(1.0,), start=(1.0,)):
    task = DelayedTask(
        Quadratic(spectrum=spectrum, start=start).build(Rows.whole_group(1), dtype=torch.float64), {"x": delay}
    )
    path = [task.params["x"].detach().clone()]
    for step in range(steps):
        task.step_gradients(step)
        task.params["x"].data -= lr * task.params["x"].grad
        path.append(task.params["x"].detach().clone())
    return torch.cat(path)


def test_by_hand():
    """x' = x - .5 x(two before): 1, .5, 0, -.5, -.75, ..."""
    path = descend(2, 0.5, 5)[:, 0].tolist()
    assert path == [1.0, 0.5, 0.0, -0.5, -0.75, -0.75]


def test_without_delay_it_is_the_task():
    late, plain = descend(0, 0.3, 10), [1.0]
    for _ in range(10):
        plain.append(plain[-1] - 0.3 * plain[-1])
    assert late[:, 0].tolist() == plain


def test_a_prediction_stands_in_for_the_weights_of_a_forward_pass():
    """Delay 1, twice the parameter predicted: x' = x - .1 * 2 x(one before)."""
    base = Quadratic(spectrum=(1.0,), start=(1.0,)).build(Rows.whole_group(1), dtype=torch.float64)
    task = DelayedTask(base, {"x": 1}, lambda name, x: 2 * x)
    path = [1.0]
    for step in range(3):
        task.step_gradients(step)
        task.params["x"].data -= 0.1 * task.params["x"].grad
        path.append(task.params["x"].item())
    assert path == pytest.approx([1.0, 0.8, 0.6, 0.44], rel=1e-12)


def test_coordinates_of_their_own_delay():
    """A diagonal quadratic: each coordinate goes as if it were alone."""
    both = descend(torch.tensor([3, 1]), 0.2, 20, spectrum=(1.0, 2.0), start=(1.0, -1.0))
    alone = [descend(3, 0.2, 20), descend(1, 0.2, 20, spectrum=(2.0,), start=(-1.0,))]
    torch.testing.assert_close(both, torch.cat(alone, dim=1), rtol=0, atol=0)


def lasting(delay, a, lr, steps):
    """The largest of the last iterates, at a step size times curvature of ``a``."""
    return descend(delay, lr, steps, spectrum=(a / lr,)).abs()[-8 * (delay + 1) :].max()


@pytest.mark.parametrize("delay", range(9))
def test_the_stability_limit_of_delayed_descent(delay):
    """Just below it the iterate vanishes, just above it grows: 2 sin(pi / (2 (2 tau + 1)))."""
    limit = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    assert float(delayed_sgd_limit(delay)) == pytest.approx(limit, rel=1e-15)
    below, above = (lasting(delay, factor * limit, 1.0, 400 * (2 * delay + 1)) for factor in (0.99, 1.01))
    assert below < 0.2 and above > 5.0


@settings(max_examples=12)
@given(delay=st.integers(0, 3), log_lr=st.floats(-4, 4))
def test_the_limit_is_of_the_product_whatever_the_curvature(delay, log_lr):
    limit = float(delayed_sgd_limit(delay))
    below, above = (lasting(delay, factor * limit, 10**log_lr, 150 * (2 * delay + 1)) for factor in (0.97, 1.03))
    assert below < 0.2 and above > 5.0


def test_the_stale_weights_are_told_and_the_task_keeps_its_own():
    task = DelayedTask(Quadratic(start=(1.0, 2.0)).build(Rows.whole_group(1)), {"x": 1})
    for step in range(3):
        before = task.params["x"].detach().clone()
        task.step_gradients(step)
        assert torch.equal(task.params["x"], before)
        task.params["x"].data -= 0.001 * task.params["x"].grad
    assert not torch.equal(task.stale["x"], before)
    assert task.evaluate({"x": before})["loss"].shape == (1,)


def test_delays_that_cannot_be():
    task = Quadratic().build(Rows.whole_group(1))
    with pytest.raises(SpecError, match="delays"):
        DelayedTask(task, {"y": 1})
    with pytest.raises(SpecError, match="at least 0"):
        DelayedTask(task, {"x": -1})
