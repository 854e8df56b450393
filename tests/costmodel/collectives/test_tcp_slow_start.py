"""What windows that open after idling add to a collective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import COLLECTIVES, Exchange, Link, NcclCosts, Tcp, collective_s, mean_step
from syncline.costmodel.collectives.table import ALGORITHMS, OF_GLOO, OF_NCCL
from syncline.costmodel.collectives.tcp_slow_start import collective_opening, collective_opening_s, opening_connections
from syncline.costmodel.network.link import star

FAR = Link(25e-3, 125e6, tcp=Tcp(window_bytes=8 * 2**20))
TIMEOUT_S = 0.25  # a round trip and 0.2 s


def test_a_ring_opens_one_window_for_all_that_a_worker_sends() -> None:
    """Of 3 MB on each of 4 workers 4.5 MB leave each; windows of 14.6 kB double until 125e6 x 0.05 = 6.25 MB."""
    sent, window, seconds = 4.5e6, 14_600.0, 0.0
    while sent > window:
        sent, window, seconds = sent - window, 2 * window, seconds + 0.05
    seconds += sent / 125e6 - 4.5e6 / 125e6
    for name in ("ring", "gloo-ring", "nccl-ring"):
        assert collective_opening_s("all_reduce", 4, 3e6, FAR, name, 60.0) == pytest.approx(seconds)
    assert collective_opening_s("all_reduce", 4, 3e6, FAR, None, 60.0) == pytest.approx(seconds)


def test_messages_that_wait_for_each_other_open_one_window_each() -> None:
    each = FAR.tcp.opening_s(3e6, 125e6, 0.05, 60.0)
    assert collective_opening_s("all_reduce", 8, 3e6, FAR, "recursive-doubling", 60.0) == pytest.approx(3 * each)
    assert collective_opening_s("broadcast", 8, 3e6, FAR, "binomial", 60.0) == pytest.approx(3 * each)
    assert collective_opening_s("broadcast", 8, 3e6, FAR, "nccl-chain", 60.0) == pytest.approx(each)


def test_each_timeout_halves_a_window() -> None:
    """A window that has grown to 12.5 MB, twice what is under way, is halved each 0.25 s: after two of them a long
    transfer takes a round trip longer, less what leaves in it; after ten what a new connection takes.
    """

    def after(idle_s: float) -> float:
        return float(collective_opening_s("all_gather", 2, 1e9, FAR, "ring", idle_s))

    assert after(0.0) == after(0.249) == after(0.49) == 0.0
    assert after(0.5) == after(0.74) == pytest.approx(0.05 - 3.125e6 / 125e6)
    assert after(0.75) == pytest.approx(after(0.5) + 0.05 - 1.5625e6 / 125e6)
    assert after(10 * TIMEOUT_S) == after(1e6) == pytest.approx(FAR.tcp.transfer_after_idling_s(1e9, 125e6, 0.05) - 8)


@given(
    st.sampled_from(
        [(kind, name) for kind in COLLECTIVES for of in (ALGORITHMS, OF_GLOO, OF_NCCL) for name in of[kind]]
    ),
    st.integers(1, 20),
    st.floats(0, 1e9),
    st.floats(0, 1e4),
)
def test_the_table_of_timeouts_is_the_form(which: tuple[str, str], workers: int, nbytes: float, idle_s: float) -> None:
    kind, name = which
    seconds = collective_opening_s(kind, workers, nbytes, FAR, name, idle_s)
    assert seconds >= 0
    for network in (FAR, star(FAR, workers)):
        opening = collective_opening(kind, workers, nbytes, network, name)
        told = 0.0 if opening is None else opening.after_s(np.array([idle_s]))[0]
        assert told == pytest.approx(float(seconds), abs=1e-12)
    count, on_each = opening_connections(kind, workers, nbytes, name)
    assert count >= 0 and on_each <= max(nbytes * workers * 4, nbytes)


def test_windows_that_are_small_enough_or_no_tcp_cost_nothing() -> None:
    for link in (replace(FAR, tcp=None), replace(FAR, tcp=Tcp(slow_start=False)), replace(FAR, latency_s=1e-6)):
        assert collective_opening_s("all_reduce", 4, 1e8, link, "ring", 60.0) == 0
        assert collective_opening("all_reduce", 4, 1e8, star(link, 4), "ring") is None
    unequal = star([FAR, replace(FAR, tcp=None)], 2)
    assert unequal.tcp is None


@pytest.mark.parametrize("known", [{}, {"nccl": NcclCosts()}])
def test_a_step_pays_it_once_where_calls_follow_each_other(known: dict[str, NcclCosts]) -> None:
    """Every fourth step two calls follow 4 x 0.3 s of computing; the second finds windows open."""
    link = replace(FAR, **known)
    exchanges = [Exchange(3e6, period=4), Exchange(1e6, collective="all_gather", period=4)]
    told = mean_step(0.3, exchanges, 12, 4, link)
    warm = mean_step(0.3, exchanges, 12, 4, replace(link, tcp=None))
    opening_s = collective_opening_s("all_reduce", 4, 3e6, link, None, 1.2)
    assert told.communication_s == pytest.approx(warm.communication_s + opening_s / 4)
    assert told.step_time_s == pytest.approx(warm.step_time_s + opening_s / 4)
    assert mean_step(0.01, exchanges, 12, 4, link).step_time_s == pytest.approx(warm.step_time_s - 0.29)
    # Computing and links may be arrays.
    many = mean_step(
        np.array([0.3, 0.01]), exchanges, 12, 4, replace(link, bandwidth_bytes_per_s=np.array([125e6, 125e6]))
    )
    assert many.step_time_s[0] == pytest.approx(told.step_time_s)
    auto = mean_step(
        0.3, exchanges, 12, 4, replace(link, bandwidth_bytes_per_s=np.array([1e6, 125e6])), algorithm="auto"
    )
    assert auto.step_time_s[1] == pytest.approx(mean_step(0.3, exchanges, 12, 4, link, algorithm="auto").step_time_s)


def test_a_collective_by_itself_finds_open_windows() -> None:
    assert collective_s("all_reduce", 4, 3e6, FAR) == collective_s("all_reduce", 4, 3e6, replace(FAR, tcp=None))
