"""0/1 Adam against literal derivations, its schedule, and its limits."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from syncline.comm import SimulatedCommunicator
from syncline.costmodel import TensorShape, calls_at
from syncline.errors import SpecError
from syncline.methods import DDP, ZeroOneAdam, method_of
from syncline.optim import Method, adam
from syncline.optim.zero_one_adam import ZeroOneSchedule
from tests.optim.given import Given, assert_same, gaussian, gradients, run
from tests.optim.test_one_bit import LiteralMean

M, LR, BETA1, BETA2, EPS = 3, 0.1, 0.9, 0.99, 1e-2
KNOBS = {"lr": LR, "beta1": BETA1, "beta2": BETA2, "eps": EPS}
ALWAYS = {"freeze_step": 1000, "kappa": 1000}
SOON = {"freeze_step": 4, "kappa": 2, "double_every": 3, "max_interval": 4}


def zero_one(**options) -> partial[Method]:
    return partial(ZeroOneAdam, **{**KNOBS, **options})


def refreshes(kappa: int, freeze_step: int) -> list[int]:
    """The published recursion: the gap after the j-th refresh is 2^floor(j / kappa)."""
    steps, step, j = [], 0, 0
    while step < freeze_step:
        steps.append(step)
        step, j = step + 2 ** (j // kappa), j + 1
    return steps


def literal(
    given: list[list[Tensor]], rates: list[float], schedule: dict[str, int], *, variant: str, published: bool
) -> list[list[np.ndarray]]:
    """Every worker's positions of one vector after every step, with loops over the workers, without bias correction.

    ``published`` compresses the accumulated update itself, else its mean momentum.
    """
    workers, count = given[0][0].shape
    at, freeze = refreshes(schedule["kappa"], schedule["freeze_step"]), schedule["freeze_step"]
    x, m, u = ([np.zeros(count) for _ in range(workers)] for _ in range(3))
    v, anchor, rate_sum, interval = np.zeros(count), np.zeros(count), 0.0, 1
    mean, path = LiteralMean(count, workers, "rms"), []
    for t, ((g,), rate) in enumerate(zip(given, rates, strict=True)):
        own = [g[i].numpy() for i in range(workers)]
        average = sum(own) / workers
        if t in at:
            v = BETA2 * v + (1 - BETA2) * average**2
            if variant == "merged":
                own = [average] * workers
        rate_sum += rate
        for i in range(workers):
            m[i] = BETA1 * m[i] + (1 - BETA1) * own[i]
            x[i] = x[i] - rate * m[i] / (np.sqrt(v) + EPS)
            u[i] = u[i] + rate * m[i]
        if t > freeze and (t - freeze) % schedule["double_every"] == 0:
            interval = min(2 * interval, schedule["max_interval"])
        if variant == "merged" and t in at:
            anchor, u, rate_sum = x[0], [np.zeros(count)] * workers, 0.0
        elif (t + 1) % interval == 0:
            update = mean.mean(u) if published else rate_sum * mean.mean([u_i / rate_sum for u_i in u])
            anchor = anchor - update / (np.sqrt(v) + EPS)
            x, m = [anchor] * workers, [update / rate_sum] * workers
            u, rate_sum = [np.zeros(count)] * workers, 0.0
        path.append(list(x))
    return path


def stepped(options: dict, given: list[list[Tensor]], rates: list[float]) -> Given:
    """A run whose learning rate changes from step to step."""
    got = Given(zero_one(bias_correction=False, **options), given)
    for t, rate in enumerate(rates):
        for group in got.method.param_groups:
            group["lr"] = rate
        got.run(t, t + 1)
    return got


def assert_path(got: Given, expected: list[list[np.ndarray]]) -> None:
    for positions, everyone in zip(got.path, expected, strict=True):
        np.testing.assert_allclose(positions[0].numpy(), np.stack(everyone), atol=1e-11)


@pytest.mark.parametrize("variant", ["paper", "merged"])
def test_zero_one_adam_from_its_formula(variant: str) -> None:
    """Through refreshes of the scaling, growing intervals and a changing learning rate."""
    given = gradients(24, M, (11,))
    rates = [LR * (0.3 + 0.7 * abs(np.sin(t))) for t in range(24)]
    expected = literal(given, rates, SOON, variant=variant, published=False)
    assert_path(stepped({**SOON, "variant": variant}, given, rates), expected)


def test_the_published_algorithm_where_rate_and_interval_stay() -> None:
    """What is owed as an update is then the learning rate times what is owed as a momentum."""
    given, schedule = gradients(16, M, (11,)), {**SOON, "max_interval": 1}
    got = stepped({**schedule, "variant": "paper"}, given, [LR] * 16)
    assert_path(got, literal(given, [LR] * 16, schedule, variant="paper", published=True))


def test_the_published_algorithm_where_nothing_is_owed() -> None:
    """A vector of one number compresses exactly: any learning rate, any interval."""
    given, rates = gradients(24, M, (1,)), [LR / (1 + t) for t in range(24)]
    got = stepped({**SOON, "variant": "paper"}, given, rates)
    assert_path(got, literal(given, rates, SOON, variant="paper", published=True))


@given(st.integers(1, 20), st.integers(1, 300), st.integers(1, 40), st.integers(1, 33))
def test_the_schedule_is_the_published_recursion(kappa: int, freeze: int, double_every: int, longest: int) -> None:
    schedule = ZeroOneSchedule(freeze, kappa, double_every, longest, "paper")
    steps, at, interval = 400, refreshes(kappa, freeze), 1
    assert [t for t in range(steps) if schedule.updates_second_moment(t)] == at
    assert [schedule.num_second_moment_updates(t) for t in range(steps)] == [
        sum(k <= t for k in at) for t in range(steps)
    ]
    for t in range(steps):
        if t > freeze and (t - freeze) % double_every == 0:
            interval = min(2 * interval, longest)
        assert schedule.interval(t) == interval
        assert schedule.states_due(t) == (("params",) if (t + 1) % interval == 0 else ())


@given(
    st.integers(1, 12), st.integers(1, 90), st.integers(1, 20), st.integers(1, 20), st.sampled_from(["paper", "merged"])
)
def test_the_closed_form_follows_the_schedule(kappa: int, freeze: int, double: int, longest: int, variant: str) -> None:
    """The exchanges of the spec, step by step, are what the schedule says."""
    knobs = {"freeze_step": freeze, "kappa": kappa, "double_every": double, "max_interval": longest, "variant": variant}
    exchanges = method_of({"kind": "zero-one-adam", "lr": 0.1, **knobs}).exchanges([TensorShape("w", (33,))], 4)
    schedule = ZeroOneSchedule(freeze, kappa, double, longest, variant)  # type: ignore[arg-type]
    for t in range(120):
        expected = [("all_reduce", 132.0)] if schedule.updates_second_moment(t) else []
        if "params" in schedule.states_due(t):
            expected += [("all_to_all", 4 * (2 + 4.0)), ("all_gather", 2 + 4.0)]
        assert [(c.collective, c.payload_bytes) for c in calls_at(exchanges, t)] == expected


@pytest.mark.parametrize("variant", ["paper", "merged"])
def test_numbers_on_their_own_refreshed_in_every_step_are_adam(variant: str) -> None:
    """A parameter of one number compresses exactly, and averaging momenta is averaging gradients."""
    given = gradients(10, M, (), (1,))
    got = run(zero_one(**ALWAYS, variant=variant, weight_decay=0.1), given)
    whole = run(partial(DDP, lr=LR, rule=adam(BETA1, BETA2, EPS), weight_decay=0.1), given)
    assert_same(got, whole)
    torch.testing.assert_close(got.state(0, "second_moment"), whole.state(0, "second_moment"))


def test_refreshing_in_every_step_is_adam_in_the_merged_form() -> None:
    given = gradients(8, M, (4, 3), (7,))
    got = run(zero_one(**ALWAYS, variant="merged", clip_norm=0.5), given)
    assert_same(got, run(partial(DDP, lr=LR, rule=adam(BETA1, BETA2, EPS), clip_norm=0.5), given))


def apart(params: list[torch.nn.Parameter], **options: Any) -> Method:
    """Workers that never average."""
    method = ZeroOneAdam(params, **options)
    method.average_states = lambda rows, names: None  # type: ignore[method-assign]
    return method


def test_averaging_leads_to_the_mean_of_where_the_workers_are() -> None:
    """Numbers on their own, so that signs are exact: the interval of steps 4 to 7, with weight decay."""
    given, knobs = gradients(8, M, (), (1,)), {"freeze_step": 1, "double_every": 1, "max_interval": 4}
    got = Given(zero_one(**knobs, weight_decay=0.3), given).run(0, 4)
    alone = Given(partial(apart, **KNOBS, **knobs, weight_decay=0.3), given, [p.detach() for p in got.params])
    alone.method.load_state_dict(copy.deepcopy(got.method.state_dict()))
    got.run(4, 8)
    alone.run(4, 8)
    for met, own in zip(got.path[-1], alone.path[-1], strict=True):
        assert own.std() > 1e-3
        torch.testing.assert_close(met, own.mean(0, keepdim=True).expand_as(own), rtol=0, atol=1e-12)


def test_workers_meet_exactly_and_part_between() -> None:
    given = gradients(16, M, (5, 3), (7,))
    got, schedule = run(zero_one(**SOON), given), ZeroOneSchedule(**SOON, variant="merged")
    for t, positions in enumerate(got.path):
        together = all(torch.equal(x, x[:1].expand_as(x)) for x in positions)
        assert together == (schedule.states_due(t) != ())


@pytest.mark.parametrize("kind", ["zero-one-adam", "one-bit-adam"])
@pytest.mark.parametrize("workers", [1, 4])
def test_a_worker_keeps_as_many_numbers_as_the_spec_says(kind: str, workers: int) -> None:
    """Errors of owners shrink with the group; chunks are padded."""
    shapes, spec = [(5, 3), (7,), (1,)], method_of({"kind": kind, "lr": LR})
    got = run(lambda params, **options: spec.build(params, options["comm"]), gradients(2, workers, *shapes))
    kept = sum(tensor[0].numel() for p in got.params for tensor in got.method.state[p].values())
    assert kept == spec.kept_elements([TensorShape(str(shape), shape) for shape in shapes], workers)


def test_with_no_learning_rate_nothing_moves_and_momenta_still_meet() -> None:
    got = stepped(SOON, gradients(8, M, (6,)), [0.0] * 8)
    assert not got.params[0].detach().any()
    m = got.state(0, "momentum_1")
    assert m.isfinite().all()
    assert m.any()
    assert torch.equal(m, m[:1].expand_as(m))


def test_what_no_worker_has_a_gradient_of_stays() -> None:
    given = gradients(12, M, (6,))
    for (g,) in given:
        g[:, 2] = 0
    got = run(zero_one(**SOON, variant="paper", eps=1e-12), given)
    for (x,) in got.path:
        assert x[:, 2].eq(0).all()


def test_gradients_that_are_away_when_workers_average() -> None:
    """Workers average after steps 1, 3, 5, ...; one parameter has no gradient just then, another none after step 1.

    Single numbers are averaged exactly. The first goes to the mean with its momentum; the second stays with its own.
    """
    params = [torch.nn.Parameter(torch.zeros(M, 1, dtype=torch.float64)) for _ in range(3)]
    comm, path = SimulatedCommunicator(M), []
    options = {"freeze_step": 1, "kappa": 1, "double_every": 1, "max_interval": 2, "weight_decay": 0.1}
    method = zero_one(**options)(params, comm=comm, worker_axis=True)
    for t, step in enumerate(gradients(8, M, (1,), (1,), (1,))):
        there = (True, t % 2 == 0 or t == 1, t <= 1)
        for p, g, has in zip(params, step, there, strict=True):
            p.grad = g.clone() if has else None
        method.step()
        path.append([(p.detach().clone(), method.state[p]["momentum_1"].clone()) for p in params])
    for t in (3, 5, 7):
        for before, after in zip(path[t - 1][1], path[t][1], strict=True):
            assert not torch.equal(before, before[:1].expand_as(before))
            torch.testing.assert_close(after, before.mean(0, keepdim=True).expand_as(after))
        for one, other in zip(path[1][2], path[t][2], strict=True):
            assert torch.equal(one, other)
    assert all(torch.equal(p, p[:1].expand_as(p)) for p in params)


def test_an_ordinary_parameter_without_a_group_is_one_worker() -> None:
    p = torch.nn.Parameter(gaussian(4).float())
    optimizer = ZeroOneAdam([p], LR, freeze_step=2)
    for _ in range(6):
        p.grad = p.detach().clone()
        optimizer.step()
    assert p.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"freeze_step": 0}, "freeze_step: got 0; expected at least 1"),
        ({"freeze_step": 1, "kappa": 0}, "kappa: got 0; expected at least 1"),
        ({"freeze_step": 1, "double_every": 0}, "double_every: got 0; expected at least 1"),
        ({"freeze_step": 1, "max_interval": 0}, "max_interval: got 0; expected at least 1"),
        ({"freeze_step": 1, "variant": "book"}, "variant: got 'book'; expected 'paper', 'merged' or 'code'"),
    ],
)
def test_misuse_is_one_helpful_line(unchecked, options: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ZeroOneAdam([torch.nn.Parameter(torch.zeros(2))], LR, **options)
