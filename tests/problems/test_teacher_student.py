from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from syncline.errors import SpecError
from syncline.problems import Rows, TeacherStudent

SMALL = {"inputs": 4, "hidden": 8, "outputs": 2, "batch_size": 4}


def means_of(task):
    """Each replica's mean parameters."""
    return {name: task.rows.by_replica(param.detach()).mean(1) for name, param in task.params.items()}


def train(task, steps, lr, update):
    """Every worker makes the same step from all gradients, its length falling to 0; the losses of the replicas."""
    for step in range(steps):
        task.step_gradients(step)
        with torch.no_grad():
            for param in task.params.values():
                grads = task.rows.by_replica(param.grad)
                direction = update(grads).expand_as(grads).flatten(0, 1)
                param.sub_(direction, alpha=lr * (1 - step / steps))
    return task.evaluate(means_of(task))["loss"]


def mean(grads):
    return grads.mean(1, keepdim=True)


def vote(grads):
    return grads.sign().sum(1, keepdim=True).sign()


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_teachers_answers_have_mean_0_and_variance_1(outputs):
    inputs, answers = TeacherStudent(outputs=outputs).build(Rows.whole_group(1), dtype=torch.float64)._data.validation
    assert inputs.shape == (2048, 16)
    assert_close(answers.mean(0), torch.zeros(outputs, dtype=torch.float64), rtol=0, atol=1e-12)
    assert_close(answers.var(0, correction=0), torch.ones(outputs, dtype=torch.float64))


def test_a_student_that_is_the_teacher_loses_nothing_and_a_constant_loses_1():
    problem = TeacherStudent(noise_scale=0.0)
    task = problem.build(Rows.whole_group(2, seeds=(0, 1)), dtype=torch.float64)
    with torch.no_grad():
        for name, param in task.params.items():
            param.copy_(problem.teacher()[name].expand_as(param))
    # Nothing but the rounding of products whose kernels may differ: errors of 1e-15, and their squares.
    assert task.step_gradients(0).max() < 1e-28
    assert max(param.grad.abs().max() for param in task.params.values()) < 1e-13
    assert task.evaluate(means_of(task))["loss"].max() < 1e-28
    nothing = {name: torch.zeros_like(mean) for name, mean in means_of(task).items()}
    assert_close(task.evaluate(nothing)["loss"], torch.ones(2, dtype=torch.float64))


def test_a_gradient_is_that_of_the_squared_error_on_the_batch():
    task = TeacherStudent(**SMALL, noise_scale=0.0).build(Rows.whole_group(1), dtype=torch.float64)
    inputs, targets = task._data.batch(0)
    losses = task.step_gradients(0)
    w, b, v, c = (param.detach()[0] for param in task.params.values())
    hidden = inputs[0] @ w.T + b
    residual = hidden.relu() @ v.T + c - targets[0]
    slope = 2 * residual / residual.numel()
    back = (slope @ v) * (hidden > 0)
    assert_close(losses, residual.square().mean().view(1))
    expected = [back.T @ inputs[0], back.sum(0), slope.T @ hidden.relu(), slope.sum(0)]
    assert_close([param.grad[0] for param in task.params.values()], expected)


def test_seeds_share_the_teacher_but_neither_weights_nor_inputs():
    task = TeacherStudent(**SMALL).build(Rows.whole_group(1, seeds=(0, 1)))
    inputs, answers = task._data.batch(0)
    assert not torch.isclose(inputs[0], inputs[1]).any()
    assert not torch.isclose(task.params["0.weight"][0], task.params["0.weight"][1]).any()
    other = TeacherStudent(**SMALL).build(Rows.whole_group(3, seeds=(7,)))._data
    assert_close(other._add_targets(inputs)[1], answers)


@pytest.mark.parametrize("alpha", [2.0, 1.0])
def test_noise_has_its_law_and_leaves_the_losses_exact(alpha):
    rows = Rows.whole_group(8, seeds=(0, 1))
    noisy, exact = (
        TeacherStudent(alpha=alpha, noise_scale=scale).build(rows, dtype=torch.float64) for scale in (0.3, 0.0)
    )
    errors = []
    for step in range(20):
        assert torch.equal(noisy.step_gradients(step), exact.step_gradients(step))
        errors += [(noisy.params[name].grad - exact.params[name].grad).flatten(1) for name in noisy.params]
    noise = torch.cat(errors, dim=1) / 0.3  # (R, steps * parameters)
    # At t = 1 the characteristic function is exp(-1) for every alpha, at t = 2 exp(-2^alpha).
    variance = (1 + math.exp(-(2**alpha))) / 2 - math.exp(-2)
    assert abs(noise.cos().mean() - math.exp(-1)) < 4.5 * math.sqrt(variance / noise.numel())
    assert abs((2 * noise).cos().mean() - math.exp(-(2**alpha))) < 4.5 * math.sqrt(0.5 / noise.numel())
    # No two rows see the same: bounded functions of their noises are uncorrelated.
    assert (noise.atan().corrcoef() - torch.eye(len(noise))).abs().max() < 4.5 / math.sqrt(noise.shape[1])


def test_noise_is_fresh_in_every_step_and_replayed_bit_for_bit():
    task = TeacherStudent(**SMALL).build(Rows.whole_group(2, seeds=(0, 1)))
    steps = torch.stack([task._noise[step] for step in range(600)])
    assert len(steps.unique()) > 0.99 * steps.numel()
    again = TeacherStudent(**SMALL).build(Rows((0, 1), (1,), 2))._noise
    for step in (599, 0, 300):
        assert torch.equal(again[step], steps[step].view(2, 2, -1)[:, 1])


def test_gaussian_noise_lets_the_mean_gradient_learn():
    task = TeacherStudent(alpha=2.0).build(Rows.whole_group(8))
    assert train(task, 200, 0.2, mean) < 0.15


def test_cauchy_noise_stops_the_mean_gradient_but_not_a_vote():
    rows = Rows.whole_group(8)
    assert train(TeacherStudent(alpha=1.0).build(rows), 200, 0.01, vote) < 0.15
    by_mean = train(TeacherStudent(alpha=1.0).build(rows), 200, 0.1, mean)
    assert not by_mean < 1.0  # worse than a constant, or not a number


def test_flops_and_facts():
    task = TeacherStudent(**SMALL).build(Rows.whole_group(1))
    assert task.flops_per_step == 6 * (4 * 8 + 8 * 2) * 4
    assert task.describe() == {"parameters": 4 * 8 + 8 + 8 * 2 + 2, "validation_inputs": 2048}
    assert set(task.matrices) < set(task.params)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inputs", 0),
        ("hidden", 0),
        ("outputs", -1),
        ("batch_size", 0),
        ("alpha", 0.0),
        ("alpha", 2.5),
        ("noise_scale", -0.1),
        ("noise_scale", math.inf),
    ],
)
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(SpecError, match=rf"^problem\.{field}: got {value}; expected "):
        TeacherStudent(**{field: value})
