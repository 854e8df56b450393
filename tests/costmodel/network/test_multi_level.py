"""Levels: those of links, nodes and sites are the same networks; by hand; and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    HIERARCHICAL,
    NETWORKS,
    Level,
    Link,
    MultiLevel,
    Sites,
    TwoLevel,
    chosen_algorithm,
    closed_form_s,
    collective_s,
)
from syncline.costmodel.network.paths import Network
from syncline.costmodel.network.two_level import levels_of
from syncline.errors import SpecError
from syncline.sim import Round, collective_finish_s, rounds_finish_s
from tests.costmodel.network.topologies import all_paths, assert_same, channels
from tests.sim.strategies import any_links

NVLINK, CARD = Link(1e-6, 400.0, "nvlink", fabric="nvlink"), Link(2e-6, 50.0, "card")
SPINE, WAN = Link(1e-6, 50.0, "spine"), Link(25e-3, 10.0, "wan")
CLUSTER = MultiLevel((Level(8, NVLINK), Level(2, CARD), Level(2, SPINE, oversubscription=2), Level(2, WAN, 1)), "c")


def the_same(one: Network, other: Network, workers: int) -> None:
    """Topologies, closed forms, lockstep and events."""
    assert_same(one.among(workers), other.among(workers))
    for kind, algorithm in [("all_reduce", "hierarchical"), ("all_reduce", "leader"), ("all_gather", "ring")]:
        for by in ("auto", "events"):
            times = [collective_finish_s(kind, workers, 1e6, on, algorithm, evaluator=by) for on in (one, other)]
            np.testing.assert_allclose(*times, rtol=1e-12)
    for algorithm in HIERARCHICAL["all_reduce"]:
        told = [closed_form_s("all_reduce", workers, 1e6, on, algorithm) for on in (one, other)]
        assert told[0] == (None if told[1] is None else pytest.approx(told[1], rel=1e-12))
    for name in ("auto", "nccl"):
        choices = [chosen_algorithm(name, "all_reduce", workers, 1e6, on) for on in (one, other)]
        assert choices[0] == choices[1]


@given(any_links(), any_links(), st.integers(1, 4), st.integers(1, 4), st.data())
def test_two_levels_are_nodes(inner: Link, outer: Link, size: int, nodes: int, data: st.DataObject) -> None:
    nics = data.draw(st.one_of(st.none(), st.integers(1, size)))
    two = TwoLevel(size, inner, outer, nics)
    for units in (None, nodes):
        levels = MultiLevel((Level(size, inner), Level(units, outer, nics, shares_lower_links=False)))
        the_same(levels, two, size * nodes)
    assert levels_of(two) == levels_of(MultiLevel(levels_of(two)))


@given(any_links(), any_links(), st.integers(1, 4), st.integers(1, 3))
def test_two_levels_with_one_uplink_are_sites(lan: Link, uplink: Link, size: int, count: int) -> None:
    sites = Sites(count, lan, uplink)
    across = replace(uplink, latency_s=2 * uplink.latency_s)
    for units in (None, size):
        the_same(MultiLevel((Level(units, lan), Level(count, across, 1, shares_lower_links=True))), sites, size * count)
    the_same(MultiLevel(levels_of(sites)), sites, size * count)


@given(any_links(), st.integers(1, 8))
def test_one_level_is_a_link(link: Link, workers: int) -> None:
    for level in (Level(None, link), Level(workers, link)):
        assert_same(MultiLevel((level,)).among(workers), link.among(workers))
        assert collective_s("all_gather", workers, 1e6, MultiLevel((level,))) == collective_s(
            "all_gather", workers, 1e6, link
        )


def test_sockets_in_a_node_share_what_is_between_them_and_have_a_card_each() -> None:
    """Two sockets of two workers in a node: their bus is shared, the cards are theirs, and workers leave by them."""
    bus = Link(1e-6, 20.0, "bus")
    on = MultiLevel(
        (Level(2, NVLINK), Level(2, bus, 1, shares_lower_links=True), Level(None, CARD, 2, shares_lower_links=False))
    )
    ways = on.among(8)
    rates = [ways.bandwidth_bytes_per_s[channels(ways, *pair)].tolist() for pair in [(0, 1), (0, 2), (0, 4)]]
    assert rates == [[400.0] * 2, [400.0, 20.0, 20.0, 400.0], [50.0, 50.0]]
    assert [channels(ways, local, 4)[0] for local in range(4)] == [c for c in (24, 25) for _ in "12"]
    inside = 2 * (1e-6 + 100 / 2 / 400)  # of 100 bytes, there and back
    between_sockets = 2 * (2e-6 + 25 / (20 / 2))  # of 50 each, two on the bus
    between_nodes = 2 * (2e-6 + 12.5 / (50 / 2))  # of 25 each, two on a card
    assert collective_s("all_reduce", 8, 100, on, "hierarchical") == pytest.approx(
        inside + between_sockets + between_nodes
    )


def test_the_links_that_a_message_passes() -> None:
    ways = CLUSTER.among(64)
    here, there = np.zeros(4, dtype=int), np.array([1, 8, 16, 32])
    paths = ways.paths(here, there)
    np.testing.assert_allclose(paths.latency_s, [1e-6, 2e-6, 3e-6, 25.003e-3])
    rates = [ways.bandwidth_bytes_per_s[channels(ways, 0, other)].tolist() for other in there]
    assert rates[:2] == [[400.0] * 2, [50.0] * 2]  # NVLink; two cards
    leaf = 16 * 50.0 / 2  # sixteen cards below a leaf, 2:1
    assert rates[2] == [50.0, 50.0, leaf, leaf, 50.0, 50.0]
    assert rates[3] == [50.0, 50.0, leaf, 10.0, 10.0, leaf, 50.0, 50.0]


def test_fewer_workers_fill_what_they_reach() -> None:
    assert [CLUSTER.sizes(workers) for workers in (1, 8, 16, 32, 64)] == [
        (1, 1, 1, 1), (8, 1, 1, 1), (8, 2, 1, 1), (8, 2, 2, 1), (8, 2, 2, 2)
    ]  # fmt: skip
    open_nodes = MultiLevel((Level(8, NVLINK), Level(None, CARD), Level(2, WAN, 1)))
    assert open_nodes.sizes(128) == (8, 8, 2)
    with pytest.raises(SpecError, match=r"workers: got 24; expected a multiple of 16, the units around"):
        open_nodes.sizes(24)
    with pytest.raises(SpecError, match=r"workers: got 12; expected a multiple of 8, the workers of a unit of level 0"):
        CLUSTER.among(12)
    with pytest.raises(SpecError, match=r"workers: got 128; expected at most 64"):
        CLUSTER.among(128)


def across(units: int, size: int, nbytes: float) -> list[Round]:
    """The part of an all-to-all between neighbouring units of so many workers: each sends to all of the next unit."""
    worker = np.arange(units * size)
    unit, local = np.divmod(worker, size)
    return [Round(worker, (unit + 1) % units * size + (local + k) % size, nbytes) for k in range(size)]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_an_all_to_all_across_leaves_is_slowed_by_the_oversubscription(k: float) -> None:
    """All cards of a leaf send at B into uplinks of 1/k of them together: n messages take ``n (alpha + k b / B)``."""
    size, nbytes = 4, 1e3
    tree = MultiLevel((Level(size, CARD), Level(2, SPINE, oversubscription=k)))
    for by in ("lockstep", "events"):
        finish_s = rounds_finish_s(across(2, size, nbytes), 2 * size, tree, evaluator=by)
        np.testing.assert_allclose(finish_s, size * (3e-6 + k * nbytes / 50.0), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_reduction_between_leaves_is_slowed_by_the_oversubscription(k: float) -> None:
    size, nbytes = 4, 8e3
    tree = MultiLevel((Level(size, CARD), Level(2, SPINE, oversubscription=k)))
    seconds = collective_s("all_reduce", 2 * size, nbytes, tree, "hierarchical-doubling")
    inside = 2 * (size - 1) * (2e-6 + nbytes / size / 50.0)
    assert seconds == pytest.approx(inside + 3e-6 + nbytes / size / (50.0 / k))
    played = collective_finish_s("all_reduce", 2 * size, nbytes, tree, "hierarchical-doubling").max()
    assert played == pytest.approx(seconds, rel=1e-12)


def rail_optimised(cross_rail: str | None, k: float = 1) -> MultiLevel:
    """Two pods of two nodes of four, a card and a rail each."""
    node, pod = Level(4, NVLINK), Level(2, CARD, cross_rail=cross_rail)  # type: ignore[arg-type]
    return MultiLevel((node, pod, Level(2, SPINE, oversubscription=k, shares_lower_links=True)))


def rates_of(on: MultiLevel, sender: int, receiver: int) -> list[float]:
    made = on.among(16)
    return made.bandwidth_bytes_per_s[channels(made, sender, receiver)].tolist()


def test_along_rails_and_across_them() -> None:
    over_spine, inside = rail_optimised("spine", 2), rail_optimised("inside", 2)
    switch = 2 * 50.0 / 2  # two cards at each rail's switch of a pod, 2:1
    for on in (over_spine, inside):
        assert rates_of(on, 1, 5) == [50.0, 50.0]  # its own rail's switch
        assert rates_of(on, 1, 3) == [400.0, 400.0]  # within the node
    assert rates_of(over_spine, 1, 13) == [50.0, 50.0, switch, switch, 50.0, 50.0]  # a rail of another pod
    assert rates_of(over_spine, 1, 6) == [50.0, 50.0, switch, switch, 50.0, 50.0]  # another rail of this pod
    assert rates_of(inside, 1, 6) == [400.0, 400.0, 50.0, 50.0]  # to worker 2 first, by NVLink
    latency_s = [all_paths(on.among(16)).latency_s for on in (over_spine, inside)]
    pair = 1 * 15 + 5  # from 1 to 6
    np.testing.assert_allclose([one[pair] for one in latency_s], [3e-6, 3e-6])
    none = rail_optimised(None)
    assert rates_of(none, 1, 6) == [50.0, 50.0]  # one switch for all cards of a pod


@pytest.mark.parametrize("k", [1, 2, 8])
def test_a_ring_along_rails_is_not_slowed_by_the_spine(k: float) -> None:
    """All-reduces of 8 workers, two nodes of a pod, keep to the switches of their rails."""
    for cross_rail in ("spine", "inside"):
        on = rail_optimised(cross_rail, k)
        nodes = TwoLevel(4, NVLINK, CARD)
        for kind in ("hierarchical", "hierarchical-rabenseifner"):
            seconds = collective_s("all_reduce", 8, 1e5, on, kind)
            assert seconds == collective_s("all_reduce", 8, 1e5, nodes, kind)
            assert collective_finish_s("all_reduce", 8, 1e5, on, kind).max() == pytest.approx(seconds, rel=1e-12)
    pods = collective_s("all_reduce", 16, 1e5, rail_optimised("spine", k), "hierarchical")
    inside, along = 2 * 3 * (1e-6 + 1e5 / 4 / 400.0), 2 * (2e-6 + 1e5 / 8 / 50.0)
    assert pods == pytest.approx(inside + along + 2 * (3e-6 + 1e5 / 16 / (50.0 / k)))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_across_rails_everybody_pays_the_oversubscription_or_nvlink(k: float) -> None:
    """Every worker to the next rail of the other node: over the spine 1/k of a card each; NVLink is fast enough."""
    worker, nbytes = np.arange(8), 1e3
    other = Round(worker, (worker + 4) % 8 // 4 * 4 + (worker + 1) % 4, nbytes)
    for cross_rail, alpha_s, rate in (("spine", 3e-6, 50.0 / k), ("inside", 3e-6, 50.0), (None, 2e-6, 50.0)):
        for by in ("lockstep", "events"):
            finish_s = rounds_finish_s([other], 8, rail_optimised(cross_rail, k), evaluator=by)
            np.testing.assert_allclose(finish_s, alpha_s + nbytes / rate, rtol=1e-12)


def test_a_superpod_keeps_rings_along_its_rails() -> None:
    """Eight machines of a scalable unit take what they take without rails; a message to another rail one hop more."""
    pod, nodes = NETWORKS["dgx-h100-superpod"].network, NETWORKS["dgx-h100"].network
    seconds = [collective_s("all_reduce", 64, 1e9, on, "hierarchical") for on in (pod, nodes)]
    assert seconds[0] == seconds[1]
    latency_s = pod.among(512).paths(np.zeros(3, dtype=int), np.array([8, 9, 256])).latency_s
    np.testing.assert_allclose(latency_s, [2e-6, 2.5e-6, 2.5e-6])
    assert max(map(len, pod.describe().split(", "))) < 80


def test_what_it_is_for_people() -> None:
    assert CLUSTER.describe() == "8 by nvlink, 2 by card, 2 by spine (2:1), 2 by wan (1 rail)"
    named = MultiLevel((Level(8, NVLINK, name="node"), Level(None, CARD, 4, cross_rail="inside", name="pod")))
    assert named.describe() == "node of 8 by nvlink, pod of any by card (4 rails, rails joined inside)"
    preset = NETWORKS["dgx-a100"].network
    assert isinstance(preset, TwoLevel)
    assert MultiLevel(levels_of(preset)).describe() == "8 by nvlink3, any by ib-hdr"


@pytest.mark.parametrize(
    ("levels", "line"),
    [
        ((), "network.levels: got []; expected at least one level"),
        ((Level(0, NVLINK),), "network.levels.0.units: got 0"),
        ((Level(2, NVLINK, 2),), "network.levels.0.rails: got 2; expected none in the innermost level"),
        ((Level(2, CARD), Level(2, WAN)), "network.levels.1.rails: got None; expected the uplinks of a unit below"),
        ((Level(2, CARD), Level(2, WAN, 0)), "network.levels.1.rails: got 0"),
        ((Level(2, CARD), Level(2, WAN, 1, 0.5)), "network.levels.1.oversubscription: got 0.5; .*2 is 2:1"),
        ((Level(None, CARD), Level(None, WAN, 1)), "network.levels.1.units: got None; .*only one level"),
        ((Level(2, NVLINK), Level(2, CARD, cross_rail="spine")), "network.levels.1.cross_rail: got 'spine'; .*above"),
        ((Level(2, CARD, cross_rail="inside"),), "network.levels.0.cross_rail: got 'inside'; .*second level"),
        (
            (Level(2, NVLINK), Level(2, CARD, cross_rail="up")),
            "cross_rail: got 'up'; expected one of 'inside', 'spine'",
        ),  # type: ignore[arg-type]
        (
            (Level(2, CARD), Level(2, CARD, 2, cross_rail="inside")),
            "network.levels.1.shares_lower_links: got None; .*of their own",
        ),
    ],
)
def test_what_cannot_be(levels: tuple[Level, ...], line: str) -> None:
    with pytest.raises(SpecError, match=line.replace("[]", r"\[\]")):
        MultiLevel(levels)


def test_rails_that_a_unit_does_not_have_workers_for() -> None:
    with pytest.raises(SpecError, match=r"network.levels.1.rails: got 3; expected at most 2"):
        MultiLevel((Level(2, NVLINK), Level(2, CARD, 3))).among(4)
    with pytest.raises(SpecError, match=r"network.levels.1.rails: got 2; expected a number that divides the 3"):
        MultiLevel((Level(3, NVLINK), Level(2, CARD, 2, cross_rail="inside"))).among(6)
    with pytest.raises(SpecError, match="sites of one size and equal uplinks"):
        levels_of(Sites((2, 3), CARD, WAN))
