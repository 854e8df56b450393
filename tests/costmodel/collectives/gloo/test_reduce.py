"""gloo's reduce: a ring, then chunks to the root."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncline.costmodel import GlooCosts, Link, gloo_s
from syncline.costmodel.network.tcp import Tcp

MIB = 2**20


def reduce_s(workers: int, nbytes: float, link: Link) -> float:
    return float(gloo_s("reduce", workers, nbytes, link))


def test_by_hand() -> None:
    # Four workers, 128 MiB: 126 messages of 1 MiB, 63 pairs of 2 alpha + x, the first without waiting for another's
    # end; then 32 MiB from each to the root, which takes in three at once.
    link = Link(10e-3, 1.25e9, upload_bytes_per_s=125e6)
    x = MIB / 125e6
    ring_s = 20e-3 + 2 * x + 62 * (20e-3 + x)
    assert reduce_s(4, 128 * MIB, link) == pytest.approx(ring_s + 20e-3 + 32 * MIB / 125e6)
    narrow = Link(10e-3, 125e6)
    assert reduce_s(4, 128 * MIB, narrow) == pytest.approx(ring_s + 20e-3 + 96 * MIB / 125e6)


def test_software_is_paid_per_message_and_windows_open_for_the_chunks() -> None:
    link = Link(10e-3, 1.25e9, upload_bytes_per_s=125e6)
    bare = reduce_s(4, 128 * MIB, link)
    assert reduce_s(4, 128 * MIB, replace(link, gloo=GlooCosts(message_s=1e-3))) == pytest.approx(bare + 128e-3)
    assert reduce_s(4, 128 * MIB, replace(link, gloo=GlooCosts(connection=Tcp()))) > bare
    assert reduce_s(1, MIB, link) == 0 == reduce_s(4, 0, link)


def test_a_connection_s_limit_holds_rings_back_and_children_of_a_parent_share_the_line() -> None:
    free = Link(0.0, 10e6, gloo=GlooCosts())
    link = replace(free, gloo=GlooCosts(connection=Tcp(flow_bytes_per_s=4e6)))
    assert float(gloo_s("all_gather", 4, 1e6, link)) == pytest.approx(2.5 * float(gloo_s("all_gather", 4, 1e6, free)))
    # One child gets 4 of 10 MB/s; of three children together each gets a third of the line.
    assert float(gloo_s("broadcast", 2, 1e6, link)) == pytest.approx(0.25)
    assert float(gloo_s("broadcast", 8, 1e6, link)) == pytest.approx(0.3 + 0.25 + 0.25)
