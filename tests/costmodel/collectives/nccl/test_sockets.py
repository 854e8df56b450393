"""NCCL's pipelined rings and chains: by hand, in limits, against the textbook's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import Link, collective_s
from syncline.costmodel.collectives.nccl.sockets import NCCL_KINDS, NcclCosts, nccl_sockets_s
from syncline.errors import SpecError

MIB = 2**20
BARE = NcclCosts(ring_latencies=0.0, chain_latencies=0.0)
LINK = Link(10e-3, 125e6)


def test_a_ring_of_large_pieces_pays_no_latency_at_its_steps() -> None:
    # Pieces of 4 MiB take 33.6 ms; half of one and the latency, 26.8 ms.
    seconds = nccl_sockets_s("all_reduce", 32, 256 * MIB, LINK, BARE)
    assert seconds == pytest.approx(2 * 31 / 32 * 256 * MIB / 125e6)


def test_a_ring_waits_for_pieces_that_are_too_short_for_the_latency() -> None:
    far = Link(50e-3, 125e6)
    steps = 2 * 7 * 32 / 4  # blocks of 32 MiB in pieces of 4
    expected = steps * (50e-3 + 2 * MIB / 125e6)
    assert nccl_sockets_s("all_reduce", 8, 256 * MIB, far, BARE) == pytest.approx(expected)
    # Half of what the line could carry, whatever the number of workers.
    carried = [2 * (p - 1) / p * 256 * MIB / nccl_sockets_s("all_reduce", p, 256 * MIB, far, BARE) for p in (4, 16, 64)]
    np.testing.assert_allclose(carried, 4 * MIB / (50e-3 + 2 * MIB / 125e6))


def test_a_chain_is_full_after_a_piece_from_worker_to_worker() -> None:
    expected = 128 * MIB / 125e6 + 3 * (10e-3 + MIB / 125e6)
    for kind in ("broadcast", "reduce"):
        assert nccl_sockets_s(kind, 4, 128 * MIB, LINK, BARE) == pytest.approx(expected)
    more = NcclCosts(chain_latencies=5.0)
    assert nccl_sockets_s("broadcast", 4, 128 * MIB, LINK, more) == pytest.approx(expected + 50e-3)


@given(st.integers(2, 64), st.floats(1, 4 * MIB), st.floats(0, 0.1), st.floats(1e6, 1e10))
def test_whole_blocks_that_are_stored_first_are_the_textbook_s_ring(p: int, block: float, alpha: float, rate: float):
    stored = NcclCosts(stored_part=1.0, ring_latencies=0.0)
    link = Link(alpha, rate)
    for kind, nbytes in (("all_reduce", p * block), ("reduce_scatter", p * block), ("all_gather", block)):
        np.testing.assert_allclose(
            nccl_sockets_s(kind, p, nbytes, link, stored), collective_s(kind, p, nbytes, link, "ring"), rtol=1e-9
        )


@given(st.sampled_from(NCCL_KINDS), st.integers(2, 64), st.floats(1e3, 1e9), st.floats(0, 0.1))
def test_nothing_is_faster_than_its_bytes(kind: str, p: int, nbytes: float, alpha: float) -> None:
    link = Link(alpha, 1e8)
    free = Link(0.0, 1e8)
    part = {"all_reduce": 2 * (p - 1) / p, "all_gather": p - 1, "broadcast": 1.0, "reduce": 1.0}
    least = nbytes * part.get(kind, (p - 1) / p) / 1e8
    assert nccl_sockets_s(kind, p, nbytes, link) >= least * (1 - 1e-9)
    assert nccl_sockets_s(kind, p, nbytes, link) >= nccl_sockets_s(kind, p, nbytes, free)


def test_one_worker_and_no_bytes_take_no_time_and_arguments_broadcast() -> None:
    assert nccl_sockets_s("all_reduce", 1, 1e9, LINK) == 0 == nccl_sockets_s("broadcast", 8, 0, LINK)
    many = nccl_sockets_s("all_reduce", np.array([2, 4]), 1e8, Link(np.array([1e-3, 2e-3]), 1e8))
    np.testing.assert_array_equal(
        many, [nccl_sockets_s("all_reduce", p, 1e8, Link(a, 1e8)) for p, a in ((2, 1e-3), (4, 2e-3))]
    )


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(SpecError, match="collective: got 'gather'"):
        nccl_sockets_s("gather", 4, 1e6, LINK)
    with pytest.raises(SpecError, match=r"nccl.stored_part: got 1.5"):
        NcclCosts(stored_part=1.5)
    with pytest.raises(SpecError, match=r"nccl.channels: got 0"):
        NcclCosts(channels=0)
