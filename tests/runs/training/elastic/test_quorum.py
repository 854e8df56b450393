"""Rounds of a few, quorums with grace and weights by tokens: the papers' loops, written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from syncline.errors import SpecError
from syncline.runs.training.train_and_time import train_method
from syncline.specs import RunSpec, validate
from tests.runs.training.elastic.late import DDP, DILOCO, LOCAL_SGD, SHARED, gradient_of, loss_at, spec_of

SLOW = {"network": {"latency": 0, "bandwidth": "100 Tbit/s"}, "seeds": [0], "eval_every": 0}


def stepped(spec: RunSpec, worker: int, made: list[int], x: torch.Tensor, steps: int, lr: float) -> torch.Tensor:
    """A worker's local steps of SGD from x."""
    x = x.clone()
    for _ in range(steps):
        x = x - lr * gradient_of(spec, worker, made[worker], x)
        made[worker] += 1
    return x


def test_federated_averaging_is_its_loop() -> None:
    """Algorithm 1 of McMahan et al.: of a set S_t of m clients, ``w <- sum over S_t of (n_k / n) w_k``.

    Clients make as many steps as their speed allows them (E of their own), so their n_k differ.
    """
    method = LOCAL_SGD | {"period": 4, "lr": 0.05}
    how = {
        "participants": 3,
        "buffer_size": 3,
        "synchronous": True,
        "update_weights": "tokens",
        "dynamic_local_updates": True,
    }
    spec = spec_of(method, how, workers=5, steps=12, speeds=[1.0, 0.5, 0.75, 1.0, 0.25], **SLOW)
    out = train_method(spec, spec.method)
    assert out.asynchronous is not None
    x, made = spec.problem.start_of(0).to(torch.float64), [0] * 5
    rounds: dict[int, list[Any]] = {}
    for one in out.asynchronous.result.contributions:
        rounds.setdefault(one.version, []).append(one)
    assert len({frozenset(one.worker for one in each) for each in rounds.values()}) > 3
    for each in rounds.values():
        n = sum(one.steps for one in each)
        ends = {one.worker: stepped(spec, one.worker, made, x, one.steps, 0.05) for one in each}
        x = sum((one.steps / n * ends[one.worker] for one in each), torch.zeros_like(x))
    assert out.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, x), rel=1e-6)


def test_decoupled_diloco_is_its_loop() -> None:
    """Learners go on for themselves; the syncer waits for K of them and for its grace, and merges

        w_m = tokens_m (tokens_m / steps_m),  D = sum w_m (Theta - theta_m) / sum w_m,  Theta <- Nesterov(Theta, D).

    Batches are alike, so a learner's tokens are its steps; the slow ones make fewer.
    """
    seconds, local, k, grace, lr = [1.0, 1.1, 1.6, 5.0], [4, 3, 2, 1], 2, 0.7, 0.05
    method = LOCAL_SGD | {"period": 4, "lr": lr, "outer_lr": 0.6, "outer_momentum": 0.5}
    how = {
        "buffer_size": k,
        "synchronous": True,
        "grace_period": grace,
        "update_weights": "token-rate",
        "reference": "server",
        "dynamic_local_updates": True,
    }
    spec = spec_of(method, how, steps=20, speeds=[1 / s for s in seconds], **SLOW)
    out = train_method(spec, spec.method)
    assert out.asynchronous is not None

    theta = torch.nn.Parameter(spec.problem.start_of(0).to(torch.float64))
    outer = torch.optim.SGD([theta], lr=0.6, momentum=0.5, nesterov=True)
    made, left, begins = [0] * 4, 80, [theta.detach().clone()] * 4
    ready, granted = [math.inf] * 4, [0] * 4

    def go(m: int, now_s: float) -> None:
        nonlocal left
        granted[m] = min(local[m], left)
        left -= granted[m]
        begins[m] = theta.detach().clone()
        ready[m] = now_s + granted[m] * seconds[m] if granted[m] else math.inf

    for m in range(4):
        go(m, 0.0)
    expected: list[tuple[int, int]] = []
    while min(ready) < math.inf:
        quorum_s = sorted(ready)[min(k, sum(one < math.inf for one in ready)) - 1]
        late = max(one for one in ready if one <= quorum_s + grace)
        merged = sorted((m for m in range(4) if ready[m] <= quorum_s + grace), key=lambda m: (ready[m], m))
        everybody = len(merged) == sum(one < math.inf for one in ready)
        now_s = late if everybody else quorum_s + grace
        weights = [granted[m] * granted[m] / granted[m] for m in merged]
        ends = [stepped(spec, m, made, begins[m], granted[m], lr) for m in merged]
        pairs = zip(weights, ends, strict=True)
        theta.grad = sum((w * (theta.detach() - end) for w, end in pairs), torch.zeros(3).double()) / sum(weights)
        outer.step()
        expected += [(m, granted[m]) for m in merged]
        for m in merged:
            go(m, now_s)
    assert [(one.worker, one.steps) for one in out.asynchronous.result.contributions] == expected
    assert max(one.age for one in out.asynchronous.result.contributions) > 0
    assert out.history.last_evaluation()["loss"][0] == pytest.approx(loss_at(spec, theta.detach()), rel=1e-6)


def test_token_rate_is_tokens_squared_by_steps() -> None:
    method = DILOCO | {"asynchronous": {"buffer_size": 2, "update_weights": "token-rate"}}
    how = spec_of(method).method.asynchronous  # type: ignore[attr-defined]
    assert how.share(6, 32.0) == (6 * 32.0) * (6 * 32.0) / 6


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"method": DILOCO | {"asynchronous": {"participants": 5}}}, "participants: got 5; expected at most 4, the w"),
        (
            {"method": DILOCO | {"asynchronous": {"participants": 2, "buffer_size": 3, "synchronous": True}}},
            "asynchronous.buffer_size: got 3; expected at most 2, the participants, which wait until it is full",
        ),
        ({"method": DILOCO | {"asynchronous": {"update_weights": "tokens"}}}, "weights: got 'tokens'; expected equal"),
        ({"method": DDP | {"asynchronous": {"reference": "server"}}}, "reference: got 'server'; expected worker"),
        ({"method": DILOCO | {"asynchronous": {"grace_period": -1}}}, "grace_period: got -1"),
        (
            {"method": DILOCO | {"asynchronous": {"buffer_size": 2, "momentum": "delayed", "grace_period": "1 s"}}},
            "grace_period: got 1.0; expected 0 with delayed",
        ),
    ],
)
def test_what_cannot_be_is_told_in_one_line(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError, match=line) as told:
        validate(RunSpec, SHARED | fields)
    assert "\n" not in str(told.value)
