from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from syncline.errors import SpecError
from syncline.problems import Quadratic, Rosenbrock, Rows, Spiral
from tests.problems import table

coordinates = st.floats(-3, 3)
RANDOM_BOWL = Quadratic(spectrum=(0.5, 2.0, 8.0), optimum=(1.0, -1.0, 2.0), rotation_seed=3)
LANDSCAPES = [
    *(landscape() for landscape in table.LANDSCAPES.values()),
    Quadratic(spectrum=(1.0, 10.0), optimum=(0.5, -2.0), angle_deg=30.0),
    RANDOM_BOWL,
]


# A spiral's angle has no derivative at its origin.
@pytest.mark.parametrize("problem", [problem for problem in LANDSCAPES if not isinstance(problem, Spiral)])
@given(point=st.lists(coordinates, min_size=3, max_size=3))
def test_closed_form_gradient_is_autograd_of_the_value(problem, point):
    x = torch.tensor(point, dtype=torch.float64)[: problem.start_point().numel()].requires_grad_()
    value, gradient = problem.oracle(torch.float64)(x)
    (derivative,) = torch.autograd.grad(value, x)
    assert_close(gradient, derivative, rtol=1e-10, atol=1e-10)


@given(x=coordinates, y=coordinates)
def test_rosenbrock_is_its_formula(x, y):
    value, _ = Rosenbrock().oracle(torch.float64)(torch.tensor([x, y], dtype=torch.float64))
    assert value.item() == pytest.approx((1 - x) ** 2 + 100 * (y - x * x) ** 2, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("problem", LANDSCAPES)
def test_the_optimum_has_value_and_gradient_zero(problem):
    optimum = problem.optimum_point(problem.shifts(0, 4))
    value, gradient = problem.oracle(torch.float64)(optimum)
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("problem", LANDSCAPES)
def test_exact_gradients_of_equal_workers_are_equal(problem):
    task = problem.build(Rows.whole_group(3, seeds=(0, 1)), dtype=torch.float64)
    losses = task.step_gradients(0)
    _, gradient = problem.oracle(torch.float64)(problem.start_point())
    assert_close(task.params["x"].grad, gradient.expand(6, -1))
    assert_close(losses, losses[:1].expand(6))


def test_noise_has_its_standard_deviation_and_leaves_the_loss_exact():
    rows = Rows.whole_group(8)
    noisy, exact = (Rosenbrock(noise_std=std).build(rows, dtype=torch.float64) for std in (0.7, 0.0))
    errors = []
    for step in range(2000):
        assert torch.equal(noisy.step_gradients(step), exact.step_gradients(step))
        errors.append(noisy.params["x"].grad - exact.params["x"].grad)
    noise = torch.stack(errors)
    standard_error = 0.7 / math.sqrt(noise.numel())
    assert abs(noise.mean()) < 4.5 * standard_error
    assert abs(noise.std() - 0.7) < 4.5 * standard_error / math.sqrt(2)


SHIFTED = [type(row)(shift_std=0.2) for row in table.ROWS.values() if getattr(row, "shift_std", 0.0)]


@pytest.mark.parametrize("problem", [*SHIFTED, Quadratic(shift_std=0.2, angle_deg=45.0)])
@pytest.mark.parametrize("world_size", [1, 2, 7])
def test_mean_gradient_vanishes_at_the_optimum_of_shifted_workers(problem, world_size):
    task = problem.build(Rows.whole_group(world_size, seeds=(0, 1)), dtype=torch.float64)
    with torch.no_grad():
        task.params["x"].copy_(task.optima.repeat_interleave(world_size, 0))
    losses = task.rows.by_replica(task.step_gradients(0)).mean(1)
    gradients = task.rows.by_replica(task.params["x"].grad)
    metrics = task.evaluate({"x": task.optima})
    assert_close(gradients.mean(1), torch.zeros(2, 2, dtype=torch.float64), rtol=0, atol=1e-10)
    assert (gradients.norm(dim=-1) > 1e-3).all() or world_size == 1
    assert_close(metrics["loss"], losses)
    assert not metrics["distance"].any()


@given(x=coordinates, y=coordinates)
def test_no_point_is_below_the_optimum_of_shifted_rosenbrocks(x, y):
    task = Rosenbrock(shift_std=0.1).build(Rows.whole_group(5), dtype=torch.float64)
    lowest = task.evaluate({"x": task.optima})["loss"]
    assert task.evaluate({"x": torch.tensor([[x, y]], dtype=torch.float64)})["loss"] >= lowest


def test_shifts_are_centred_and_have_their_scale():
    shifts = Quadratic(shift_std=0.5).shifts(seed=0, world_size=2000)
    assert_close(shifts.mean(0), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-15)
    assert shifts.std().item() == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(2 * shifts.numel()))


def test_trace_measures_the_workers():
    task = Quadratic(start=(3.0, 4.0)).build(Rows.whole_group(2))
    with torch.no_grad():
        task.params["x"][1] = torch.tensor([3.0, 0.0])
    trace = task.trace()
    assert_close(trace["distance"], torch.tensor([13.0**0.5]))  # of the mean (3, 2) to the origin
    assert_close(trace["spread"], torch.tensor([2.0]))
    assert_close(trace["position"], torch.tensor([[3.0, 2.0]]))


def test_only_two_dimensions_are_traced_as_positions():
    assert "position" not in RANDOM_BOWL.build(Rows.whole_group(2)).trace()


def test_hessian_has_the_spectrum_whatever_the_rotation():
    for problem in (RANDOM_BOWL, Quadratic(spectrum=(0.5, 8.0), angle_deg=20.0)):
        expected = torch.tensor(problem.spectrum, dtype=torch.float64)
        assert_close(torch.linalg.eigvalsh(problem.hessian()), expected)


def test_the_angle_turns_the_first_eigenvector():
    q = Quadratic(angle_deg=30.0).rotation()
    assert_close(q[:, 0], torch.tensor([math.sqrt(3) / 2, 0.5], dtype=torch.float64))


def test_rotations_depend_on_their_seed_alone():
    one, same, other = (Quadratic(rotation_seed=seed).rotation() for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)


def test_a_start_along_the_eigenvectors_has_one_loss_whatever_the_angle():
    """1/2 (20 * 3^2 + 1 * 2^2) = 92, turned by any angle about the optimum."""
    for angle in (0.0, 10.0, 45.0):
        problem = Quadratic(
            spectrum=(20.0, 1.0), start=(3.0, -2.0), start_basis="eigenvectors", optimum=(1.0, 5.0), angle_deg=angle
        )
        loss = problem.build(Rows.whole_group(1), dtype=torch.float64).step_gradients(0)
        assert loss.item() == pytest.approx(92.0)
        turn = math.radians(angle)
        x = 1 + 3 * math.cos(turn) + 2 * math.sin(turn), 5 + 3 * math.sin(turn) - 2 * math.cos(turn)
        assert problem.start_point().tolist() == pytest.approx(x)


def test_jitter_is_uniform_of_each_replica_and_the_same_in_every_basis():
    seeds = tuple(range(400))
    bowls = [
        Quadratic(start=(-20.0, 30.0), start_jitter=2.0, start_basis="eigenvectors", angle_deg=angle)
        for angle in (0.0, 30.0)
    ]
    straight, turned = (
        bowl.build(Rows.whole_group(2, seeds=seeds), dtype=torch.float64).params["x"].detach() for bowl in bowls
    )
    assert torch.equal(straight[::2], straight[1::2])  # the two workers of a replica start together
    assert_close(turned @ bowls[1].rotation(), straight)
    draws = straight[::2] - torch.tensor([-20.0, 30.0], dtype=torch.float64)
    assert draws.abs().max() <= 2 and draws.abs().max() > 1.9
    standard_error = 2 / math.sqrt(3 * draws.numel())
    assert abs(draws.mean()) < 4.5 * standard_error


@pytest.mark.parametrize("problem", [Rosenbrock(), RANDOM_BOWL])
def test_gradient_descent_arrives(problem):
    task = problem.build(Rows.whole_group(1), dtype=torch.float64)
    learning_rate = 0.1 if problem is RANDOM_BOWL else 1e-3
    for step in range(400):
        task.step_gradients(step)
        with torch.no_grad():
            task.params["x"] -= learning_rate * task.params["x"].grad
    before, after = problem.build(Rows.whole_group(1)).trace()["distance"], task.trace()["distance"]
    assert after < (1e-6 if problem is RANDOM_BOWL else before)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Rosenbrock(noise_std=-1.0), "noise_std"),
        (lambda: Rosenbrock(shift_std=math.nan), "shift_std"),
        (lambda: Rosenbrock(start=(1.0,)), "start"),
        (lambda: Quadratic(spectrum=()), "spectrum"),
        (lambda: Quadratic(spectrum=(-1.0, 1.0)), "spectrum"),
        (lambda: Quadratic(optimum=(1.0,)), "optimum"),
        (lambda: Quadratic(spectrum=(1.0,), angle_deg=10.0), "angle_deg"),
        (lambda: Quadratic(start_basis="axes"), "start_basis"),
        (lambda: Quadratic(start_jitter=-1.0), "start_jitter"),
        (lambda: Quadratic(rotation_seed=0, angle_deg=10.0), "angle_deg"),
    ],
)
def test_a_landscape_that_cannot_be_is_refused(make, field):
    with pytest.raises(SpecError, match=rf"^problem\.{field}: got .*; expected "):
        make()
