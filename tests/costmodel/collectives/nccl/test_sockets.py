"""NCCL's pipelined rings and chains: by hand, in limits, against the textbook's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import OF_NCCL, Link, algorithms_on, best_algorithm, chosen_algorithm, collective_s
from syncline.costmodel.collectives.algorithms import NoClosedForm
from syncline.costmodel.collectives.nccl import NCCL_KINDS, nccl_sockets_s
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.network.software_costs import FREE, NcclCosts
from syncline.errors import SpecError

MIB = 2**20
LINK = Link(10e-3, 125e6)
KNOWN = replace(LINK, nccl=NcclCosts())


def test_a_ring_of_large_pieces_pays_no_latency_at_its_steps() -> None:
    # Pieces of 4 MiB take 33.6 ms; half of one and the latency, 26.8 ms.
    seconds = nccl_sockets_s("all_reduce", 32, 256 * MIB, LINK)
    assert seconds == pytest.approx(2 * 31 / 32 * 256 * MIB / 125e6 + 10e-3)


def test_a_ring_waits_for_pieces_that_are_too_short_for_the_latency() -> None:
    far = Link(50e-3, 125e6)
    steps = 2 * 7 * 32 / 4  # blocks of 32 MiB in pieces of 4
    expected = steps * (50e-3 + 2 * MIB / 125e6) + 2 * MIB / 125e6
    assert nccl_sockets_s("all_reduce", 8, 256 * MIB, far) == pytest.approx(expected)
    # Half of what the line could carry, whatever the number of workers.
    carried_ = [2 * (p - 1) / p * 1024 * MIB / nccl_sockets_s("all_reduce", p, 1024 * MIB, far) for p in (4, 16, 64)]
    np.testing.assert_allclose(carried_, 4 * MIB / (50e-3 + 2 * MIB / 125e6), rtol=0.005)


def test_what_is_left_of_a_block_goes_in_a_shorter_piece() -> None:
    """6 MiB a worker: a piece of 4 and one of 2, which takes 10 ms and a slice of 8.4 where its bytes take 16.8."""
    step_s = 4 * MIB / 125e6 + 10e-3 + 1 * MIB / 125e6
    assert nccl_sockets_s("all_reduce", 4, 24 * MIB, LINK) == pytest.approx(6 * step_s + 10e-3)


def test_a_chain_is_full_after_a_piece_from_worker_to_worker() -> None:
    expected = 128 * MIB / 125e6 + 3 * 10e-3 + 2 * MIB / 125e6
    for kind in ("broadcast", "reduce"):
        assert nccl_sockets_s(kind, 4, 128 * MIB, LINK) == pytest.approx(expected)
    assert nccl_sockets_s("broadcast", 4, 128 * MIB, LINK, NcclCosts(call_s=0.05)) == pytest.approx(expected + 50e-3)
    with pytest.raises(NoClosedForm, match="half-duplex"):
        nccl_sockets_s("broadcast", 4, 128 * MIB, replace(LINK, duplex="half"))


@given(st.integers(2, 64), st.floats(1, 4 * MIB), st.floats(0, 0.1), st.floats(1e6, 1e10), st.floats(0, 0.01))
def test_whole_blocks_that_are_stored_first_are_the_textbook_s_ring(
    p: int, block: float, alpha: float, rate: float, overhead: float
) -> None:
    stored = NcclCosts(slices=1)
    link = Link(alpha, rate, overhead_s=overhead)
    for kind, nbytes in (("all_reduce", p * block), ("reduce_scatter", p * block), ("all_gather", block)):
        if nbytes / (1 if kind == "all_gather" else p) <= stored.ring_piece_bytes:
            np.testing.assert_allclose(
                nccl_sockets_s(kind, p, nbytes, link, stored), collective_s(kind, p, nbytes, link, "ring"), rtol=1e-9
            )


@given(st.sampled_from(NCCL_KINDS), st.integers(2, 64), st.floats(1e3, 1e9), st.floats(0, 0.1))
def test_nothing_is_faster_than_its_bytes(kind: str, p: int, nbytes: float, alpha: float) -> None:
    link = Link(alpha, 1e8)
    free = Link(0.0, 1e8)
    parts = {"all_reduce": 2 * (p - 1) / p, "all_gather": p - 1, "gather": p - 1, "broadcast": 1.0, "reduce": 1.0}
    least = nbytes * parts.get(kind, (p - 1) / p) / 1e8
    assert nccl_sockets_s(kind, p, nbytes, link) >= least * (1 - 1e-9)
    assert nccl_sockets_s(kind, p, nbytes, link) >= nccl_sockets_s(kind, p, nbytes, free)


def test_one_worker_and_no_bytes_take_no_time_and_arguments_broadcast() -> None:
    assert nccl_sockets_s("all_reduce", 1, 1e9, LINK) == 0 == nccl_sockets_s("broadcast", 8, 0, LINK)
    many = nccl_sockets_s("all_reduce", np.array([2, 4]), 1e8, Link(np.array([1e-3, 2e-3]), 1e8))
    np.testing.assert_array_equal(
        many, [nccl_sockets_s("all_reduce", p, 1e8, Link(a, 1e8)) for p, a in ((2, 1e-3), (4, 2e-3))]
    )


@pytest.mark.parametrize("kind", NCCL_KINDS)
def test_a_link_that_knows_nccl_carries_by_it_what_names_nothing(kind: str) -> None:
    seconds = nccl_sockets_s(kind, 8, 1e8, KNOWN)
    assert collective_s(kind, 8, 1e8, KNOWN) == collective_s(kind, 8, 1e8, KNOWN, OF_NCCL[kind][0]) == seconds
    assert (
        chosen_algorithm("nccl", kind, 8, 1e9, KNOWN) == OF_NCCL[kind][0] == chosen_algorithm(None, kind, 8, 1e9, KNOWN)
    )
    assert chosen_algorithm("nccl", kind, 8, 1e9, LINK) not in OF_NCCL[kind]
    for name in (None, "nccl"):
        priced = collective_prices(kind, np.array([4, 8]), 1e9, KNOWN, name)
        np.testing.assert_array_equal(
            priced.seconds, collective_s(kind, np.array([4, 8]), 1e9, KNOWN, OF_NCCL[kind][0])
        )
    # What is chosen for its speed, and what is named, stays the textbook's.
    assert best_algorithm(kind, 8, 1e8, KNOWN) in algorithms_on(kind, KNOWN, 8)
    assert collective_s(kind, 8, 1e8, KNOWN, algorithms_on(kind, KNOWN, 8)[0]) == collective_s(kind, 8, 1e8, LINK)


def test_the_policy_takes_a_tree_where_its_tables_do() -> None:
    near = Link(50e-6, 1.25e9, nccl=NcclCosts())
    assert [chosen_algorithm("nccl", "all_reduce", 64, n, near) for n in (1e3, 1e10)] == [
        "double-binary-tree",
        "nccl-ring",
    ]
    assert chosen_algorithm("nccl", "all_reduce", 1, 1e3, near) == "nccl-ring"


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(SpecError, match="collective: got 'scan'"):
        nccl_sockets_s("scan", 4, 1e6, LINK)
    with pytest.raises(SpecError, match=r"nccl.stored_part: got 1.5"):
        NcclCosts(stored_part=1.5)
    paths = {"buffer_bytes": "buffer_size", "call_s": "call_overhead"}
    for field, value in (("channels", 0), ("slices", 0), ("buffer_bytes", 0.0), ("call_s", -1.0)):
        with pytest.raises(SpecError, match=rf"nccl.{paths.get(field, field)}: got {value}"):
            NcclCosts(**{field: value})
    with pytest.raises(SpecError, match=r"link.nccl: .*none with gloo"):
        replace(KNOWN, gloo=FREE)
