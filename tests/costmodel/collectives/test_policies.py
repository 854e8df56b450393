"""What libraries choose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    ALGORITHMS,
    COLLECTIVES,
    HIERARCHICAL,
    NETWORKS,
    OF_GLOO,
    POLICIES,
    Link,
    Sites,
    TwoLevel,
    algorithms_on,
    best_algorithm,
    chosen_algorithm,
)
from syncline.costmodel.collectives.policies import nccl_estimates_s
from syncline.errors import SpecError
from syncline.specs import network

NDR = Link(1e-6, 50e9, "ndr")


def renamed(of: Link | TwoLevel | Sites, name: str) -> Link | TwoLevel | Sites:
    """The network with this name everywhere."""
    if isinstance(of, TwoLevel):
        return replace(of, inner=replace(of.inner, name=name), outer=replace(of.outer, name=name), name=name)
    if isinstance(of, Sites):
        uplinks = tuple(replace(link, name=name) for link in of.uplinks)
        return replace(of, lan=replace(of.lan, name=name), uplink=uplinks, name=name)
    return replace(of, name=name)


@pytest.mark.parametrize("preset", NETWORKS)
def test_a_name_chooses_nothing(preset: str) -> None:
    """Estimates and choices of a network called after another fabric, or not called at all."""
    given_ = NETWORKS[preset].network
    for called in ("", "nvlink4", "pcie5", "ethernet"):
        other = renamed(given_, called)
        for nbytes in (1e3, 1e6, 1e9):
            assert nccl_estimates_s(16, nbytes, other) == nccl_estimates_s(16, nbytes, given_)
            for kind in COLLECTIVES:
                for policy in POLICIES:
                    chosen = [chosen_algorithm(policy, kind, 16, nbytes, each) for each in (given_, other)]
                    assert chosen[0] == chosen[1], (policy, kind, nbytes, called)


def test_the_fabric_says_who_is_in_one_node() -> None:
    """8 GPUs, 1 MB: one node on a switch inside it, 8 nodes on a network; LL128 with NVLink alone."""
    of = {fabric: nccl_estimates_s(8, 1e6, replace(NDR, fabric=fabric)) for fabric in ("nvlink", "pcie", "network")}
    steps_us = {"nvlink": 14 * 3.4, "pcie": 14 * 5.7, "network": 14 * 14.0}
    for fabric, latency_us in steps_us.items():
        across = 1.4 if fabric == "network" else 1.0  # NCCL's factor of Simple between nodes
        ring_s = 1e-6 * across * (8.4 + latency_us) + 1e6 / (50e9 * 8 / 14)
        assert of[fabric]["ring", "Simple"] == pytest.approx(ring_s, rel=1e-12)
    assert [("ring", "LL128") in of[fabric] for fabric in steps_us] == [True, False, False]
    with pytest.raises(SpecError, match=r"link.fabric: got 'ethernet'; expected one of .*'pcie'"):
        Link(1e-6, 1e9, fabric="ethernet")  # type: ignore[arg-type]


@given(st.sampled_from(POLICIES), st.sampled_from(COLLECTIVES), st.integers(1, 300), st.floats(0, 1e11))
def test_what_is_chosen_can_run(policy: str, kind: str, workers: int, nbytes: float) -> None:
    assert chosen_algorithm(policy, kind, workers, nbytes, NDR) in (*ALGORITHMS[kind], *OF_GLOO[kind])
    nodes = network("dgx-h100")
    possible = (*algorithms_on(kind, nodes, 8 * workers), *OF_GLOO[kind])
    assert chosen_algorithm(policy, kind, 8 * workers, nbytes, nodes) in possible


def test_names_stand_for_themselves_where_they_can() -> None:
    assert chosen_algorithm(None, "all_reduce", 8, 1.0, NDR) == "ring"
    assert chosen_algorithm("tree", "all_reduce", 8, 1.0, NDR) == "tree"
    assert chosen_algorithm("tree", "all_gather", 8, 1.0, NDR) == "ring"  # has none: its first
    assert chosen_algorithm("leader", "broadcast", 8, 1.0, NDR) == "binomial"
    assert chosen_algorithm("auto", "all_reduce", 8, 1.0, NDR) == best_algorithm("all_reduce", 8, 1.0, NDR)
    with pytest.raises(SpecError, match=r"algorithm: got 'ncl'; expected one of .*did you mean 'nccl'"):
        chosen_algorithm("ncl", "all_reduce", 8, 1.0, NDR)


def test_gloo_chooses_by_the_collective_alone() -> None:
    chosen = [{chosen_algorithm("gloo", kind, 8, n, NDR) for n in (4.0, 1e9)} for kind in COLLECTIVES]
    assert chosen == [
        {"gloo-ring"}, {"gloo-ring"}, {"gloo-all-reduce"}, {"gloo-posted"}, {"gloo-tree"}, {"gloo-posted"},
        {"gloo-reduce"}, {"message"},
    ]  # fmt: skip
    assert chosen_algorithm("gloo-tree", "all_reduce", 8, 1.0, NDR) == "ring"  # has none: its first


def test_an_estimate_of_nccl_by_hand() -> None:
    """64 nodes of one GPU on 50 GB/s, 1 MiB: no LL128 without NVLink."""
    estimates = nccl_estimates_s(64, 2.0**20, NDR)
    assert set(estimates) == {("ring", "LL"), ("tree", "LL"), ("ring", "Simple"), ("tree", "Simple")}
    ring_s = 1.4 * (8.4e-6 + 126 * 14e-6) + 2**20 / (50e9 * 64 / 126)
    assert estimates["ring", "Simple"] == pytest.approx(ring_s, rel=1e-12)
    assert estimates["ring", "LL"] == pytest.approx(6.6e-6 + 126 * 5e-6 + 2**20 / (20.4e9 * 64 / 126), rel=1e-12)
    tree_s = 8.4e-6 + 2 * 6 * 14e-6 + 2**20 / (0.92 * 50e9 * 0.5 / 2)  # 2^14 times 64 B: half of the bandwidth
    assert estimates["tree", "Simple"] == pytest.approx(tree_s, rel=1e-12)
    tree_ll_s = 6.8e-6 + 2 * 6 * 5e-6 + 2**20 / (0.92 * 50e9 / 3.8 * 0.5 / 2)
    assert estimates["tree", "LL"] == pytest.approx(tree_ll_s, rel=1e-12)


def test_an_estimate_of_nccl_on_nodes_by_hand() -> None:
    """8 GPUs on NVLink in each of 2 nodes with 8 cards: the link inside is the narrower one, LL128 is on."""
    on = network("dgx-h100")
    bus = min(on.inner.goodput_bytes_per_s, 8 * on.outer.goodput_bytes_per_s)
    estimates = nccl_estimates_s(16, 1e9, on)
    lat_s = 1e-6 * (14.0 + 28 * 1.9 + 2 * 4.0)
    assert estimates["ring", "LL128"] == pytest.approx(lat_s + 1e9 / (0.92 * bus * 16 / 30), rel=1e-12)
    tree_s = 1e-6 * (14.0 + 2 * (7 * 1.25 + 8.5)) + 1e9 / (0.92 * bus * 120 / 128 / 2)
    assert estimates["tree", "LL128"] == pytest.approx(tree_s, rel=1e-12)


def test_nccl_takes_trees_for_many_and_rings_for_large() -> None:
    chosen = [chosen_algorithm("nccl", "all_reduce", 64, nbytes, NDR) for nbytes in (1e3, 1e6, 1e10)]
    assert chosen == ["double-binary-tree", "double-binary-tree", "ring"]
    assert chosen_algorithm("nccl", "all_reduce", 8, 1e6, network("nvlink4")) == "nccl-nvlink"
    assert chosen_algorithm("nccl", "all_reduce", 1, 1e6, NDR) == "ring"
    on = TwoLevel(8, Link(1e-6, 450e9), Link(2e-6, 50e9))
    assert {chosen_algorithm("nccl", "all_reduce", 64, nbytes, on) for nbytes in (1e3, 1e11)} <= {
        *HIERARCHICAL["all_reduce"]
    }
