"""Methods that send through a compressor: what they conserve, what they are in the limit, what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from syncline.comm import SparsePairs
from syncline.errors import SpecError
from syncline.methods import DDP, MTDAO, DiLoCo, Dion, Local
from syncline.methods.parts.method_spec import ObjectPart
from syncline.optim import (
    QSGD,
    CoefficientMean,
    CompressedMean,
    EveryStep,
    LpMean,
    Method,
    Streaming,
    TopK,
    adam,
    adopt,
    demo_rule,
    sgdm,
)
from syncline.optim.rules import largest_square_ratio
from syncline.specs import CompareSpec, load_spec
from tests.optim.given import Given, assert_same, gaussian, gradients, run

EVERYTHING = TopK(1.0, SparsePairs(32, "fp64"))
"""A compressor that leaves nothing out."""

SHAPES = ((4, 3), (5,))
STEPS = gradients(18, 4, *SHAPES)
STARTS = [gaussian(1, *shape, seed=7 + i) for i, shape in enumerate(SHAPES)]

METHODS = {
    "local sgdm": lambda p, **o: Local(p, 0.1, sgdm(0.9), 4, **o),
    "local adam": lambda p, **o: Local(p, 0.01, adam(), 4, **o),
    "mt-dao": lambda p, **o: MTDAO(p, 0.01, betas=[0.9, 0.99], omegas=[0.3, 0.6], period=4, **o),
    "diloco": lambda p, **o: DiLoCo(p, 0.01, adam(), 4, **o),
}


# Limit cases.


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("name", METHODS)
def test_a_compressor_that_leaves_nothing_out_is_no_compressor(name: str, feedback: bool) -> None:
    plain = run(METHODS[name], STEPS, STARTS)
    through = run(lambda p, **o: METHODS[name](p, compressor=ObjectPart(EVERYTHING, feedback), **o), STEPS, STARTS)
    assert_same(through, plain)


@pytest.mark.parametrize("feedback", [True, False])
def test_a_reducer_that_leaves_nothing_out_is_data_parallelism(feedback: bool) -> None:
    reducer = CompressedMean(EVERYTHING, feedback)
    assert_same(
        run(lambda p, **o: Method(p, 0.1, sgdm(0.9), EveryStep(), reducer=reducer, **o), STEPS, STARTS),
        run(lambda p, **o: DDP(p, 0.1, sgdm(0.9), **o), STEPS, STARTS),
    )


@pytest.mark.parametrize("name", ["local sgdm", "diloco"])
def test_many_bits_come_near_no_compressor(name: str) -> None:
    plain = run(METHODS[name], STEPS, STARTS)
    through = run(lambda p, **o: METHODS[name](p, compressor=LpMean(24, math.inf), **o), STEPS, STARTS)
    assert_same(through, plain, atol=1e-3)
    assert float((through.path[-1][0] - plain.path[-1][0]).abs().max()) > 0


@pytest.mark.parametrize("exchange", ["gradient", "compressed"])
def test_dion_through_many_bits_is_dion(exchange: Any) -> None:
    steps = gradients(6, 4, (12, 10), (5,))

    def dion(params: Any, **options: Any) -> Dion:
        return Dion(params, 0.01, rank_fraction=0.2, exchange=exchange, **options)

    through = run(lambda p, **o: dion(p, compressor=LpMean(24, math.inf), **o), steps)
    plain = run(dion, steps)
    for got, expected in zip(through.path[-1], plain.path[-1], strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=2e-4)
    kept = {"error"} & set(through.method.state[through.params[0]])
    assert bool(kept) == (exchange == "gradient")  # factors keep no error: what they leave out is in the momentum


# Error feedback.


@pytest.mark.parametrize("compressor", [TopK(0.2, SparsePairs(32, "fp64")), LpMean(), LpMean(4, math.inf)], ids=repr)
def test_what_arrived_and_what_is_owed_are_all_gradients(compressor: Any) -> None:
    """SGD with learning rate 1: the way from the start is the sum of what arrived."""
    reducer = CompressedMean(compressor)
    got = run(lambda p, **o: Method(p, 1.0, sgdm(), EveryStep(), reducer=reducer, **o), STEPS)
    for i, x in enumerate(got.params):
        owed = got.state(i, "error").mean(0)
        total = torch.stack([step[i] for step in STEPS]).sum(0).mean(0)
        torch.testing.assert_close(-x[0].detach() + owed, total, rtol=1e-9, atol=1e-9)
        assert float(owed.abs().max()) > 0.01


def test_without_feedback_what_is_left_out_is_lost() -> None:
    got = run(lambda p, **o: Method(p, 1.0, sgdm(), EveryStep(), reducer=CompressedMean(TopK(0.2), False), **o), STEPS)
    assert all("error" not in got.method.state[p] for p in got.params)
    total = torch.stack([step[0] for step in STEPS]).sum(0).mean(0)
    assert float((-got.params[0][0].detach() - total).abs().max()) > 0.1


@pytest.mark.parametrize("compressor", [TopK(0.2, SparsePairs(32, "fp64")), LpMean()], ids=repr)
def test_reference_and_error_are_what_a_plain_average_would_be(compressor: Any) -> None:
    """After each average of Local SGD: ``Z_ref + mean e`` is the mean of what the workers had, and what they owed."""
    given = Given(lambda p, **o: Local(p, 0.1, sgdm(), 3, compressor=compressor, **o), STEPS, STARTS)
    for t in range(9):
        before = [p.detach().clone() for p in given.params]
        owed = [given.method.state[p].get("error_params", torch.zeros_like(p)).clone() for p in given.params]
        given.run(t, t + 1)
        for i, p in enumerate(given.params):
            plain = (before[i] - 0.1 * STEPS[t][i] + owed[i]).mean(0)
            if (t + 1) % 3 == 0:
                reference, error = given.state(i, "reference_params"), given.state(i, "error_params")
                assert torch.equal(reference, reference[:1].expand_as(reference)) and torch.equal(p, reference)
                torch.testing.assert_close(reference[0] + error.mean(0), plain, rtol=1e-10, atol=1e-12)


def test_local_sgd_through_top_k_by_hand() -> None:
    """Two workers, two coordinates, one of them is sent per average."""
    steps = [[torch.tensor([[1.0, 3.0], [2.0, 0.5]]).double()], [torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double()]]
    got = run(lambda p, **o: Local(p, 1.0, sgdm(), 1, compressor=TopK(0.5), **o), steps)
    # deltas (-1, -3) and (-2, -0.5): -3 and -2 arrive, halved, and (-1, 0), (0, -0.5) are owed.
    assert got.path[0][0].tolist() == [[-1.0, -1.5]] * 2
    # deltas (-1, 0) and (0, -1), with what is owed (-2, 0) and (0, -1.5): all of it arrives.
    assert got.path[1][0].tolist() == [[-2.0, -2.25]] * 2
    assert got.state(0, "error_params").tolist() == [[0.0, 0.0]] * 2


def test_diloco_through_top_k_by_hand() -> None:
    """An outer step of learning rate 1 without momentum adopts start minus what arrives; the rest is owed."""
    steps = [[torch.tensor([[1.0, 3.0], [2.0, 0.5]]).double()]]
    build = {"period": 1, "outer_lr": 1.0, "outer_momentum": 0.0, "compressor": TopK(0.5)}
    got = run(lambda p, **o: DiLoCo(p, 1.0, sgdm(), **build, **o), steps)
    assert got.path[0][0].tolist() == [[-1.0, -1.5]] * 2
    assert got.state(0, "error_params").tolist() == [[1.0, 0.0], [0.0, 0.5]]
    assert "reference_params" not in got.method.state[got.params[0]]


# Second moments.


@pytest.mark.parametrize("compressor", [TopK(0.1), LpMean(), LpMean(4, math.inf), QSGD(3)], ids=repr)
def test_a_second_moment_is_not_small_beside_a_momentum(compressor: Any) -> None:
    """By more than a history can put between them; no coordinate of which little arrived leaps by ``u / eps``."""
    scales = torch.logspace(-4, 0, 12, dtype=torch.float64)
    steps = [[gaussian(4, 12, seed=t) * scales] for t in range(24)]
    feedback = not isinstance(compressor, QSGD)
    build = {"compressor": ObjectPart(compressor, feedback)}
    given = Given(lambda p, **o: Local(p, 0.01, adam(0.9, 0.99), 4, **build, **o), steps)
    for t in range(24):
        given.run(t, t + 1)
        v, u = given.state(0, "second_moment"), given.state(0, "momentum_1")
        if (t + 1) % 4 == 0:
            assert bool((v >= u.square() / largest_square_ratio(0.9, 0.99, t) * (1 - 1e-9)).all())
            assert torch.equal(v, v[:1].expand_as(v))
    furthest = max(float(x[0].abs().max()) for x in given.path)
    assert furthest < 0.01 * 24 * largest_square_ratio(0.9, 0.99, 24) ** 0.5  # a leap would be 1e4 and more


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.999), (0.9, 0.9), (0.5, 0.9), (0.0, 0.99), (0.99, 0.9)])
@pytest.mark.parametrize("steps", [1, 3, 50])
def test_no_history_undercuts_the_bound_and_the_worst_one_attains_it(beta1: float, beta2: float, steps: int) -> None:
    i = torch.arange(steps, dtype=torch.float64)
    a, b = (1 - beta1) * beta1**i, (1 - beta2) * beta2**i
    bound = largest_square_ratio(beta1, beta2, steps - 1)
    worst = a / b  # where Cauchy-Schwarz is an equality
    attained = float((a @ worst) ** 2 / (b @ worst.square()))
    if beta1**2 < beta2:
        assert attained == pytest.approx(bound, rel=1e-9)
        for seed in range(20):
            g = gaussian(steps, seed=seed)
            assert float((a @ g) ** 2 / (b @ g.square())) <= bound * (1 + 1e-12)
    else:
        assert bound == pytest.approx(1 / (1 - beta2))


def test_adopt_s_second_moment_is_not_negative() -> None:
    steps = gradients(12, 4, (6, 5))
    got = run(lambda p, **o: Local(p, 0.01, adopt(), 3, compressor=LpMean(4, math.inf), **o), steps)
    assert float(got.state(0, "second_moment").min()) >= 0


# DeMo with a period.


def test_demo_that_rests_moves_by_what_it_gathered() -> None:
    steps = gradients(7, 3, (4, 4))
    demo = CoefficientMean(k=16, chunk=4, beta=0.5, basis="identity", pairs=SparsePairs(32, "fp64"), period=3)
    got = run(
        lambda p, **o: Method(p, 1.0, demo_rule("sgd"), EveryStep(), reducer=demo, weight_decay=0.1, **o),
        steps,
        [torch.ones(1, 4, 4).double()],
    )
    g = [step[0].mean(0) for step in steps]
    first = 0.25 * g[0] + 0.5 * g[1] + g[2]  # all of it is sent, so that the next begins at zero
    second = 0.25 * g[3] + 0.5 * g[4] + g[5]
    expected = [torch.ones(4, 4).double()] * 2
    expected += [expected[-1] * 0.9 - first] * 3
    expected += [expected[-1] * 0.9 - second] * 2
    for (x,), y in zip(got.path, expected, strict=True):
        torch.testing.assert_close(x, y.expand_as(x), rtol=1e-10, atol=1e-10)
    assert [record.step for record in got.records] == [2, 5]


# Refusals.


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda p, **o: Method(p, 0.1, sgdm(), EveryStep(), compressor=TopK(), **o), "compressor"),
        (lambda p, **o: Streaming(p, 0.1, sgdm(), {"params": 4}, compressor=TopK(), **o), "compressor"),
        (lambda p, **o: Local(p, 0.1, sgdm(), compressor=LpMean(2), **o), "bits"),
        (lambda p, **o: Dion(p, 0.1, exchange="compressed", compressor=TopK(), **o), "compressor.kind"),
        (
            lambda p, **o: Dion(p, 0.1, exchange="compressed", compressor=ObjectPart(QSGD(), False), **o),
            "compressor.kind",
        ),
        (lambda p, **o: Dion(p, 0.1, compressor=LpMean(2), **o), "bits"),
        (lambda p, **o: Method(p, 0.1, sgdm(), EveryStep(), reducer=CoefficientMean(period=0), **o), "period"),
    ],
)
def test_what_makes_no_sense_is_refused(build: Any, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        Given(build, STEPS)
    assert caught.value.path == field


@pytest.mark.parametrize(
    ("override", "path", "reason"),
    [
        ("methods.0={kind: mt-dao, lr: 1, compressor: lp, wire: bf16}", "methods.0.wire", "its own format"),
        ("methods.0={kind: ddp, lr: 1, compressor: {kind: qsgd, error_feedback: true}}",
         "methods.0.compressor.error_feedback", "no bias"),
        ("methods.0={kind: dion, lr: 1, exchange: compressed, compressor: top-k}",
         "methods.0.compressor.kind", "loses columns"),
        ("methods.0={kind: dion, lr: 1, exchange: compressed, compressor: qsgd}",
         "methods.0.compressor.kind", "bias"),
        ("methods.0={kind: dion, lr: 1, exchange: compressed, clip_norm: 1}", "methods.0.clip_norm", "drift apart"),
        ("methods.0={kind: streaming-mt-dao, lr: 1, compressor: lp}", "methods.0.compressor", "outdated reference"),
        ("methods.0={kind: streaming-diloco, lr: 1, compressor: lp}", "methods.0.compressor", "no such field"),
        ("methods.0={kind: local, lr: 1, compressor: topk}", "methods.0.compressor.kind", "did you mean 'top-k'"),
        ("methods.0={kind: local, lr: 1, compressor: {kind: lp, p: 0}}", "methods.0.compressor.p", "greater than 0"),
    ],
)  # fmt: skip
def test_specs_refuse_with_the_reason(override: str, path: str, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec("digits-skewed", [override], CompareSpec)
    assert caught.value.path == path and reason in str(caught.value)
