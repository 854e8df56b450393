"""Measures of Lion along a training: they look, and change nothing."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from syncline.methods import DDP
from syncline.optim import adam, lion
from syncline.optim.measures import VOTES, MomentumSpread, UpdateVectors, Watch, largest_spread
from tests.optim.given import Given, gradients, lion_cub

STEPS = gradients(6, 4, (6, 5), (7,))


def watched(build, every: int = 2) -> tuple[Given, Watch]:
    given, watch = Given(build, STEPS), Watch([UpdateVectors(), MomentumSpread()], every)
    for t, step in enumerate(STEPS):
        for p, g in zip(given.params, step, strict=True):
            p.grad = g.clone()
        watch.before_step(given.method, t)
        given.method.step()
        given.path.append([p.detach().clone() for p in given.params])
        watch.after_step(given.method, t)
    return given, watch


def test_a_training_that_is_watched_is_the_same() -> None:
    plain = Given(partial(lion_cub, lr=0.1), STEPS).run()
    given, watch = watched(partial(lion_cub, lr=0.1))
    for one, other in zip(given.path, plain.path, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
    assert given.records == plain.records
    values = watch.values([3])
    assert {one.seed for one in values} == {3} and {one.step for one in values} == {2, 4, 6}
    rates = {one.measure: one.value for one in values if one.step == 6 and not one.layer}
    for vote in VOTES:
        assert sum(rates[f"{rate}: {vote}"] for rate in ("match", "flip", "zero")) == pytest.approx(1)
    spread = {one.layer: one.value for one in values if one.step == 6 and one.measure == "largest_spread"}
    assert spread == {str(i): pytest.approx(float(largest_spread(given.state(i, "momentum_1")))) for i in range(2)}


def test_workers_that_share_gradients_have_no_spread_and_what_is_not_lion_no_votes() -> None:
    _, together = watched(partial(DDP, lr=0.1, rule=lion()))
    values = together.values([0])
    assert {one.value for one in values if one.measure.endswith("spread")} == {0.0}
    assert any(one.measure == "match: one bit" for one in values)
    _, other = watched(partial(DDP, lr=0.1, rule=adam()))
    assert not [one for one in other.values([0]) if ":" in one.measure]
