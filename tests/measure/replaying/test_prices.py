"""Groups on networks: the prices of projections, and of groups by themselves."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import NETWORKS, Link, collective_s
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.network.two_level import TwoLevel
from syncline.measure.recording.record import Started
from syncline.measure.replaying.replay import collective_timer
from syncline.sim import collective_finish_s

INNER, OUTER = Link(1e-6, 100e9, "inner"), Link(5e-6, 10e9, "outer")
NODES = TwoLevel(4, INNER, OUTER)


def started(kind: str, nbytes: int, ranks: tuple[int, ...] | range) -> Started:
    return Started(1, kind, kind, nbytes, tuple(ranks), ("all", 0), "x.py:1")


@pytest.mark.parametrize("wanted", ["auto", "ring", "nccl", None])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"])
def test_a_group_has_the_price_of_projections(kind: str, wanted: str | None) -> None:
    for network, ranks, first in (
        (NODES, range(4, 8), range(4)),
        (NODES, range(8, 16), range(8)),
        (NODES, range(1, 64, 4), range(0, 64, 4)),
        (NETWORKS["dgx-h100-superpod"].network, range(3, 64, 8), range(0, 64, 8)),
    ):
        priced = collective_prices(kind, np.array([64]), 1e6, network, wanted, groups=[first])
        assert collective_timer(network, 64, wanted)(started(kind, 1_000_000, ranks)) == priced.seconds.item()


@pytest.mark.parametrize("nbytes", [1_000, 100_000_000])
def test_an_all_reduce_of_all_is_the_fastest_hierarchy(nbytes: int) -> None:
    told = collective_timer(NODES, 16, "hierarchical")(started("all_reduce", nbytes, range(16)))
    assert told == pytest.approx(float(collective_s("all_reduce", 16, nbytes, NODES, "hierarchical")))
    assert told == pytest.approx(collective_finish_s("all_reduce", 16, nbytes, NODES, "hierarchical").max())


def test_a_group_like_no_others_is_simulated_by_itself() -> None:
    """Two pairs in two nodes of four, where nobody else sends: as pairs in nodes of two."""
    told = collective_timer(NODES, 64, "ring")(started("all_gather", 1_000_000, (0, 1, 4, 5)))
    pairs = TwoLevel(2, INNER, OUTER)
    assert told == pytest.approx(collective_finish_s("all_gather", 4, 1_000_000, pairs, "ring").max())


def test_a_price_is_the_closed_form_where_links_are_alike() -> None:
    event = started("all_gather", 1000, range(64))
    assert collective_timer(OUTER, 64, "ring")(event) == float(collective_s("all_gather", 64, 1000, OUTER, "ring"))
    assert collective_timer(OUTER, 64, None)(event._replace(ranks=(3,))) == 0
    assert collective_timer(NODES, 64, "hierarchical")(event) > 0
