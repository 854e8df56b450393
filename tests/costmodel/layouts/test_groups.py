"""Collectives of many groups at once: by hand, and as the events play them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.costmodel import HIERARCHICAL, Link, Matrix, NoClosedForm, Sites, TwoLevel, collective_s
from syncline.costmodel.collectives.hierarchical import level_sizes
from syncline.costmodel.collectives.prices import CollectivePrices, collective_prices
from syncline.costmodel.layouts.groups import message_s
from syncline.costmodel.network.link import among, topology
from syncline.costmodel.traffic.call import Call, groups_like
from syncline.sim import clock
from syncline.specs import named_cluster, network

SMALL = network({
    "name": "small",
    "levels": [
        {"units": 2, "link": "nvlink3"},
        {"units": 2, "link": "ib-hdr"},
        {"units": 2, "link": "20ms,1Gbit/s", "rails": 1},
    ],
})  # fmt: skip


def group_carried(
    kind: str, ranks: range, workers: int, n: float, on: object, algorithms: str | None = None
) -> CollectivePrices:
    """Of a group's collective."""
    return collective_prices(kind, np.array([workers]), n, on, algorithms, groups=[ranks])  # type: ignore[arg-type]


def seconds(
    kind: str, ranks: range, workers: int, n: float, on: object = SMALL, algorithms: str | None = "auto"
) -> float:
    """Of a group's collective."""
    return np.asarray(group_carried(kind, ranks, workers, n, on, algorithms).seconds).item()


def played_s(kind: str, part: range, n: float) -> float:
    """Of all groups like this one on eight workers, by the events."""
    calls = [Call(0, kind, n, each) for each in groups_like(part, 8)]
    return clock(calls, 0.0, SMALL, 8, 1, algorithm="ring", evaluator="events").wall_s


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("part", [range(2), range(0, 8, 4)])
def test_a_level_s_groups_take_what_happens(kind: str, part: range) -> None:
    assert seconds(kind, part, 8, 1e6, algorithms="ring") == pytest.approx(played_s(kind, part, 1e6), rel=1e-9)


def test_three_levels_take_what_their_levels_do_one_after_another() -> None:
    # Of an all-gather of n: across sites n, then nodes 2 n, then inside 4 n; what happens at each is played.
    n, everybody = 1e6, range(8)
    across, inside = range(0, 8, 4), range(2)
    between = 2 * n / 25e9 + 2e-6  # a pair of nodes inside a site, every worker with a card of its own
    told = played_s("all_gather", across, n) + between + played_s("all_gather", inside, 4 * n)
    assert seconds("all_gather", everybody, 8, n) == pytest.approx(told, rel=1e-9)
    scattered = (
        played_s("reduce_scatter", inside, n) + (n / 4 / 25e9 + 2e-6) + played_s("reduce_scatter", across, n / 4)
    )
    assert seconds("reduce_scatter", everybody, 8, n) == pytest.approx(scattered, rel=1e-9)
    whole = collective_s("all_reduce", 8, n, SMALL, "hierarchical")
    assert seconds("all_reduce", everybody, 8, n, algorithms="hierarchical") == pytest.approx(whole, rel=1e-12)


def test_groups_share_what_leaves_a_site() -> None:
    two = named_cluster("two-sites-a100").network
    n, rate = 1e8, 125e6 / 32  # 32 GPUs send at once
    assert seconds("all_reduce", range(0, 64, 32), 64, n, two, "ring") == pytest.approx(2 * (0.020002 + n / 2 / rate))
    assert float(message_s(range(0, 64, 32), 64, n, two)) == pytest.approx(0.020002 + n / rate)


sizes = st.sampled_from([1, 2, 4, 8])


@settings(deadline=None)
@given(sizes, sizes, st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]))
def test_on_a_link_groups_do_not_meet(size: int, stride: int, kind: str) -> None:
    link = Link(1e-5, 1e9)
    alone = float(collective_s(kind, size, 1e6, link))
    assert seconds(kind, range(0, size * stride, stride), 64, 1e6, link, None) == pytest.approx(alone)


def test_one_by_itself_takes_no_time() -> None:
    assert seconds("all_reduce", range(1), 8, 1e6) == 0.0
    assert message_s(range(1), 8, 1e6, SMALL) == 0.0


def test_units_that_are_not_filled_evenly_have_no_closed_form() -> None:
    six = network({"levels": [{"units": 6, "link": "nvlink3"}, {"units": 2, "link": "ib-hdr"}]})
    with pytest.raises(NoClosedForm, match="evenly"):
        group_carried("all_reduce", range(4), 12, 1e6, six)
    with pytest.raises(NoClosedForm, match="levels of units of one size"):
        group_carried("all_reduce", range(2), 8, 1e6, network({"sites": [5, 3], "lan": "10gbe", "uplink": "wan"}))


def test_sums_among_nodes_are_the_fastest_hierarchy() -> None:
    dgx = TwoLevel(8, Link(0.6e-6, 300e9), Link(2e-6, 25e9))
    priced = group_carried("all_reduce", range(16), 16, 1e3, dgx, "auto")
    least = min(float(collective_s("all_reduce", 16, 1e3, dgx, name)) for name in HIERARCHICAL["all_reduce"])
    assert priced.seconds.item() == least
    interleaved = group_carried("all_reduce", range(0, 8, 2), 8, 1.0, SMALL, "auto")
    assert "leader" not in interleaved.names  # four groups share what a leader would have to itself


def test_levels_of_a_part_of_the_workers_are_those_that_it_fills_evenly() -> None:
    on = topology(SMALL, 8)
    assert [level_sizes(among(on, list(part)), len(part)) for part in (range(2, 4), range(4), range(1, 8, 2))] == [
        (2, 1, 1),
        (2, 2, 1),
        (1, 2, 2),
    ]
    uneven = [(0, 2, 3), (0, 1, 2), (0, 2, 3, 4, 5, 6), (4, 5, 0, 1), (0, 2, 1, 3)]
    assert [level_sizes(among(on, list(part)), len(part)) for part in uneven] == [None] * len(uneven)


def test_messages_between_stages_on_lines_between_places():
    """Stages 0 and 1 lie in one place, 2 and 3 in another: the line across is the slowest; two replicas share it."""
    near, far = Link(1e-3, 1e9), Link(50e-3, 25e6)
    lines = ((near, far), (far, near))
    for per, replicas, rate in (("connection", 1, 25e6), ("connection", 2, 25e6), ("pair", 2, 12.5e6)):
        network = Matrix(("a", "b"), lines, (0, 0, 1, 1) * replicas, per)
        assert message_s(range(4), 4 * replicas, 1e6, network) == pytest.approx(50e-3 + 1e6 / rate)
        np.testing.assert_allclose(
            message_s(range(4), 4 * replicas, np.array([[0.0], [1e6]]), network), [[50e-3], [50e-3 + 1e6 / rate]]
        )
    unequal = Sites((3, 5), near, Link(25e-3, 25e6))  # of four groups of two, three cross the uplinks at once
    assert message_s(range(0, 8, 4), 8, 1e6, unequal) == pytest.approx(51e-3 + 3 * 1e6 / 25e6)
