"""Money, energy and carbon by hand; bytes that leave sites by counting messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import NETWORKS, Link
from syncline.costmodel.layouts.groups import data_centre_sizes, egress_bytes, site_sizes
from syncline.costmodel.prices import BOARD_POWER_W, PRICES, Prices, Usage, carbon_kg, cost, energy_j
from syncline.errors import SpecError
from syncline.specs import named_cluster

DAY = Usage(accelerators=64, seconds=86_400.0, busy_s=43_200.0, egress_bytes=2e12)


def test_money_by_hand() -> None:
    assert cost(Prices(accelerator_hour=2.5), DAY) == 64 * 24 * 2.5
    assert cost(Prices(accelerator_hour=2.5, egress_gb=0.02), DAY) == 64 * 24 * 2.5 + 2000 * 0.02
    reserved = Prices(accelerator_hour=4.0, reserved_hour=1.5, reserved=48)
    assert cost(reserved, DAY) == 24 * (48 * 1.5 + 16 * 4.0)
    assert cost(Prices(reserved_hour=1.5, reserved=100), DAY) == 24 * 64 * 1.5


def test_electricity_of_ones_own() -> None:
    prices = Prices(energy_kwh=0.2, pue=1.25, power_w=500, idle_power_w=100, carbon_kg_per_kwh=0.3)
    joules = energy_j(prices, DAY, 500.0, 100.0)
    assert joules == 1.25 * 64 * 43_200 * (500 + 100)
    assert cost(prices, DAY, joules) == pytest.approx(0.2 * joules / 3.6e6)
    assert carbon_kg(prices, joules) == pytest.approx(0.3 * joules / 3.6e6)
    assert carbon_kg(Prices(), joules) is None


def test_what_nobody_knows_is_not_told() -> None:
    assert cost(Prices(), DAY) is None
    assert cost(Prices(accelerator_hour=1, egress_gb=0.1), DAY._replace(egress_bytes=None)) is None
    assert cost(Prices(energy_kwh=0.2), DAY, None) is None
    assert cost(Prices(reserved_hour=1, reserved=8), DAY) is None  # 56 more, at no price
    assert cost(Prices(accelerator_hour=1), DAY._replace(egress_bytes=None)) == 64 * 24


def test_busy_is_at_most_all_the_time() -> None:
    assert energy_j(Prices(), Usage(1, 10.0, 99.0), 100.0, 10.0) == 1000


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1000), st.floats(0, 1))
def test_energy_is_between_idle_and_busy(seconds: float, busy: float, power: float, share: float) -> None:
    joules = energy_j(Prices(), Usage(2, seconds, busy, 0.0), power, share * power)
    assert 2 * share * power * seconds * (1 - 1e-9) <= joules <= 2 * power * seconds * (1 + 1e-9)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"accelerator_hour": -1.0}, r"prices\.accelerator_hour: got -1\.0; expected a number that is not negative"),
        ({"pue": 0.9}, r"prices\.pue: got 0\.9; expected at least 1"),
        ({"reserved": 8}, r"prices\.reserved: got 8; expected none, unless reserved_hour"),
        ({"power_w": 300.0, "idle_power_w": 400.0}, r"prices\.idle_power_w: got 400\.0; expected at most power_w, 300"),
    ],
)
def test_lists_that_cannot_be_are_refused(fields: dict[str, float], line: str) -> None:
    with pytest.raises(SpecError, match=line):
        Prices(**fields)  # type: ignore[arg-type]


def test_what_comes_along_is_dated_and_sourced() -> None:
    for name, prices in PRICES.items():
        assert prices.name == name and "2026" in prices.source and "github.com" in prices.source
    assert all(source for _, source in BOARD_POWER_W.values())
    assert PRICES["aws-p5-2026-11"].accelerator_hour == 6.88


def crossing(sends: list[tuple[int, int, float]], sizes: tuple[int, ...]) -> float:
    """Bytes of messages between sites."""
    site = [number for number, size in enumerate(sizes) for _ in range(size)]
    return sum(nbytes for one, other, nbytes in sends if site[one] != site[other])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple))
def test_bytes_between_sites_are_those_of_the_messages(sizes: tuple[int, ...]) -> None:
    n, p, k = 12.0, sum(sizes), len(sizes)
    first = [sum(sizes[:number]) for number in range(k)]  # a worker of each site, who carries what leaves it
    ring = [(first[i], first[(i + 1) % k]) for i in range(k)]
    halves = [(one, other, n / k) for one, other in ring for _ in range(k - 1)]
    assert egress_bytes("reduce_scatter", n, sizes) == pytest.approx(crossing(halves, sizes))
    assert egress_bytes("all_reduce", n, sizes) == pytest.approx(2 * crossing(halves, sizes))
    gathered = [(*ring[(i + hop) % k], n * sizes[i]) for i in range(k) for hop in range(k - 1)]
    assert egress_bytes("all_gather", n, sizes) == pytest.approx(crossing(gathered, sizes))
    pairs = [(a, b, n / p) for a in range(p) for b in range(p) if a != b]
    assert egress_bytes("all_to_all", n, sizes) == pytest.approx(crossing(pairs, sizes))
    assert egress_bytes("gather", n, sizes) == pytest.approx(crossing([(a, 0, n) for a in range(1, p)], sizes))
    assert egress_bytes("broadcast", n, sizes) == pytest.approx(crossing([(0, other, n) for other in first[1:]], sizes))


def test_sites_of_networks() -> None:
    assert site_sizes(NETWORKS["two-sites"].network, 7) == (4, 3)
    assert site_sizes(Link(0.01, 1e8, "line"), 3) == (1, 1, 1)
    assert site_sizes(Link(0.01, 1e8, "line"), 1) == (1,)


def test_no_bytes_leave_a_data_centre() -> None:
    """Short links end in one data centre, whatever their levels; longer ones lead from site to site."""
    networks = ("nvlink4", 8), ("infiniband", 4), ("10gbe", 4), ("dgx-h100-superpod", 512), ("p3.2xlarge", 4)
    for name, workers in networks:
        assert data_centre_sizes(NETWORKS[name].network, workers) == (workers,)
    two_sites = named_cluster("two-sites-a100").network
    for name in ("wan", "wan-metro"):
        assert data_centre_sizes(NETWORKS[name].network, 3) == (1, 1, 1)
    assert data_centre_sizes(two_sites, 64) == (32, 32) == site_sizes(two_sites, 64)
    outermost = replace(two_sites.levels[-1], link=replace(two_sites.levels[-1].link, data_centre=True))
    assert data_centre_sizes(replace(two_sites, levels=(*two_sites.levels[:-1], outermost)), 64) == (64,)
    assert data_centre_sizes(replace(NETWORKS["10gbe"].network, data_centre=False), 4) == (1, 1, 1, 1)
    with pytest.raises(SpecError, match="collective: got 'barrier'"):
        egress_bytes("barrier", 1.0, (1, 1))
