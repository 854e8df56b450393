"""The spiral: its formula, its derivatives, and where its steep direction points."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch.testing import assert_close

from syncline.errors import SpecError
from syncline.problems import Rows, Spiral
from syncline.problems.landscapes import spiral, spiral_hessian
from syncline.specs.problem import ProblemField

radii = st.floats(0.1, 30.0)
angles = st.floats(-3.1, 3.1)


def at(r, theta):
    return torch.tensor([r * math.cos(theta), r * math.sin(theta)], dtype=torch.float64)


@given(r=radii, theta=angles)
def test_the_value_is_the_formula(r, theta):
    value, _ = spiral(at(r, theta))
    assert value.item() == pytest.approx(r**2 + (20 * math.sin(4 * r - theta) + 1) ** 2, rel=1e-9, abs=1e-9)


@given(r=radii, theta=angles)
def test_the_gradient_and_the_hessian_are_those_of_autograd(r, theta):
    x = at(r, theta).requires_grad_()
    value, gradient = spiral(x)
    (derivative,) = torch.autograd.grad(value, x, create_graph=True)
    second = torch.stack([torch.autograd.grad(one, x, retain_graph=True)[0] for one in derivative])
    assert_close(gradient, derivative, rtol=1e-9, atol=1e-8)
    assert_close(spiral_hessian(x), second, rtol=1e-8, atol=1e-6 * (1 + 1 / r**2))


def test_the_gradient_by_finite_differences():
    points = torch.stack([at(r, theta) for r in (0.3, 2.0, 10.0) for theta in (-2.0, 0.5, 3.0)])
    h = 1e-6
    for axis in range(2):
        offset = h * torch.eye(2, dtype=torch.float64)[axis]
        slope = (spiral(points + offset)[0] - spiral(points - offset)[0]) / (2 * h)
        assert_close(spiral(points)[1][:, axis], slope, rtol=1e-5, atol=1e-3)


@given(r=st.floats(1.0, 30.0))
def test_the_valley_floor_has_only_the_radius_left(r):
    start = Spiral(radius=r).start_point()
    value, gradient = spiral(start)
    assert start.norm().item() == pytest.approx(r)
    assert value.item() == pytest.approx(r**2, rel=1e-9)
    assert_close(gradient, 2 * start, rtol=1e-8, atol=1e-8)


@given(r=st.floats(1.0, 30.0))
def test_the_steep_direction_turns_with_the_valley(r):
    """On the floor the Hessian is 2 (grad s)(grad s)^T and the bowl's: c^2 = 399, grad s = c (4 e_r - e_theta / r)."""
    start = Spiral(radius=r).start_point()
    values, vectors = torch.linalg.eigh(spiral_hessian(start))
    assert values[0].item() == pytest.approx(2.0, rel=1e-6)
    assert values[1].item() == pytest.approx(2 + 2 * 399 * (16 + 1 / r**2), rel=1e-9)
    along = abs(float(vectors[:, 1] @ start) / r)
    assert math.acos(min(along, 1.0)) == pytest.approx(math.atan(1 / (4 * r)), abs=1e-6)


def test_the_origin_is_the_infimum_and_nothing_is_undefined_there():
    value, gradient = spiral(torch.zeros(3, 2))
    assert not value.any() and not gradient.any()


def test_the_start_has_its_radius_and_angle():
    assert_close(Spiral(radius=2.0, angle_deg=90.0).start_point(), torch.tensor([0.0, 2.0], dtype=torch.float64))


def test_a_spec_names_it_and_a_task_descends():
    problem = TypeAdapter(ProblemField).validate_python({"kind": "spiral", "radius": 3.0})
    assert problem == Spiral(radius=3.0)
    task = problem.build(Rows.whole_group(2, seeds=(0, 1)), dtype=torch.float64)
    first = task.step_gradients(0)
    for step in range(200):
        task.step_gradients(step)
        with torch.no_grad():
            task.params["x"] -= 1e-5 * task.params["x"].grad
    assert (task.step_gradients(200) < first).all()
    assert_close(task.trace()["distance"], task.params["x"].detach()[::2].norm(dim=-1))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"radius": 0.0}, "radius"),
        ({"radius": math.inf}, "radius"),
        ({"angle_deg": math.nan}, "angle_deg"),
        ({"shift_std": 0.1}, "shift_std"),
        ({"noise_std": -1.0}, "noise_std"),
    ],
)
def test_a_spiral_that_cannot_be_is_refused(fields, field):
    with pytest.raises(SpecError, match=rf"^problem\.{field}: got .*; expected "):
        Spiral(**fields)
