"""Remedies for late gradients: their formulas by hand, and what they are where nothing is late."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import DDP
from syncline.optim import (
    DelayCompensation,
    EveryStep,
    Method,
    NesterovAdam,
    UpdateRule,
    ada_sgd,
    adam,
    adopt,
    discount,
    discounted,
    lion,
    look_ahead,
    multi_momentum_rule,
    sgdm,
)
from syncline.problems import DelayedTask, Digits, Quadratic, Rows, Task
from syncline.training import parameter_groups, rows_of
from tests.methods.table import METHODS
from tests.methods.worlds import BOWLS

TINY = Digits(hidden=5, batch_size=4)


def bowl(curvature: float = 1.0, start: float = 1.0) -> Task:
    """One coordinate, one worker, double precision."""
    return Quadratic(spectrum=(curvature,), start=(start,)).build(Rows.whole_group(1), dtype=torch.float64)


def ddp(task: Task, rule: UpdateRule, lr: float = 0.1, **options) -> Method:
    return Method(
        task.params.values(), lr, rule, EveryStep(), comm=SimulatedCommunicator(1), worker_axis=True, **options
    )


def path(task: Task, method: torch.optim.Optimizer, steps: int) -> list[float]:
    out = [task.params["x"].item()]
    for t in range(steps):
        task.step_gradients(t)
        method.step()
        out.append(task.params["x"].item())
    return out


# Discounts.


@given(delay=st.integers(2, 64), anneal=st.integers(1, 500), t=st.integers(0, 600))
def test_the_discount_is_a_power_of_the_delay_that_rises_to_one(delay: int, anneal: int, t: int) -> None:
    expected = delay ** (min(t / anneal, 1.0) - 1)
    assert discount(t, delay, anneal) == pytest.approx(expected, rel=1e-12)
    assert discount(t, delay, anneal) <= discount(t + 1, delay, anneal) <= 1
    assert discount(t, delay + 1, anneal) <= discount(t, delay, anneal)
    assert discount(0, delay, anneal) == pytest.approx(1 / delay)
    assert discount(anneal, delay, anneal) == 1


@given(anneal=st.integers(0, 500), t=st.integers(0, 600))
def test_what_is_late_by_one_or_not_at_all_has_no_discount(anneal: int, t: int) -> None:
    assert discount(t, 0, anneal) == discount(t, 1, anneal) == 1
    assert discount(t, 9, 0) == 1


def test_each_group_has_its_own_discount_beside_the_common_schedule() -> None:
    early, late = (torch.nn.Parameter(torch.zeros(1, 1)) for _ in range(2))
    method = DDP([{"params": [early]}, {"params": [late], "lr": 0.4}], 0.2, sgdm(), worker_axis=True)
    schedule = discounted(method, [0, 4], 4, lambda t: 0.5 if t < 2 else 1.0)
    rates = []
    for _ in range(6):
        for p in (early, late):
            p.grad = torch.ones_like(p)
        rates.append([group["lr"] for group in method.param_groups])
        method.step()
        schedule.step()
    factors = [4 ** (t / 4 - 1) for t in range(4)] + [1.0, 1.0]
    common = [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert_close(
        torch.tensor(rates), torch.tensor([[0.2 * c, 0.4 * c * f] for c, f in zip(common, factors, strict=True)])
    )
    assert early.item() == pytest.approx(-0.2 * sum(common))


@pytest.mark.parametrize("delays", [[1], [1, 2, 3], [1, -1]])
def test_delays_that_do_not_fit_the_groups_are_refused(delays: list[int]) -> None:
    method = DDP([{"params": [torch.nn.Parameter(torch.zeros(1, 1))]} for _ in range(2)], 0.2, sgdm())
    with pytest.raises(SpecError, match=r"^delays: got .*; expected "):
        discounted(method, delays, 10)


# Delay Compensation.


def compensated(strength: float, delay: int, rule: UpdateRule, lr: float, curvature: float, steps: int) -> list[float]:
    task = DelayedTask(bowl(curvature), {"x": delay})
    reducer = DelayCompensation(lambda number: task.stale["x"], strength)
    return path(task, ddp(task, rule, lr, reducer=reducer), steps)


def test_compensation_by_hand() -> None:
    """f = x^2 (H = 2), lr .1, delay 1, lambda .5: g = 2 x', then g + .5 g^2 (x - x')."""
    x0 = 1.0
    x1 = x0 - 0.1 * 2.0  # nothing is late yet
    x2 = x1 - 0.1 * (2.0 + 0.5 * 4.0 * (x1 - x0))
    g = 2 * x1
    x3 = x2 - 0.1 * (g + 0.5 * g * g * (x2 - x1))
    assert compensated(0.5, 1, sgdm(), 0.1, 2.0, 3) == pytest.approx([x0, x1, x2, x3], rel=1e-12)


def test_compensation_is_exact_where_the_square_of_the_gradient_is_the_curvature() -> None:
    """H = g g / (H x')^2 in one dimension: with lambda that much the first late gradient is the present one."""
    curvature, lr = 3.0, 0.05
    x1 = 1 - lr * curvature
    got = compensated(1 / curvature, 1, sgdm(), lr, curvature, 2)  # g = 3, lambda g^2 = 3 = H
    assert got[2] == pytest.approx(x1 - lr * curvature * x1, rel=1e-12)


@pytest.mark.parametrize("rule", [sgdm(0.9), adam()], ids=["sgdm", "adam"])
def test_compensation_of_strength_zero_is_none_bit_for_bit(rule: UpdateRule) -> None:
    task = DelayedTask(bowl(2.0), {"x": 3})
    assert compensated(0.0, 3, rule, 0.02, 2.0, 30) == path(task, ddp(task, rule, 0.02), 30)


def test_compensation_of_what_is_not_late_is_none_bit_for_bit() -> None:
    task = bowl(2.0)
    assert compensated(0.7, 0, adam(), 0.1, 2.0, 30) == path(task, ddp(task, adam()), 30)


def test_a_negative_strength_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^remedy\.strength: got -1"):
        DelayCompensation(lambda number: torch.zeros(1), -1.0)


# Weight prediction.


def stepped(rule: UpdateRule, gradients: list[list[float]], lr: float = 0.1) -> tuple[Method, torch.nn.Parameter]:
    p = torch.nn.Parameter(torch.zeros(1, len(gradients[0]), dtype=torch.float64))
    method = DDP([p], lr, rule, comm=SimulatedCommunicator(1), worker_axis=True)
    for g in gradients:
        p.grad = torch.tensor([g], dtype=torch.float64)
        method.step()
    return method, p


def test_looking_ahead_along_a_momentum_by_hand() -> None:
    """u = 1, then .5 + 3 = 3.5; x = -.1 (1 + 3.5); three steps on: x - 3 * .1 * 3.5."""
    method, p = stepped(sgdm(0.5), [[1.0], [3.0]])
    assert look_ahead(method, p, 3).item() == pytest.approx(-0.45 - 1.05)


@pytest.mark.parametrize("correction", [True, False])
def test_looking_ahead_in_adams_form_by_hand(correction: bool) -> None:
    beta1, beta2, eps = 0.5, 0.75, 1e-3
    method, p = stepped(adam(beta1, beta2, eps, correction), [[1.0, -2.0], [3.0, 0.5]])
    for i, (first, second) in enumerate(((1.0, 3.0), (-2.0, 0.5))):
        u, v = 0.25 * first + 0.5 * second, 0.1875 * first**2 + 0.25 * second**2
        u, v = (u / 0.75, v / 0.4375) if correction else (u, v)
        ahead = p[0, i].item() - 2 * 0.1 * u / (v**0.5 + eps)
        assert look_ahead(method, p, 2)[0, i].item() == pytest.approx(ahead, rel=1e-12)


def test_looking_ahead_is_right_where_the_gradient_stays_as_it_is() -> None:
    """Adam's direction of a constant gradient is its sign, at every step."""
    method, p = stepped(adam(eps=1e-12), [[2.0, -5.0]] * 4)
    assert_close(look_ahead(method, p, 3), torch.tensor([[-0.7, 0.7]], dtype=torch.float64))


def test_coordinates_look_ahead_by_their_own_delay() -> None:
    method, p = stepped(sgdm(0.5), [[1.0, 1.0, 1.0]])
    assert_close(
        look_ahead(method, p, torch.tensor([0, 1, 4])) - p.detach(), torch.tensor([[0.0, -0.1, -0.4]]).double()
    )


def test_the_second_moment_of_ada_sgd_and_nadam_scales_too() -> None:
    """One step of gradients (3, 4): AdaSGD's root is sqrt(12.5); NAdam's is Adam's, and its momentum the gradient."""
    method, p = stepped(ada_sgd(eps=1e-12), [[3.0, 4.0]])
    assert_close(look_ahead(method, p, 1) - p.detach(), -0.1 * torch.tensor([[3.0, 4.0]]).double() / 12.5**0.5)
    method, p = stepped(NesterovAdam(eps=1e-12), [[3.0, 4.0]])
    assert_close(look_ahead(method, p, 1) - p.detach(), torch.tensor([[-0.1, -0.1]]).double())


def test_adopts_momentum_has_its_scale_already() -> None:
    method, p = stepped(adopt(0.5, eps=1e-12), [[2.0], [2.0]])  # normalised by 2: u = .5
    assert (look_ahead(method, p, 2) - p.detach()).item() == pytest.approx(-2 * 0.1 * 0.5)


@pytest.mark.parametrize(
    "rule", [sgdm(0.9), adam(), ada_sgd(), NesterovAdam(), adopt()], ids=lambda r: type(r).__name__
)
def test_nothing_is_ahead_of_no_delay_or_of_the_first_step(rule: UpdateRule) -> None:
    method, p = stepped(rule, [[1.0, -2.0], [3.0, 0.5]])
    assert torch.equal(look_ahead(method, p, 0), p)
    fresh = DDP([p], 0.1, rule, worker_axis=True)
    assert torch.equal(look_ahead(fresh, p, 5), p)


def test_a_parameter_without_a_worker_axis_keeps_its_shape() -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    method = DDP([p], 0.1, sgdm(0.5))
    p.grad = torch.ones(3)
    method.step()
    assert_close(look_ahead(method, p, 2), torch.full((3,), -0.3))


@pytest.mark.parametrize(
    "rule", [lion(), sgdm(), multi_momentum_rule("adam", (0.9,), (0.5,))], ids=["lion", "sgd", "qh"]
)
def test_a_rule_without_just_one_momentum_is_refused(rule: UpdateRule) -> None:
    method, p = stepped(rule, [[1.0]])
    with pytest.raises(SpecError, match=r"^method\.remedy: got 'look-ahead'; expected .* a rule with one momentum"):
        look_ahead(method, p, 1)


def test_a_prediction_takes_part_in_the_next_forward_pass() -> None:
    """SGD with momentum .5 on x^2 / 2, delay 1, by hand: the gradient of step t is of the prediction at t - 1."""
    task = bowl()
    method = ddp(task, sgdm(0.5))
    late = DelayedTask(task, {"x": 1}, lambda name, x: look_ahead(method, task.params[name], 1))
    got = path(late, method, 3)
    x, u, seen = [1.0], 0.0, []
    for t in range(3):
        seen.append(x[t] - 0.1 * u)
        u = 0.5 * u + seen[max(t - 1, 0)]
        x.append(x[t] - 0.1 * u)
    assert got == pytest.approx(x, rel=1e-12)


# What must hold of every method.


@pytest.mark.parametrize("name", METHODS)
def test_a_delay_of_zero_is_the_method_bit_for_bit(name: str) -> None:
    paths = []
    for late in (False, True):
        comm = SimulatedCommunicator(1)
        task = BOWLS.build(rows_of(comm, (0,)))
        method = METHODS[name].spec.build(parameter_groups(task), comm)
        played = DelayedTask(task, dict.fromkeys(task.params, 0)) if late else task
        for t in range(12):
            played.step_gradients(t)
            method.step()
        paths.append({key: p.detach() for key, p in task.params.items()})
    for key, p in paths[0].items():
        assert torch.equal(p, paths[1][key])
