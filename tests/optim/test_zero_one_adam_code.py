"""0/1 Adam in its public code's form against a literal loop, written from what DeepSpeed's ``ZeroOneAdam`` does."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from syncline.costmodel import TensorShape, calls_at
from syncline.methods import ZeroOneAdam, method_of
from syncline.optim.zero_one_adam import CodeSchedule
from tests.optim.given import Given, gradients
from tests.optim.test_one_bit import LiteralMean

M, BETA1, BETA2, EPS, COUNT = 3, 0.9, 0.99, 1e-2, 11


def literal(
    given: list[list[Tensor]], rates: list[float], *, kappa: int, freeze: int, scaler: int, clipper: int, decay: float
) -> list[list[np.ndarray]]:
    """Every worker's positions after every call of ``step``, of one vector; counters as in the public code."""
    x, m, u = ([np.zeros(COUNT) for _ in range(M)] for _ in range(3))
    v, signs = np.zeros(COUNT), LiteralMean(COUNT, M, "rms")
    step = var_counter = local_counter = 0
    var_interval = local_interval = 1
    frozen, lrs, path = False, 0.0, []
    for (g,), lr in zip(given, rates, strict=True):
        own = [one.numpy() for one in g]
        step += 1
        if step == 1:  # buffers are prepared, nothing moves
            path.append(list(x))
            continue
        if not frozen:
            if step % var_interval == 0:
                mean = sum(own) / M
                v = BETA2 * v + (1 - BETA2) * mean**2
            else:
                mean = signs.mean(own)
            m = [BETA1 * one + (1 - BETA1) * mean for one in m]
        else:
            m = [BETA1 * one + (1 - BETA1) * g_i for one, g_i in zip(m, own, strict=True)]
            lrs += lr
        moves = [m_i / (np.sqrt(v) + EPS) + decay * x_i for m_i, x_i in zip(m, x, strict=True)]
        x = [x_i - lr * move for x_i, move in zip(x, moves, strict=True)]
        if frozen:
            u = [u_i - lr * move for u_i, move in zip(u, moves, strict=True)]
            if step % local_interval == 0:
                x = [x_i - u_i for x_i, u_i in zip(x, u, strict=True)]
                way = signs.mean([-u_i * (np.sqrt(v) + EPS) for u_i in u])
                m = [way / lrs] * M
                x = [x_i - way / (np.sqrt(v) + EPS) for x_i in x]
                u, lrs = [np.zeros(COUNT)] * M, 0.0
            local_counter += 1
            if local_counter == scaler:
                local_counter, local_interval = 0, min(clipper, 2 * local_interval)
        elif step % var_interval == 0:
            var_counter += 1
            if var_counter == kappa:
                var_counter, var_interval = 0, 2 * var_interval
        if step > freeze and not frozen:
            frozen, signs = True, LiteralMean(COUNT, M, "rms")
        path.append(list(x))
    return path


@pytest.mark.parametrize("decay", [0.0, 0.2])
@pytest.mark.parametrize(("kappa", "freeze"), [(2, 13), (4, 21), (1, 9), (3, 30)])
def test_the_public_codes_loop(kappa: int, freeze: int, decay: float) -> None:
    """Through refreshes, gradients as signs, the freeze, growing intervals and a changing learning rate."""
    given = gradients(44, M, (COUNT,))
    rates = [0.1 * (0.3 + 0.7 * abs(np.sin(t))) for t in range(44)]
    knobs = {"kappa": kappa, "freeze_step": freeze + 1, "double_every": 5, "max_interval": 4}
    build = partial(
        ZeroOneAdam,
        lr=0.1,
        beta1=BETA1,
        beta2=BETA2,
        eps=EPS,
        weight_decay=decay,
        variant="code",
        bias_correction=False,
    )
    got = Given(partial(build, **knobs), given)
    for t, rate in enumerate(rates):
        for group in got.method.param_groups:
            group["lr"] = rate
        got.run(t, t + 1)
    expected = literal(given, rates, kappa=kappa, freeze=freeze, scaler=5, clipper=4, decay=decay)
    for t, (positions, everyone) in enumerate(zip(got.path, expected, strict=True)):
        # Signs are taken of positions subtracted, which the public code adds up: to rounding the same.
        np.testing.assert_allclose(positions[0].numpy(), np.stack(everyone), atol=1e-9, err_msg=str(t))


def test_refreshes_are_where_the_public_code_has_them() -> None:
    schedule = CodeSchedule(10**6, 4, 1, 1, "code")
    at = [t for t in range(60) if schedule.updates_second_moment(t)]
    assert at == [1, 2, 3, 4, 5, 7, 9, 11, 15, 19, 23, 27, 31, 39, 47, 55]
    assert [schedule.num_second_moment_updates(t) for t in range(60)] == [sum(k <= t for k in at) for t in range(60)]


@pytest.mark.parametrize(("kappa", "freeze"), [(1, 1), (1, 20), (2, 14), (4, 60), (16, 10)])
def test_the_closed_form_follows_the_schedule(kappa: int, freeze: int) -> None:
    knobs = {"freeze_step": freeze, "kappa": kappa, "double_every": 3, "max_interval": 4, "variant": "code"}
    exchanges = method_of({"kind": "zero-one-adam", "lr": 0.1, **knobs}).exchanges([TensorShape("w", (33,))], 4)
    schedule = CodeSchedule(freeze, kappa, 3, 4, "code")
    for t in range(90):
        whole = t == 0 or schedule.updates_second_moment(t)
        as_signs = (t < freeze and not whole) or "params" in schedule.states_due(t)
        expected = [("all_reduce", 132.0)] if whole else []
        expected += [("all_to_all", 4 * (2 + 4.0)), ("all_gather", 2 + 4.0)] if as_signs else []
        assert [(c.collective, c.payload_bytes) for c in calls_at(exchanges, t)] == expected, t


def test_nobody_steps_alone_before_the_freeze() -> None:
    got = Given(
        partial(ZeroOneAdam, lr=0.1, freeze_step=12, kappa=2, variant="code"), gradients(20, M, (5,), (2, 3))
    ).run()
    assert not got.path[0][0].any()
    for positions in got.path[:12]:
        assert all(torch.equal(x, x[:1].expand_as(x)) for x in positions)
