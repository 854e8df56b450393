from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.theory.votes import (
    VOTES,
    vote_bits_per_parameter,
    vote_by_collectives_s,
    vote_crossover,
    vote_parts,
    vote_s,
)
from syncline.costmodel import Link, collective_s
from syncline.errors import SpecError
from syncline.specs import network

POWERS = st.sampled_from([2, 4, 8, 16, 64, 256])


@given(POWERS, st.integers(1, 10**9), st.floats(1e-9, 1.0), st.floats(1e3, 1e12))
def test_the_crossover_is_where_both_take_as_long(workers: int, scale: int, latency_s: float, bandwidth: float) -> None:
    link = Link(latency_s, bandwidth)
    parameters = float(vote_crossover(workers)) * latency_s * 8 * bandwidth
    one_bit, direct = (float(vote_s(how, workers, parameters, link)) for how in ("one-bit", "direct"))
    assert one_bit == pytest.approx(direct, rel=1e-9)
    more = parameters + scale
    assert vote_s("one-bit", workers, more, link) < vote_s("direct", workers, more, link)


def test_one_bit_is_its_two_collectives_but_for_the_gathers_latency() -> None:
    """The paper counts log2 P latencies for the all-gather, where a ring pays P - 1."""
    workers, parameters, link = 8, 8 * 10**6, network("10gbe")
    nbytes = parameters / 8
    ours = collective_s("all_to_all", workers, nbytes, link, "pairwise") + collective_s(
        "all_gather", workers, nbytes / workers, link, "ring"
    )
    paper = vote_s("one-bit", workers, parameters, link)
    # The paper's all-to-all sends N bits, where a worker keeps its own P-th.
    kept = nbytes / workers / link.bandwidth_bytes_per_s
    assert paper == pytest.approx(ours + kept + (np.log2(workers) - (workers - 1)) * link.latency_s, rel=1e-12)


def test_more_workers_push_the_crossover_out() -> None:
    crossovers = vote_crossover(np.array([8, 16, 32, 64, 128]))
    assert np.all(np.diff(crossovers) > 0)
    np.testing.assert_allclose(crossovers[[0, -1]], [0.78, 8.64], atol=0.005)


def test_a_server_never_beats_an_all_reduce_of_signs() -> None:
    workers, link = np.array([2, 8, 128]), network("wan")
    assert np.all(vote_s("naive", workers, 10**8, link) > vote_s("one-bit", workers, 10**8, link))
    assert np.all(vote_crossover(workers, "one-bit", "efficient") < np.inf)
    assert np.all(vote_crossover(workers, "naive", "direct") == np.inf)


@pytest.mark.parametrize("how", VOTES)
def test_a_worker_alone_waits_for_nothing_but_a_naive_server(how: str) -> None:
    bandwidth_only = vote_s(how, 1, 10**6, Link(0.0, 1e9))
    assert vote_s(how, 1, 10**6, Link(1.0, 1e9)) == bandwidth_only  # no latency
    assert (bandwidth_only > 0) == (how in ("naive", "one-bit"))  # these rows count what a worker sends itself


def test_unknown_rows_and_no_workers_are_refused() -> None:
    with pytest.raises(SpecError, match=r"vote: got 'onebit'; expected one of .*one-bit"):
        vote_s("onebit", 8, 1, network("wan"))
    with pytest.raises(SpecError, match="workers: got 0"):
        vote_s("direct", 0, 1, network("wan"))


LATENCY = Link(1.0, 1e30)
BITS = Link(0.0, 1 / 8)


@pytest.mark.parametrize(
    ("how", "latencies", "bits"),  # of 8 workers, b = 32
    [
        ("naive", 14, 2 * 7 * 32),
        ("efficient", 9, 7 * 32 + 2 * 7 / 8 * 32),
        ("direct", 6, 2 * 7 / 8 * 4),
        ("one-bit", 10, 2 * 7 / 8),
    ],
)
def test_our_collectives_beside_the_table(how: str, latencies: int, bits: float) -> None:
    assert vote_by_collectives_s(how, 8, 1000, LATENCY, rule="rendezvous") == pytest.approx(latencies, rel=1e-12)
    assert vote_by_collectives_s(how, 8, 1000, BITS) / 1000 == pytest.approx(bits, rel=1e-12)
    if how != "efficient":  # where the table has log2 P latencies less
        assert vote_s(how, 8, 0, LATENCY) == pytest.approx(latencies)
    if how == "direct":
        assert vote_bits_per_parameter(how, 8) == bits


def test_a_naive_server_does_not_wait_for_each_message() -> None:
    assert vote_by_collectives_s("naive", 8, 0, LATENCY) == 2


def test_sums_of_votes_take_as_many_bits_as_they_need() -> None:
    sizes = [vote_parts("direct", workers, 8)[0].nbytes for workers in (1, 2, 3, 4, 7, 8)]
    assert sizes == [1, 2, 2, 3, 3, 4]


def test_the_direct_vote_is_as_printed_and_a_naive_server_is_faster() -> None:
    link = network("10gbe")
    direct, printed = vote_by_collectives_s("direct", 8, 10**6, link), vote_s("direct", 8, 10**6, link)
    assert direct == pytest.approx(float(printed), rel=1e-12)
    assert vote_by_collectives_s("naive", 8, 10**6, link) < vote_by_collectives_s(
        "naive", 8, 10**6, link, rule="rendezvous"
    )


def test_votes_name_their_algorithms() -> None:
    assert [part[::2] for part in vote_parts("one-bit", 8, 10**6)] == [
        ("all_to_all", "pairwise"),
        ("all_gather", "recursive-doubling"),
    ]
