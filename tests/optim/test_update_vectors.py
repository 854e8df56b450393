"""Distributions, spreads and agreements of update vectors: against closed forms and literal loops."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from replication.studies.vote_ties.study import tie_rate
from syncline.comm import SimulatedCommunicator
from syncline.optim import sign_agreement
from syncline.optim.measures import (
    VOTES,
    largest_spread,
    lion_rows,
    relative_spread,
    vector_shape,
    vote_agreements,
)
from tests.optim.given import Given, gaussian, gradients, lion_cub

DRAWN = torch.Generator().manual_seed(5)
N = 200_000


@pytest.mark.parametrize(("kind", "mean_over_rms", "kurtosis"), [
    ("uniform", math.sqrt(3) / 2, 1.8), ("gaussian", math.sqrt(2 / math.pi), 3.0), ("laplace", math.sqrt(0.5), 6.0),
])  # fmt: skip
def test_shapes_are_those_of_the_distributions(kind: str, mean_over_rms: float, kurtosis: float) -> None:
    u = torch.rand(2, N, generator=DRAWN, dtype=torch.float64) - 0.5
    x = {
        "uniform": u,
        "gaussian": torch.randn(2, N, generator=DRAWN, dtype=torch.float64),
        "laplace": -u.sign() * torch.log1p(-2 * u.abs()),
    }[kind]
    shape = vector_shape(3.0 * x)
    assert float(shape.mean_over_rms) == pytest.approx(mean_over_rms, abs=3e-3)
    assert float(shape.kurtosis) == pytest.approx(kurtosis, rel=0.04)
    by_worker = x.abs().amax(1) / x.abs().mean(1)
    assert float(shape.largest_over_mean) == pytest.approx(float(by_worker.mean()))


def test_each_replica_has_its_own() -> None:
    x, y = gaussian(4, 6, seed=1), gaussian(4, 6, seed=2)
    both, apart = torch.cat([x, y]), (x, y)
    for of in (largest_spread, relative_spread, lambda z, s=1: vector_shape(z, s).kurtosis):
        torch.testing.assert_close(of(both, 2), torch.cat([of(one, 1) for one in apart]))


@pytest.mark.parametrize("beta", [0.9, 0.95, 0.99])
def test_momenta_spread_as_their_decay_says(beta: float) -> None:
    """Of gradients with noise of their own: the mean variance between workers is (1 - b) / (1 + b) (1 - b^2t) s^2."""
    steps, sigma, shared = 60, 0.3, 2.0
    m = torch.zeros(8, 4000, dtype=torch.float64)
    for _ in range(steps):
        m.lerp_(shared + sigma * torch.randn(m.shape, generator=DRAWN, dtype=torch.float64), 1 - beta)
    variance = (1 - beta) / (1 + beta) * (1 - beta ** (2 * steps)) * sigma**2
    mean = shared * (1 - beta**steps)
    assert float(relative_spread(m)) == pytest.approx(math.sqrt(variance) / mean, rel=0.03)
    largest = float(largest_spread(m))
    assert largest == pytest.approx(float(np.std(m.numpy(), axis=0, ddof=1).max()))
    assert 1.5 < largest / math.sqrt(variance) < 3  # the largest of 4,000


def test_a_worker_alone_has_no_spread() -> None:
    assert float(largest_spread(gaussian(1, 5))) == 0 == float(relative_spread(gaussian(1, 5)))


def rows_before(given: Given, t: int) -> list:
    """A method's rows with the gradients of step t, before it is taken."""
    for p, g in zip(given.params, given.given[t], strict=True):
        p.grad = g.clone()
    return given.method.rows()


def test_update_vectors_are_what_the_rule_makes_of_the_gradients() -> None:
    """By hand, and without changing what the training does."""
    given = Given(partial(lion_cub, lr=0.1, beta1=0.9, beta2=0.99), gradients(5, 3, (4, 5), ()))
    given.run(0, 4)
    before = [given.state(i, "momentum_1").clone() for i in range(2)]
    mixed = lion_rows(rows_before(given, 4))
    for i, row in enumerate(mixed):
        expected = 0.9 * before[i] + 0.1 * given.given[4][i]
        torch.testing.assert_close(row.g, expected, rtol=1e-12, atol=0)
        assert torch.equal(given.state(i, "momentum_1"), before[i])


def test_agreements_are_those_of_a_loop_over_workers() -> None:
    given = Given(partial(lion_cub, lr=0.1), gradients(3, 4, (6, 5), (7,)))
    given.run(0, 2)
    rows, comm = lion_rows(rows_before(given, 2)), SimulatedCommunicator(4)
    found = vote_agreements(rows, VOTES, comm, 2)
    assert len(comm.ledger) == 0 and set(found) == set(VOTES)
    c = np.concatenate([row.g.reshape(4, -1).numpy() for row in rows], 1)
    exact = c.sum(0)
    counted = np.sign(np.sign(c).sum(0))
    for rate, value in zip(("match", "flip", "zero"), found["signs"], strict=True):
        same = np.sign(exact) * counted
        share = {"match": (same > 0).mean(), "flip": (same < 0).mean(), "zero": (counted == 0).mean()}[rate]
        assert float(value) == pytest.approx(share)
    broken = np.where(counted == 0, 1, counted)  # in an even step a tie is plus
    assert float(found["one bit"].match) == pytest.approx((broken == np.sign(exact)).mean())
    levels, whole = 31, np.zeros_like(exact)
    for worker in range(4):
        parts = [row.g[worker].numpy().ravel() for row in rows]
        whole += np.concatenate(
            [np.clip(np.round(p * levels / (2 * np.abs(p).mean())), -levels, levels) for p in parts]
        )
    expected = sign_agreement(torch.tensor(whole), torch.tensor(exact))
    assert [float(x) for x in found["8 bits, L1"]] == pytest.approx([float(x) for x in expected])


def test_fair_coins_tie_as_the_closed_form_says() -> None:
    """Independent symmetric entries of four workers: signs tie as C(4, 2) / 2^4, and a tie is a zero."""
    given = Given(partial(lion_cub, lr=0.1), [[torch.randn(4, 40_000, generator=DRAWN, dtype=torch.float64)]])
    found = vote_agreements(lion_rows(rows_before(given, 0)), VOTES, SimulatedCommunicator(4), 0)
    assert float(found["signs"].zero) == pytest.approx(tie_rate(4), abs=0.01)
    assert float(found["signs"].match) == pytest.approx(0.5831, abs=0.015)  # Lion Cub, Table 3: 58.29 %
    assert found["8 bits, L1"].match > found["4 bits, L1"].match > found["signs"].match


def test_fields_too_narrow_for_the_workers_are_left_out() -> None:
    given = Given(partial(lion_cub, lr=0.1), gradients(1, 16, (6,)))
    found = vote_agreements(lion_rows(rows_before(given, 0)), VOTES, SimulatedCommunicator(16), 0)
    assert "4 bits, L1" not in found and "8 bits, L1" in found
