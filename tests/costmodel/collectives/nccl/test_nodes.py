"""NCCL among GPUs with NVLink: limits, how times change with size and nodes, and one time in every account."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import NETWORKS, Link, MultiLevel, TwoLevel, collective_s
from syncline.costmodel.collectives.nccl import NVLINK_LAPS, nvlink_algorithm
from syncline.costmodel.collectives.policies import chosen_algorithm
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.collectives.table import gpu_nodes
from syncline.costmodel.network.network_links import slow_down
from syncline.costmodel.traffic.call import Call
from syncline.sim import clock, collective_finish_s
from syncline.specs import network, network_fields

DGX = NETWORKS["dgx-h100"].network
H100_RATE = 0.98 * 20.6 / 25 * 450e9
"""What NCCL's rings reach of NVLink among H100: its src/graph/topo.h counts on 20.6 of 25 GB/s per link."""
kinds, sizes = st.sampled_from(sorted(NVLINK_LAPS)), st.floats(1e3, 1e11)


def seconds(kind: str, workers: int, nbytes: float, on: object = DGX) -> float:
    """Return the seconds of a collective that NCCL carries."""
    priced = collective_prices(kind, np.array([workers]), nbytes, on, "auto")  # type: ignore[arg-type]
    assert priced.names == ("nccl-nvlink",)
    return np.asarray(priced.seconds).item()


def test_large_tensors_take_the_bytes_over_the_narrowest_part() -> None:
    n = 1e13
    rates = {"dgx-a100": 8 * 0.93 * 25e9, "dgx-h100": H100_RATE, "dgx-b200": 8 * 0.93 * 50e9}  # cards, NVLink, cards
    for name, rate in rates.items():
        on = NETWORKS[name].network
        scatter_s = n * 31 / 32 / rate
        assert seconds("reduce_scatter", 32, n, on) == pytest.approx(scatter_s, rel=1e-3)
        assert seconds("all_gather", 32, n / 32, on) == pytest.approx(scatter_s, rel=1e-3)
        assert seconds("all_reduce", 32, n, on) <= 2 * scatter_s * 1.001  # a tree may be faster


def test_a_broadcast_passes_every_node_and_then_its_bytes() -> None:
    """NCCL's src/graph/tuning.cc, Simple: 14 us for each GPU."""
    for kind in ("broadcast", "reduce"):
        assert seconds(kind, 32, 1e13) == pytest.approx(1e13 / H100_RATE, rel=1e-3)
        further = seconds(kind, 1024, 1e12) - seconds(kind, 512, 1e12)
        assert further == pytest.approx(512 * 14e-6, rel=1e-3)


def test_switches_reduce_from_five_gpus_of_h100_and_six_of_b200_on() -> None:
    """NCCL's src/graph/tuning.cc: 0.85 and 0.74 of the rate; each GPU's links carry its bytes and its part of them."""
    n = 1e13
    for name, first, efficiency, link_rate in (
        ("nvlink4", 5, 0.85, H100_RATE),
        ("nvlink5", 6, 0.74, 0.98 * 40.1 * 18e9),
    ):
        link = NETWORKS[name].network
        ring_s = 2 * (first - 2) / (first - 1) * n / link_rate
        assert seconds("all_reduce", first - 1, n, link) == pytest.approx(ring_s, rel=1e-3)
        assert seconds("all_reduce", first, n, link) == pytest.approx(
            n * (1 + 1 / first) / (efficiency * link_rate), rel=1e-3
        )


def test_small_tensors_take_protocols_with_short_steps() -> None:
    """A byte among eight A100 takes 14 steps of LL, 0.6 us each; in nodes of H100 up and down a tree."""
    nvlink3 = NETWORKS["nvlink3"].network
    assert isinstance(nvlink3, Link)
    alone = replace(nvlink3, measured=None)
    assert seconds("all_reduce", 8, 1, alone) == pytest.approx(28.7e-6 + 6.6e-6 + 14 * 0.6e-6, rel=1e-6)
    tree_s = 58.2e-6 + 6.8e-6 + 2 * (7 * 0.6e-6 + 4 * 5e-6)
    assert seconds("all_reduce", 128, 1) == pytest.approx(tree_s, rel=1e-3)


def test_the_algorithm_changes_with_size() -> None:
    nodes = gpu_nodes(DGX, 128)
    names = [nvlink_algorithm("all_reduce", nbytes, nodes) for nbytes in (2**10, 2**22, 2**30)]
    assert names == ["tree LL", "tree LL128", "NVLSTree"]
    assert nvlink_algorithm("reduce_scatter", 2**33, nodes) == "ring Simple"
    assert nvlink_algorithm("all_reduce", 2**33, gpu_nodes(NETWORKS["nvlink4"].network, 8)) == "NVLS"


def test_switches_of_the_network_sum_where_they_can() -> None:
    """SHARP: each card sends its part of the bytes once, and not 2 (P - 1)/P times."""
    n = 1e13
    for name, algorithm, rate in (
        ("dgx-h100", "NVLS with SHARP", 0.85 * H100_RATE / (1 + 1 / 8)),  # NVLink decides
        ("dgx-a100", "CollNetDirect", 0.98 * 240e9 / (2 * 7 / 8)),
        ("p4d.24xlarge", "CollNetDirect", 4 * 0.93 * 12.5e9),  # cards decide
    ):
        nodes = NETWORKS[name].network
        assert isinstance(nodes, TwoLevel)
        sums = replace(nodes, outer=replace(nodes.outer, sharp=True))
        assert nvlink_algorithm("all_reduce", n, gpu_nodes(sums, 128)) == algorithm
        assert seconds("all_reduce", 128, n, sums) == pytest.approx(n / rate, rel=1e-3)
        in_a_node = (collective_s("all_reduce", 8, n, on, "nccl-nvlink") for on in (sums, nodes))
        assert len(set(in_a_node)) == 1
        assert seconds("reduce_scatter", 128, n, sums) == seconds("reduce_scatter", 128, n, nodes)
        for evaluator in ("auto", "events"):
            done = collective_finish_s("all_reduce", 128, 1e8, sums, "nccl-nvlink", evaluator=evaluator)
            assert done.max() == pytest.approx(seconds("all_reduce", 128, 1e8, sums), rel=1e-9)
    described = {"preset": "dgx-h100", "between": {"preset": "ib-ndr", "sharp": True}}
    assert network(described).outer.sharp and network(network_fields(network(described))) == network(described)
    small = seconds("all_reduce", 128, 1, network(described))
    assert small == pytest.approx(58.2e-6 + 25e-6 + 18e-6, rel=1e-3)


def test_every_card_of_a_node_carries() -> None:
    """Eight GPUs in 8, 4 and 2 nodes, as NVIDIA/nccl issue 569: 363, 173 and 132 ms for 1.6 GB."""
    n, card = 1.6e9, Link(2e-6, 12.5e9)
    times = [seconds("all_reduce", 8, n, TwoLevel(g, NETWORKS["nvlink3"].network, card)) for g in (2, 4)]  # type: ignore[arg-type]
    assert times[0] / times[1] == pytest.approx(2.0, rel=0.05)
    dgx_2 = [seconds("all_reduce", 8, n, network({"preset": "dgx-2", "per_node": g, "nics": g})) for g in (2, 4)]
    ring_s = 2 * 7 / 8 * n / (0.93 * 12.5e9)
    assert dgx_2 == pytest.approx([ring_s / 2, ring_s / 4], rel=0.02)


@given(kinds, st.sampled_from([2, 8, 16, 64, 1024]), sizes, st.floats(1.01, 3.0))
def test_more_bytes_take_longer(kind: str, workers: int, nbytes: float, factor: float) -> None:
    assert seconds(kind, workers, nbytes) < seconds(kind, workers, factor * nbytes)


@given(kinds, st.sampled_from([2, 8, 16, 64]), sizes, st.floats(0.1, 10.0))
def test_a_slower_network_takes_as_much_longer(kind: str, workers: int, nbytes: float, factor: float) -> None:
    assert seconds(kind, workers, nbytes, slow_down(DGX, factor)) == pytest.approx(
        factor * seconds(kind, workers, nbytes), rel=1e-9
    )


@given(kinds, sizes)
def test_many_settings_are_priced_as_each_alone(kind: str, nbytes: float) -> None:
    workers = np.array([16, 64, 512])
    priced = collective_prices(kind, workers, nbytes, DGX, "auto")
    each = [float(collective_s(kind, count, nbytes, DGX, "nccl-nvlink")) for count in workers.tolist()]
    np.testing.assert_allclose(priced.seconds, each, rtol=1e-12)


@pytest.mark.parametrize("kind", sorted(NVLINK_LAPS))
@pytest.mark.parametrize("workers", [4, 16])
def test_closed_form_events_and_clock_agree(kind: str, workers: int) -> None:
    expected = seconds(kind, workers, 1e8)
    for evaluator in ("auto", "events"):
        done = collective_finish_s(kind, workers, 1e8, DGX, "nccl-nvlink", evaluator=evaluator)
        assert done.max() == pytest.approx(expected, rel=1e-12)
    for policy in ("auto", "nccl"):
        assert chosen_algorithm(policy, kind, workers, 1e8, DGX) == "nccl-nvlink"
    told = clock([Call(0, kind, 1e8)], 1.0, DGX, workers, 1, algorithm="auto")
    assert told.wall_s == pytest.approx(1 + expected, rel=1e-9)


@pytest.mark.parametrize("kind", sorted(NVLINK_LAPS))
def test_an_algorithm_that_the_user_names_is_kept(kind: str) -> None:
    for workers in (16, 64):
        priced = collective_prices(kind, np.array([workers]), 1e8, DGX, "hierarchical")
        assert priced.names == ("hierarchical",)
        expected_s = float(collective_s(kind, workers, 1e8, DGX, "hierarchical"))
        assert np.asarray(priced.seconds).item() == pytest.approx(expected_s, rel=1e-12)


def test_groups_have_their_share_of_the_cards() -> None:
    """Two groups of four GPUs in each of four nodes: each has four cards."""
    half = collective_prices("reduce_scatter", np.array([32]), 1e12, DGX, "auto", groups=[range(0, 32, 2)])
    assert half.names == ("nccl-nvlink",)
    assert half.seconds.item() == pytest.approx(1e12 * 15 / 16 / (0.93 * 4 * 50e9), rel=1e-3)


def test_other_collectives_and_narrower_levels_go_level_by_level() -> None:
    assert collective_prices("all_to_all", np.array([16]), 1e9, DGX, "auto").names != ("nccl-nvlink",)
    sites = network({"levels": [{"units": 8, "link": "nvlink4"}, {"units": 2, "link": "ib-ndr"},
                                {"units": 2, "link": "20ms,1Gbit/s", "rails": 1}]})  # fmt: skip
    assert isinstance(sites, MultiLevel)
    assert collective_prices("all_reduce", np.array([32]), 1e9, sites, "auto").names != ("nccl-nvlink",)
    slow = TwoLevel(8, NETWORKS["nvlink4"].network, Link(25e-3, 125e6))  # type: ignore[arg-type]
    assert seconds("all_reduce", 16, 1e3, slow) > 2 * 25e-3


def test_users_name_the_generation_or_the_rate() -> None:
    node = network({"latency": "1us", "bandwidth": "450 GB/s", "fabric": "nvlink"})
    assert node.nvlink == NETWORKS["nvlink4"].network.nvlink and network(network_fields(node)) == node
    older = network({"preset": "nvlink4", "nvlink": 3})
    assert older.nvlink.switches is None and replace(older, nvlink=node.nvlink) == NETWORKS["nvlink4"].network
    assert network({"latency": "1us", "bandwidth": "64 GB/s", "fabric": "pcie"}).nvlink is None
