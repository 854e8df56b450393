from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.network.tcp import Tcp, goodput_fraction, tcp_bytes_per_s
from syncline.errors import SpecError


def test_repeats_leave_what_arrives_at_the_first_try() -> None:
    assert goodput_fraction(0.25) == 0.75
    np.testing.assert_array_equal(goodput_fraction(np.array([0.0, 0.5])), [1, 0.5])


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
        goodput_fraction(loss)


@pytest.mark.parametrize(
    ("arguments", "field"), [((0.1, 0.0), "latency"), ((0.1, 1.0, 0), "streams"), ((0.1, 1.0, 1, 0), "segment")]
)
def test_what_no_stream_has_is_refused(arguments: tuple[float, ...], field: str) -> None:
    with pytest.raises(SpecError, match=f"{field}: got"):
        tcp_bytes_per_s(*arguments)  # type: ignore[arg-type]


def test_a_window_bounds_what_a_connection_carries() -> None:
    tcp = Tcp(window_bytes=1e6)
    assert tcp.rate_bytes_per_s(1e9, 0.1) == pytest.approx(1e7)
    assert Tcp(window_bytes=1e6, connections=4).rate_bytes_per_s(1e9, 0.1) == pytest.approx(4e7)
    assert tcp.rate_bytes_per_s(5e6, 0.1) == 5e6  # the line is narrower
    assert tcp.rate_bytes_per_s(1e9, 0.0) == 1e9
    assert Tcp(flow_bytes_per_s=6e8, connections=2).rate_bytes_per_s(2e9, 1e-6) == 1.2e9
    lossy = Tcp(loss=0.01, connections=3)
    assert lossy.rate_bytes_per_s(1e9, 0.1) == pytest.approx(tcp_bytes_per_s(0.01, 0.1, 3))


def test_windows_double_every_round_trip_after_idling() -> None:
    # 10, 20, 40 segments of 1 kB in three round trips of 0.1 s; then 80 kB are on the way at 800 kB/s.
    tcp = Tcp(segment_bytes=1000)
    assert tcp.transfer_after_idling_s(70e3 + 8e5, 8e5, 0.1) == pytest.approx(0.3 + 1.0)
    assert tcp.transfer_after_idling_s(10e3, 8e5, 0.1) == pytest.approx(10e3 / 8e5)  # the first window is enough
    assert tcp.transfer_after_idling_s(8e5, 8e5, 0.0) == pytest.approx(1.0)
    assert Tcp(segment_bytes=1000, slow_start=False).transfer_after_idling_s(8e5, 8e5, 0.1) == pytest.approx(1.0)


@given(st.floats(1, 1e9), st.floats(1e5, 1e9), st.floats(0, 0.3), st.integers(1, 64))
def test_opening_windows_take_longer_and_more_connections_less(n: float, line: float, rtt_s: float, count: int) -> None:
    tcp, many = Tcp(), Tcp(connections=count)
    open_s = n / tcp.rate_bytes_per_s(line, rtt_s)
    assert tcp.transfer_after_idling_s(n, line, rtt_s) >= open_s * (1 - 1e-12)
    assert many.transfer_after_idling_s(n, line, rtt_s) <= tcp.transfer_after_idling_s(n, line, rtt_s) * (1 + 1e-12)


def test_a_short_queue_lets_bytes_travel_twice() -> None:
    """Two segments for each of 4 connections: 3/2 / 2^2 of the bytes; long queues lose none, the shortest all."""
    queues = (8e3, 1e12, math.inf, 1.0)
    parts = [Tcp(connections=4, segment_bytes=1000, queue_bytes=queue).resent_part for queue in queues]
    assert parts == [pytest.approx(1.5 / 4), pytest.approx(0.0, abs=1e-12), 0.0, 1.0]
    short = Tcp(connections=4, segment_bytes=1000, queue_bytes=8e3)
    assert short.rate_bytes_per_s(1e6, 1e-3) == pytest.approx(1e6 / 1.375)
    window = replace(short, window_bytes=100.0)  # where windows are the limit, the queue stays empty
    assert window.rate_bytes_per_s(1e9, 1e-3) == pytest.approx(4 * 100 / 1e-3)


@pytest.mark.parametrize(
    ("field", "value"),
    [("queue_bytes", 0.0), ("window_bytes", 0.0), ("connections", 0), ("segment_bytes", 0), ("loss", 1.0)],
)
def test_what_a_connection_cannot_be(field: str, value: float) -> None:
    with pytest.raises(SpecError, match="got"):
        Tcp(**{field: value})
