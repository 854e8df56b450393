"""Bytes over each level: by hand, as sites count them, and the same however groups are numbered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import NETWORKS
from syncline.costmodel.layouts.groups import egress_bytes, level_bytes, message_levels, workers_of_units
from syncline.errors import SpecError
from syncline.specs import named_cluster, network

OF = (8, 32, 64)
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "gather", "all_to_all", "send")


def test_workers_of_the_units_of_networks() -> None:
    assert workers_of_units(named_cluster("two-sites-a100").network, 64) == OF
    assert workers_of_units(NETWORKS["wan"].network, 3) == (3,)
    assert workers_of_units(network({"sites": [5, 3], "lan": "10gbe", "uplink": "wan"}), 8) is None


def test_a_sum_over_all_levels_by_hand() -> None:
    # 8 in a node: 2 x 7 n, in each of 8 nodes; 4 nodes of a site: 2 x 3 n, in 2 sites; 2 sites: 2 n.
    assert level_bytes("all_reduce", 10.0, range(64), 64, OF).tolist() == [2 * 7 * 10 * 8, 2 * 3 * 10 * 2, 20.0]


def test_groups_of_pairs_between_sites() -> None:
    assert level_bytes("all_reduce", 10.0, range(0, 64, 32), 64, OF).tolist() == [0, 0, 32 * 20.0]
    assert level_bytes("all_gather", 10.0, range(0, 64, 32), 64, OF).tolist() == [0, 0, 32 * 20.0]


def test_what_is_gathered_by_all_comes_to_every_unit() -> None:
    # All-gather of n: what comes into a site is the other's 32 n, into a node the 56 n of all others.
    assert level_bytes("all_gather", 10.0, range(64), 64, OF).tolist() == [
        8 * 7 * 10 * 64,
        2 * 3 * 10 * 64,
        2 * 32 * 10.0,
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_outermost_level_is_what_leaves_sites(kind: str) -> None:
    told = level_bytes(kind, 10.0, range(8), 8, (4, 8))
    assert told[-1] == pytest.approx(egress_bytes(kind, 10.0, [4, 4]))


@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([2, 4, 8]))
def test_groups_inside_a_unit_send_nothing_further(kind: str, stride: int, size: int) -> None:
    if stride * size > 64:
        return
    told = level_bytes(kind, 1.0, range(0, stride * size, stride), 64, OF)
    for level, capacity in enumerate(OF[:-1]):
        if stride * size <= capacity:
            assert not told[level + 1 :].any()
    assert told.sum() > 0


def test_messages_from_stage_to_stage() -> None:
    assert message_levels(range(0, 64, 16), OF) == [1, 2, 1]
    assert message_levels(range(1), OF) == []


def test_a_message_counts_at_the_outermost_level_that_it_crosses() -> None:
    assert level_bytes("send", 10.0, range(0, 64, 16), 64, OF).tolist() == [0, 0, 16 * 10.0]
    assert level_bytes("send", 10.0, range(8), 64, OF).tolist() == [8 * 10.0, 0, 0]


def test_an_unknown_collective_is_refused() -> None:
    with pytest.raises(SpecError, match="whose bytes are counted"):
        level_bytes("whisper", 1.0, range(8), 8, (8,))
