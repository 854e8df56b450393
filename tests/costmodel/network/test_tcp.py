from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.network.tcp import repeated_part, tcp_bytes_per_s
from syncline.errors import SpecError


def test_repeats_leave_what_arrives_at_the_first_try() -> None:
    assert repeated_part(0.25) == 0.75
    np.testing.assert_array_equal(repeated_part(np.array([0.0, 0.5])), [1, 0.5])


def test_mathis_s_bound_is_a_window_that_is_halved_at_each_loss() -> None:
    # Between losses a window grows from W / 2 to W by a segment per round trip: W / 2 round trips that carry
    # 3/8 W^2 = 1 / p segments. At W = 16 that is p = 1 / 96, and 96 segments in 8 round trips.
    assert tcp_bytes_per_s(1 / 96, 0.1, segment_bytes=1000) == pytest.approx(96 * 1000 / 0.8)


@given(st.floats(1e-6, 0.9), st.floats(1e-4, 1), st.integers(1, 100))
def test_streams_add_up_and_losses_and_distance_slow_them(loss: float, rtt_s: float, streams: int) -> None:
    one = tcp_bytes_per_s(loss, rtt_s)
    assert tcp_bytes_per_s(loss, rtt_s, streams) == pytest.approx(streams * one)
    assert tcp_bytes_per_s(loss, 2 * rtt_s) == pytest.approx(one / 2)
    assert tcp_bytes_per_s(loss / 4, rtt_s) == pytest.approx(2 * one)


def test_without_loss_there_is_no_bound() -> None:
    assert tcp_bytes_per_s(0.0, 0.1) == math.inf


@pytest.mark.parametrize("loss", [-0.1, 1.0, math.nan])
def test_a_loss_is_a_part_of_the_packets(loss: float) -> None:
    with pytest.raises(SpecError, match="loss: got"):
        repeated_part(loss)


@pytest.mark.parametrize(
    ("arguments", "field"), [((0.1, 0.0), "latency"), ((0.1, 1.0, 0), "streams"), ((0.1, 1.0, 1, 0), "segment")]
)
def test_what_no_stream_has_is_refused(arguments: tuple[float, ...], field: str) -> None:
    with pytest.raises(SpecError, match=f"{field}: got"):
        tcp_bytes_per_s(*arguments)  # type: ignore[arg-type]
