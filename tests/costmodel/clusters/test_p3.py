"""Predictions of a measured cluster: what must hold whatever the constants are."""

from __future__ import annotations

import pytest

from syncline.costmodel.measured_clusters import CALLS_BY_TEST, p3_s
from syncline.costmodel.network.presets import P3
from syncline.errors import SpecError

MIB = 2**20
KINDS = ("all_reduce", "broadcast", "reduce", "send", "all_gather", "all_to_all", "reduce_scatter")


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("kind", KINDS)
def test_more_bytes_delays_and_narrower_links_take_longer(backend: str, kind: str) -> None:
    def seconds(nbytes: float = 128 * MIB, delay_s: float | None = 5e-3, rate: float | None = 125e6) -> float:
        return float(p3_s(kind, backend, 4, nbytes, delay_s, rate))

    assert 0 < seconds() < min(seconds(256 * MIB), seconds(delay_s=20e-3), seconds(rate=60e6))
    assert 0 < seconds(delay_s=None, rate=None) < seconds()
    assert seconds(delay_s=0.0) <= seconds()


@pytest.mark.parametrize("kind", CALLS_BY_TEST)
def test_pieces_take_at_least_their_bytes(kind: str) -> None:
    shares = {"all_reduce": 1.5, "reduce+broadcast": 2.0, "all_to_all+all_gather": 1.5}
    seconds = float(p3_s(kind, "nccl", 4, 256 * MIB, 1e-3, 125e6, pieces=True))
    assert seconds > shares[kind] * 256 * MIB / 125e6
    assert float(p3_s(kind, "nccl", 1, 256 * MIB, 1e-3, 125e6, pieces=True)) == 0
    assert float(p3_s(kind, "nccl", 4, 256 * MIB, 50e-3, 125e6, pieces=True)) > seconds


def test_at_long_delays_a_ring_carries_the_same_whatever_its_workers() -> None:
    carried = [
        2 * (p - 1) / p * 1024 * MIB / float(p3_s("all_reduce", "nccl", p, 1024 * MIB, 50e-3, 125e6, pieces=True))
        for p in (4, 8, 16)
    ]
    assert all(50e6 < one < 60e6 for one in carried)


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(SpecError, match="backend: got 'mpi'"):
        p3_s("all_reduce", "mpi", 4, MIB)
    with pytest.raises(SpecError, match="nodes: got 0"):
        p3_s("all_reduce", "nccl", 0, MIB)
    for backend, kind in (("gloo", "scan"), ("nccl", "scan"), ("nccl", "a+b")):
        with pytest.raises(SpecError, match="collective: got"):
            p3_s(kind, backend, 4, MIB)


def test_constants_can_be() -> None:
    assert 0.9 < P3.efficiency <= 8949 / 9015 and 0.5 <= P3.stored_part <= 1
