from __future__ import annotations

import numpy as np
import pytest

from syncline.errors import SpecError
from syncline.seeds import generator
from syncline.sim import ComputeTime, LogNormalJitter, Pause, SlowWorker


def sample(model, steps=4, workers=3, seed=0):
    return model.sample(steps, workers, generator(seed, "compute"))


def test_undisturbed():
    assert sample(ComputeTime(0.5)).tolist() == [[0.5] * 3] * 4


def test_jitter_keeps_the_mean_and_has_the_spread_of_its_sigma():
    sigma = 0.5
    times = sample(ComputeTime(2.0, (LogNormalJitter(sigma),)), steps=1000, workers=200)
    standard_error = np.sqrt(np.expm1(sigma**2)) / np.sqrt(times.size)
    assert abs(times.mean() / 2.0 - 1) < 5 * standard_error
    assert np.log(times).std() == pytest.approx(sigma, rel=0.01)


def test_no_jitter_at_sigma_zero():
    assert sample(ComputeTime(2.0, (LogNormalJitter(0.0),))).tolist() == [[2.0] * 3] * 4


def test_a_slow_worker_and_a_pause():
    times = sample(ComputeTime(1.0, (SlowWorker(2, 3.0), Pause(2, 1, 10.0), Pause(0, 3, 5.0))))
    assert times.tolist() == [[1.0, 1.0, 3.0], [1.0, 1.0, 13.0], [1.0, 1.0, 3.0], [6.0, 1.0, 3.0]]


def test_disturbances_act_in_turn():
    paused_then_slowed = sample(ComputeTime(1.0, (Pause(0, 0, 1.0), SlowWorker(0, 10.0))))
    slowed_then_paused = sample(ComputeTime(1.0, (SlowWorker(0, 10.0), Pause(0, 0, 1.0))))
    assert (paused_then_slowed[0, 0], slowed_then_paused[0, 0]) == (20.0, 11.0)


def test_the_same_seed_gives_the_same_bits_and_a_new_disturbance_moves_no_draw():
    jitter = LogNormalJitter(0.1)
    alone = sample(ComputeTime(1.0, (jitter,)))
    assert np.array_equal(alone, sample(ComputeTime(1.0, (jitter,))))
    assert not np.array_equal(alone, sample(ComputeTime(1.0, (jitter,)), seed=1))
    with_more = sample(ComputeTime(1.0, (jitter, SlowWorker(0, 2.0), LogNormalJitter(0.0))))
    assert np.array_equal(alone[:, 1:], with_more[:, 1:])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ComputeTime(-1.0),
        lambda: ComputeTime(float("nan")),
        lambda: LogNormalJitter(-0.1),
        lambda: SlowWorker(0, -1.0),
        lambda: Pause(0, 0, float("inf")),
        lambda: sample(ComputeTime(1.0, (SlowWorker(3, 2.0),))),
        lambda: sample(ComputeTime(1.0, (Pause(0, 4, 1.0),))),
        lambda: sample(ComputeTime(1.0, (Pause(-1, 0, 1.0),))),
    ],
)
def test_what_cannot_be(make):
    with pytest.raises(SpecError, match="expected"):
        make()
