"""SelSync's trigger by hand, its method from its algorithm, and both in their limits."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import DDP, CurvaDion, Dion, Local, SelSync, SelSyncDion, method_of
from syncline.optim import GradientChange, sgdm
from syncline.optim.base import ParamRow
from tests.optim.given import assert_same, gradients, run

M, LR, T = 3, 0.1, 24
RULE = sgdm()


def layer(gradient: list[list[float]], trigger: GradientChange) -> ParamRow:
    """Two workers with a vector each."""
    g = torch.tensor(gradient, dtype=torch.float64)
    return ParamRow(torch.zeros_like(g), g, dict(trigger.init(g)), {}, RULE, 0)


def test_the_change_is_of_the_whole_gradients_square() -> None:
    """Squares 25 + 0 and 4 + 5 first, then 25 + 25 and 4 + 5: changes 1 and 0, smoothed by a half 1/2 and 0."""
    for smoothing, expected in ((1.0, [1.0, 0.0]), (0.5, [0.5, 0.0])):
        trigger = GradientChange(0.1, smoothing)
        rows = [layer([[3.0, 4.0], [2.0, 0.0]], trigger), layer([[0.0, 0.0], [1.0, 2.0]], trigger)]
        assert trigger.change(rows).tolist() == [math.inf, math.inf]
        later = rows[1]._replace(g=torch.tensor([[3.0, -4.0], [2.0, 1.0]]).double())
        assert trigger.change([rows[0], later]).tolist() == expected


def test_smoothing_follows_its_recursion() -> None:
    trigger, draws = GradientChange(0.1, 0.3), [2.0, 1.0, 4.0, 3.0]
    row, smoothed = layer([[draws[0]], [1.0]], trigger), draws[0] ** 2
    trigger.change([row])
    for draw in draws[1:]:
        got = trigger.change([row._replace(g=torch.tensor([[draw], [1.0]]).double())])
        before, smoothed = smoothed, 0.7 * smoothed + 0.3 * draw**2
        torch.testing.assert_close(got, torch.tensor([abs(smoothed - before) / before, 0.0]).double())


def test_one_worker_at_the_threshold_is_enough() -> None:
    """At or above; four bytes travel, one number is read back."""
    for threshold, fires in ((2.99, True), (3.0, True), (3.01, False), (math.inf, False), (0.0, True)):
        trigger, comm = GradientChange(threshold, 1.0), SimulatedCommunicator(2)
        row = layer([[3.0], [5.0]], trigger)
        assert trigger.fires([row], comm, 0) is (threshold < math.inf)
        assert trigger.fires([row._replace(g=torch.tensor([[3.0], [10.0]]).double())], comm, 1) is fires
        assert [(r.payload_bytes, r.label) for r in comm.ledger.records] == [(4, "trigger")] * 2
        assert comm.ledger.readbacks.total() == 2


def test_a_gradient_of_zeros_does_not_divide_by_zero() -> None:
    trigger = GradientChange(0.1, 1.0)
    row = layer([[0.0], [0.0]], trigger)
    trigger.change([row])
    assert trigger.change([row]).tolist() == [0.0, 0.0]
    assert bool((trigger.change([row._replace(g=row.g + 1)]) > 1e20).all())


@pytest.mark.parametrize(
    "build",
    [SelSync, partial(SelSync, aggregation="gradients"), SelSyncDion, CurvaDion],
    ids=["parameters", "gradients", "dion", "curvadion"],
)
def test_a_step_without_any_gradient_sends_nothing_whatever_the_last_step_did(build: partial) -> None:
    x = torch.nn.Parameter(torch.zeros(M, 4, 3))
    method = build([x], LR, comm=SimulatedCommunicator(M), worker_axis=True)
    x.grad = torch.ones_like(x)
    method.step()  # the first gradient makes every trigger fire
    num_calls = len(method.comm.ledger)
    x.grad = None
    method.step()
    assert len(method.comm.ledger) == num_calls > 0
    assert not method.trace()["averaged"].any()
    assert method.buffer_sync(1) != "mean"


@pytest.mark.parametrize("aggregation", ["parameters", "gradients"])
def test_selsync_from_its_algorithm(aggregation: str) -> None:
    """SGD with momentum in plain loops: some steps fire, some do not."""
    given, smoothing, threshold, beta = gradients(T, M, (4,), (2, 3)), 0.4, 0.35, 0.9
    build = partial(SelSync, lr=LR, rule=sgdm(beta), threshold=threshold, smoothing=smoothing, aggregation=aggregation)
    got = run(build, given)
    x, u = ([torch.zeros(10).double() for _ in range(M)] for _ in range(2))
    smoothed: list[float] = []
    fired = []
    for t, step in enumerate(given):
        g = [torch.cat([part[m].flatten() for part in step]) for m in range(M)]
        squares = [float((one**2).sum()) for one in g]
        last, smoothed = (
            smoothed,
            [
                square if t == 0 else (1 - smoothing) * smoothed[m] + smoothing * square
                for m, square in enumerate(squares)
            ],
        )
        fires = t == 0 or max(abs(smoothed[m] - last[m]) / last[m] for m in range(M)) >= threshold
        if fires and aggregation == "gradients":
            g = [sum(g, torch.zeros(10).double()) / M] * M
        for m in range(M):
            u[m] = beta * u[m] + g[m]
            x[m] = x[m] - LR * u[m]
        if fires and aggregation == "parameters":
            x = [sum(x, torch.zeros(10).double()) / M] * M
        fired.append(fires)
        for m in range(M):
            at = torch.cat([p[m].flatten() for p in got.path[t]])
            torch.testing.assert_close(at, x[m], rtol=1e-9, atol=1e-12)
    assert 3 < sum(fired) < T - 3
    label = "params" if aggregation == "parameters" else "gradient"
    assert [r.step for r in got.records if r.label == label] == [t for t, fires in enumerate(fired) if fires]


def test_a_threshold_of_zero_is_averaging_in_every_step() -> None:
    given = gradients(8, M, (6, 4), (5,))
    adam = {"rule": "adam", "lr": LR}
    assert_same(
        run(partial(SelSync, threshold=0.0, aggregation="gradients", **adam), given), run(partial(DDP, **adam), given)
    )
    # SGD has no states that would stay at home.
    local = run(partial(Local, lr=LR, rule=sgdm(), period=1), given)
    assert_same(run(partial(SelSync, lr=LR, rule=sgdm(), threshold=0.0), given), local)


def test_an_infinite_threshold_never_averages() -> None:
    given = gradients(8, M, (4,))
    got = run(partial(SelSync, lr=LR, rule="adam", threshold=math.inf), given)
    assert {r.label for r in got.records} == {"trigger"}
    assert_same(got, run(partial(Local, lr=LR, rule="adam", period=100), given))


def test_on_dion_the_limits_are_curvadions() -> None:
    given = gradients(8, M, (6, 4), (5,))
    every = run(partial(SelSyncDion, lr=LR, threshold=0.0), given)
    assert_same(every, run(partial(Dion, lr=LR), given))
    never = run(partial(SelSyncDion, lr=LR, threshold=math.inf), given)
    curvadion = run(partial(CurvaDion, lr=LR, threshold=1e9), [given[0]])
    assert {r.label for r in never.records} == {"trigger"} and len(curvadion.records) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GradientChange(-1.0), "threshold: got -1.0; expected a number >= 0"),
        (lambda: GradientChange(0.1, 0.0), "smoothing: got 0.0; expected a number in"),
        (lambda: method_of({"kind": "selsync", "lr": 1, "smoothing": 0}), "smoothing: got 0; expected greater than 0"),
        (
            lambda: method_of({"kind": "selsync", "lr": 1, "aggregation": "x"}),
            "aggregation: got 'x'; expected 'parameters",
        ),
    ],
)
def test_misuse_is_one_helpful_line(call, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
