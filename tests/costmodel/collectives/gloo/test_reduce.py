from __future__ import annotations

import pytest

from syncline.costmodel import GlooCosts, Link
from syncline.costmodel.collectives.gloo.reduce import gloo_reduce_s
from syncline.costmodel.network.tcp import Tcp

MIB = 2**20
PLAIN = Tcp(slow_start=False, window_bytes=1e12)


def test_by_hand() -> None:
    # Four workers, 128 MiB: 126 messages of 1 MiB, 63 pairs of 2 alpha + x, the first without waiting for another's
    # end; then 32 MiB from each to the root, which takes in three at once.
    link = Link(10e-3, 1.25e9, upload_bytes_per_s=125e6)
    x = MIB / 125e6
    ring_s = 20e-3 + 2 * x + 62 * (20e-3 + x)
    assert gloo_reduce_s(4, 128 * MIB, link, PLAIN) == pytest.approx(ring_s + 20e-3 + 32 * MIB / 125e6)
    narrow = Link(10e-3, 125e6)
    assert gloo_reduce_s(4, 128 * MIB, narrow, PLAIN) == pytest.approx(ring_s + 20e-3 + 96 * MIB / 125e6)


def test_software_is_paid_per_message_and_windows_open_for_the_chunks() -> None:
    link = Link(10e-3, 1.25e9, upload_bytes_per_s=125e6)
    bare = gloo_reduce_s(4, 128 * MIB, link, PLAIN)
    assert gloo_reduce_s(4, 128 * MIB, link, PLAIN, GlooCosts(message_s=1e-3)) == pytest.approx(bare + 128e-3)
    assert gloo_reduce_s(4, 128 * MIB, link, Tcp()) > bare
    assert gloo_reduce_s(1, MIB, link, PLAIN) == 0 == gloo_reduce_s(4, 0, link, PLAIN)
