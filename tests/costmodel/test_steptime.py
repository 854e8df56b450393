from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import Exchange, Link, StepTime, mean_step, ring_all_reduce_s, step_time_s
from syncline.errors import SpecError

LINK = Link(0.5, 8.0)


def test_without_overlap_all_communication_is_exposed() -> None:
    step = StepTime(compute_s=2.0, communication_s=np.array([0.0, 1.0]))
    np.testing.assert_array_equal(step.exposed_communication_s, [0, 1])
    np.testing.assert_array_equal(step.step_time_s, [2, 3])
    np.testing.assert_array_equal(step_time_s(2.0, np.array([0.0, 1.0])), step.step_time_s)


def test_a_mean_step_spreads_the_communication_over_the_steps() -> None:
    step = mean_step(2.0, [Exchange(32.0, period=10)], 100, 4, LINK)
    assert step.communication_s == pytest.approx(ring_all_reduce_s(4, 32.0, LINK) / 10)
    assert mean_step(2.0, [Exchange(32.0)], 7, 1, LINK).step_time_s == 2.0  # one worker
    with pytest.raises(SpecError, match="steps: got 0"):
        mean_step(2.0, [], 0, 4, LINK)
