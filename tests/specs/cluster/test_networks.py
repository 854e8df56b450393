from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import NETWORKS, Edge, Graph, Link, Network, Sites, Tcp, TwoLevel
from syncline.errors import SpecError, SynclineError
from syncline.specs import network, network_fields
from syncline.units import parse_bandwidth

LINKS = {
    "nvlink2": (0.6e-6, "1200 Gbit/s"),
    "nvlink3": (0.6e-6, "2400 Gbit/s"),
    "p3.2xlarge": (0.87e-3, f"{8.952 / 0.9904} Gbit/s"),
    "p3.2xlarge-gloo": (0.231e-3, "10 Gbit/s"),
    "g6e.2xlarge": (50e-6, f"{14.9 * 9015 / 8949} Gbit/s"),
    "nvlink5": (0.6e-6, "7200 Gbit/s"),
    "nvlink4": (0.6e-6, "3600 Gbit/s"),  # half of the 900 GB/s that are sold for both directions
    "pcie5": (1e-6, "504.1230769230769 Gbit/s"),
    "infiniband": (2e-6, "100 Gbit/s"),
    "ib-hdr": (2e-6, "200 Gbit/s"),
    "ib-hdr-4": (2e-6, "800 Gbit/s"),
    "ib-hdr-8": (2e-6, "1600 Gbit/s"),
    "ib-ndr": (2e-6, "400 Gbit/s"),
    "ib-ndr-4": (2e-6, "1600 Gbit/s"),
    "ib-ndr-8": (2e-6, "3200 Gbit/s"),
    "roce-100": (3e-6, "100 Gbit/s"),
    "100gbe": (50e-6, "100 Gbit/s"),
    "25gbe": (50e-6, "25 Gbit/s"),
    "10gbe": (50e-6, "10 Gbit/s"),
    "1gbe": (50e-6, "1 Gbit/s"),
    "wan": (25e-3, "1 Gbit/s"),  # a round trip of 50 ms
    "wan-metro": (0.5e-3, "10 Gbit/s"),
    "wan-continental": (22.5e-3, "1 Gbit/s"),
    "wan-intercontinental": (45e-3, "1 Gbit/s"),
    "home-broadband": (15e-3, "100 Mbit/s"),
    "pcie4": (1e-6, "252.06153846153846 Gbit/s"),
    "infinity-fabric": (1e-6, "3584 Gbit/s"),  # 7 links of 64 GB/s each way
    "ib-xdr": (2e-6, "800 Gbit/s"),
    "roce-400": (3e-6, "400 Gbit/s"),
    "tpu-v5e": (1e-6, "1600 Gbit/s"),
    "tpu-v5p": (1e-6, "4800 Gbit/s"),
}


def test_link_presets_have_the_numbers_of_their_sources() -> None:
    links = {name: preset.network for name, preset in NETWORKS.items() if isinstance(preset.network, Link)}
    assert set(links) == set(LINKS)
    for name, (latency_s, bandwidth) in LINKS.items():
        assert links[name].latency_s == latency_s
        assert links[name].bandwidth_bytes_per_s == pytest.approx(parse_bandwidth(bandwidth), rel=1e-12)
    assert network("home-broadband").goodput_bytes_per_s == parse_bandwidth("20 Mbit/s")


def test_presets_have_their_names_and_say_where_they_are_from() -> None:
    assert all(preset.network.name == name and preset.source for name, preset in NETWORKS.items())


def test_presets_of_several_links_are_made_of_link_presets() -> None:
    dgx = network("dgx-h100")
    assert isinstance(dgx, TwoLevel)
    assert (dgx.per_node, dgx.nics, dgx.inner, dgx.outer) == (8, 8, network("nvlink4"), network("ib-ndr"))
    for name, wan in (("two-sites", "wan"), ("two-homes", "home-broadband")):
        two, apart = network(name), network(wan)
        assert isinstance(two, Sites)
        across = two.among(2).paths(np.array([0]), np.array([1])).latency_s[0]
        assert across == pytest.approx(two.lan.latency_s + apart.latency_s)
        assert two.link_across().goodput_bytes_per_s == min(apart.goodput_bytes_per_s, two.lan.goodput_bytes_per_s)


def test_every_way_to_describe_a_network(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("latency: 50 us\nbandwidth: 10 Gbit/s\n")
    expected = (50e-6, 1.25e9)
    described = [
        "50us, 10Gbit/s",
        {"latency": 50e-6, "bandwidth": "1.25 GB/s"},
        file,
        str(file),
        "10GbE",
        Link(*expected),
    ]
    for value in described:
        link = network(value)  # type: ignore[arg-type]
        assert (link.latency_s, link.bandwidth_bytes_per_s) == expected
    assert network(file).name == "lab"


NODES = {"per_node": 8, "inside": "nvlink4", "between": "1us,100Gbit/s", "nics": 4, "name": "nodes"}
SITES = {"sites": [4, 3], "lan": "10gbe", "uplink": ["wan", {"latency": "1 ms", "bandwidth": "1 Gbit/s"}]}
GRAPH = {
    "hosts": ["a", "b"],
    "edges": [
        {"from": "a", "to": "s", "latency": "25us", "bandwidth": "10 Gbit/s", "upload": "1 Gbit/s"},
        {"from": "b", "to": "s", "preset": "10gbe", "latency": "25us"},
        {"from": "a", "to": "b", "preset": "wan", "directed": True},
    ],
    "routes": [["a", "b"]],
}


def test_a_link_has_all_its_fields() -> None:
    fields = {"latency": "1 ms", "bandwidth": "8 Mbit/s", "upload": "4 Mbit/s", "overhead": "2 us", "efficiency": 0.5}
    assert network(fields | {"name": "line"}) == Link(1e-3, 1e6, "line", 2e-6, 0.5, 5e5)
    assert network({"latency": 0, "bandwidth": 1.0, "duplex": "half"}) == Link(0.0, 1.0, duplex="half")
    assert network({"latency": 0, "bandwidth": 1.0, "fabric": "pcie"}) == Link(0.0, 1.0, fabric="pcie")
    assert network({"preset": "nvlink4", "name": "ours"}) == replace(network("nvlink4"), name="ours")
    near = network({"preset": "p3.2xlarge", "name": "ours"})
    assert near.data_centre and network({"preset": "p3.2xlarge", "latency": "10 ms"}).data_centre is None
    assert network({"preset": "wan", "data_centre": True}) == replace(network("wan"), data_centre=True)
    assert network({"preset": "home-broadband", "upload": 1e6}) == replace(
        network("home-broadband"), upload_bytes_per_s=1e6
    )


def test_rails_are_links_side_by_side() -> None:
    assert network({"preset": "ib-ndr", "rails": 8, "name": "ib-ndr-8"}) == network("ib-ndr-8")
    home = network({"preset": "home-broadband", "rails": 2})
    assert (home.bandwidth_bytes_per_s, home.upload_bytes_per_s) == (25e6, 5e6)


def test_a_lost_packet_is_sent_again() -> None:
    assert network({"preset": "wan", "loss": 0.01}) == replace(network("wan"), efficiency=0.99)
    assert network({"preset": "wan", "loss": 0.01, "efficiency": 0.5}).efficiency == pytest.approx(0.495)


def test_tcp_streams_are_bounded_by_their_losses() -> None:
    # Mathis: 1460 B / 50 ms x sqrt(1.5 / 0.01) = 357,625 B/s for each stream
    one, eight, many = (network({"preset": "wan", "loss": 0.01, "streams": n}) for n in (1, 8, 1000))
    assert one.goodput_bytes_per_s == pytest.approx(357_625, rel=1e-5)
    assert eight.goodput_bytes_per_s == pytest.approx(8 * 357_625, rel=1e-5)
    assert many.goodput_bytes_per_s == pytest.approx(0.99 * 125e6)  # no more than repeats leave of the line
    assert network({"preset": "wan", "loss": 0, "streams": 1}) == network("wan")
    # half of the way on each of two uplinks: the same round trip
    two = network({"sites": 2, "lan": "10gbe", "uplink": {"preset": "wan", "loss": 0.01, "streams": 1}})
    assert isinstance(two, Sites)
    assert two.uplinks[0].goodput_bytes_per_s == pytest.approx(one.goodput_bytes_per_s)


def test_windows_bound_what_tcp_carries() -> None:
    # 3 MiB in 50 ms; more connections carry more, and no more than the line
    one, two, many = (network({"preset": "wan", "tcp": {"connections": n}}) for n in (1, 2, 16))
    assert one == network({"preset": "wan", "tcp": True}) and one.goodput_bytes_per_s == pytest.approx(3 * 2**20 / 0.05)
    assert two.goodput_bytes_per_s == pytest.approx(min(2 * 3 * 2**20 / 0.05, 125e6))
    assert (
        many == replace(network("wan"), tcp=Tcp(connections=16))
        and network({"preset": "wan", "tcp": False}).tcp is None
    )
    assert network({"preset": "ib-ndr", "tcp": {"slow_start": False}}) == network("ib-ndr")  # nothing is far there
    assert network({"preset": "wan", "tcp": {"slow_start": False}}) == replace(one, tcp=None)
    small = network({"preset": "wan", "tcp": {"window": "1 MiB", "max_flow_rate": "100 Mbit/s"}})
    assert small.goodput_bytes_per_s == pytest.approx(12.5e6)
    lossy = network({"preset": "wan", "tcp": {"loss": 0.01}})
    assert replace(lossy, tcp=None) == network({"preset": "wan", "loss": 0.01, "streams": 1})
    for link in (one, small, lossy):
        assert network(network_fields(link)) == link and "windows that open" in link.describe()
    # half of the way on each of two uplinks: the same round trip
    sites = network({"sites": 2, "lan": "10gbe", "uplink": {"preset": "wan", "tcp": True}})
    assert isinstance(sites, Sites)
    assert sites.uplinks[0].goodput_bytes_per_s == pytest.approx(one.goodput_bytes_per_s)
    assert sites.uplinks[0].tcp is None


def test_nodes_sites_and_graphs() -> None:
    ten = network("10gbe")
    assert network(NODES) == TwoLevel(8, network("nvlink4"), Link(1e-6, 12.5e9, "1us,100Gbit/s"), 4, "nodes")
    # a preset's latency is from site to site, half of it on each uplink; numbers are what they are
    uplinks = (replace(network("wan"), latency_s=12.5e-3), Link(1e-3, 125e6))
    assert network(SITES) == Sites((4, 3), ten, uplinks)
    edges = (
        Edge("a", "s", Link(25e-6, 1.25e9, upload_bytes_per_s=125e6)),
        Edge("b", "s", replace(ten, latency_s=25e-6)),
        Edge("a", "b", network("wan"), directed=True),
    )
    assert network(GRAPH) == Graph(("a", "b"), edges, (("a", "b"),))


def test_a_mapping_can_be_text() -> None:
    assert network("{preset: ib-ndr, rails: 8, name: ib-ndr-8}") == network("ib-ndr-8")
    assert network(json.dumps(GRAPH)) == network(GRAPH)


def test_a_preset_can_have_another_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("preset: dgx-h100\n")
    assert network(file) == replace(network("dgx-h100"), name="mine")
    assert network({"preset": "two-sites"}) == network("two-sites")


def test_presets_are_what_the_parts_say() -> None:
    two = {"sites": 2, "lan": "10gbe", "uplink": "wan", "name": "two-sites"}
    assert network(two) == network("two-sites")
    dgx = {"per_node": 8, "inside": "nvlink4", "between": "ib-ndr", "name": "dgx-h100"}
    assert network(dgx) == network("dgx-h100")


def test_files_are_read_as_strictly_as_specs(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("latency: 1e-3\nbandwidth: 1e9\n")
    assert network(file) == Link(1e-3, 1e9, "lab")
    file.write_text("latency: 1e-3\nbandwidth: 1e9\nlatency: 2e-3\n")
    with pytest.raises(SpecError, match="'latency' is given twice"):
        network(file)


some_links = st.builds(
    Link,
    st.floats(0, 10),
    st.floats(1, 1e15),
    st.text(max_size=5),
    overhead_s=st.floats(0, 1),
    efficiency=st.floats(0.01, 1),
    upload_bytes_per_s=st.none() | st.floats(1, 1e15),
    fabric=st.sampled_from(["nvlink", "pcie", "network"]),
    data_centre=st.sampled_from([None, True, False]),
) | st.builds(Link, st.floats(0, 10), st.floats(1, 1e15), duplex=st.just("half"))


@given(
    st.one_of(
        some_links,
        st.integers(1, 9).flatmap(
            lambda n: st.builds(TwoLevel, st.just(n), some_links, some_links, st.none() | st.integers(1, n))
        ),
        st.builds(
            Sites, st.integers(1, 9) | st.lists(st.integers(1, 9), min_size=1).map(tuple), some_links, some_links
        ),
        st.lists(some_links, min_size=3, max_size=3).map(lambda up: Sites(3, up[0], tuple(up), "three")),
        st.tuples(some_links, some_links, st.booleans()).map(
            lambda of: Graph(("a", "b"), (Edge("a", "s", of[0]), Edge("s", "b", of[1], of[2])), (("a", "s", "b"),))
        ),
    )
)
def test_what_describes_a_network_makes_the_same_one_again(made: Network) -> None:
    assert network(json.loads(json.dumps(network_fields(made)))) == made
    assert made.describe()


def test_what_describes_a_preset_makes_it_again() -> None:
    for preset in NETWORKS.values():
        assert network(network_fields(preset.network)) == preset.network


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("10gbe", "50 us one way, 10 Gbit/s"),
        ("home-broadband", "15 ms one way, 100 Mbit/s down, 20 Mbit/s up"),
        (
            {"latency": 0, "bandwidth": 125, "overhead": "1 us", "efficiency": 0.94, "duplex": "half"},
            "0 s one way, 1 kbit/s, 1 us per message, 94% payload, half duplex",
        ),
        (NODES, "8 per node, nvlink4 inside, 1us,100Gbit/s (4 per node) between"),
        ("two-sites", "2 sites, 10gbe inside, 12.5 ms one way, 1 Gbit/s to the core"),
        (SITES, "2 sites of 4 + 3, 10gbe inside, 12.5 ms one way, 1 Gbit/s; 1 ms one way, 1 Gbit/s to the core"),
        (GRAPH, "2 hosts, 1 switches, 3 links"),
    ],
)
def test_a_network_says_what_it_is(value: Any, said: str) -> None:
    assert network(value).describe() == said


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (NODES | {"between": {"latency": "1us"}}, "network.between.bandwidth: got None; expected a value"),
        (NODES | {"inside": "nvlnk4"}, "network.inside: got 'nvlnk4'; expected one of "),
        (NODES | {"inside": {"preset": "nvlnk4", "rails": 2}}, "network.inside.preset: got 'nvlnk4'"),
        (NODES | {"inside": "dgx-h100"}, "network.inside: got 'dgx-h100'; expected a link"),
        (NODES | {"nics": 9}, "network.nics: got 9; expected a number of network cards from 1 to per_node (8)"),
        (NODES | {"per_node": 2.5}, "network.per_node: got 2.5"),
        (NODES | {"per_nod": 2}, "network.per_nod: got 2; expected no such field here"),
        ({"inside": "nvlink4", "between": "wan"}, "network.per_node: got None; expected a value beside 'inside'"),
        ({"per_node": 8, "inside": "nvlink4"}, "network.between: got None"),
        (SITES | {"uplink": ["wan"]}, "network.uplink: got 1; expected one link, or one for each of the 2 sites"),
        (SITES | {"uplink": ["wan", "wann"]}, "network.uplink.1: got 'wann'"),
        (SITES | {"sites": [4, True]}, "network.sites.1: got True"),
        (SITES | {"sites": "two"}, "network.sites: got 'two'"),
        (SITES | {"sites": []}, "network.sites: got ()"),
        ({"sites": 2, "lan": "10gbe"}, "network.uplink: got None"),
        (GRAPH | {"hosts": "ab"}, "network.hosts: got 'ab'; expected a list"),
        (GRAPH | {"edges": ["ab"]}, "network.edges.0: got 'ab'"),
        (GRAPH | {"edges": [{"to": "a", "preset": "wan"}]}, "network.edges.0.from: got None"),
        (GRAPH | {"edges": [{"from": "b", "to": "a", "preset": "wa"}]}, "network.edges.0.preset: got 'wa'"),
        (
            GRAPH | {"edges": [{"from": "b", "to": "a", "preset": "wan", "directed": 1}]},
            "network.edges.0.directed: got 1",
        ),
        (GRAPH | {"routes": [["a", "s", "a", "c"]]}, "network.routes.0: got"),
        (GRAPH | {"hosts": ["a", "a"]}, "network.hosts.1: got 'a'"),
        (GRAPH | {"edges": []}, "network.edges: got []; expected edges between the hosts"),
        ({"preset": "wan", "loss": 1.0}, "network.loss: got 1.0; expected a fraction of the packets"),
        ({"preset": "wan", "loss": "1%"}, "network.loss: got '1%'"),
        ({"preset": "wan", "streams": 4}, "network.streams: got 4; expected loss as well"),
        ({"preset": "wan", "loss": 0.1, "streams": 0}, "network.streams: got 0"),
        ({"latency": 0, "bandwidth": 1.0, "loss": 0.1, "streams": 1}, "network.latency: got 0.0; expected above 0"),
        ({"preset": "wan", "tcp": 4}, "network.tcp: got 4; expected true (one connection"),
        ({"preset": "wan", "tcp": {"window": 0}}, "network.tcp.window: got 0.0; expected bytes, positive"),
        ({"preset": "wan", "tcp": {"connections": 0}}, "network.tcp.connections: got 0"),
        ({"preset": "wan", "tcp": {"windows": "1 MiB"}}, "network.tcp.windows: got '1 MiB'"),
        ({"preset": "wan", "tcp": {"loss": 1.0}}, "network.tcp.loss: got 1.0; expected a fraction of the packets"),
        ({"preset": "wan", "tcp": True, "loss": 0.1}, "network.loss: got 0.1; expected none with tcp"),
        ({"latency": 0, "bandwidth": 1.0, "tcp": {"loss": 0.1}}, "network.latency: got 0.0; expected above 0"),
        ({"preset": "wan", "rails": 0}, "network.rails: got 0"),
        ({"preset": "wan", "efficiency": 94}, "network.efficiency: got 94.0"),
        ({"preset": "wan", "duplex": "both"}, "network.duplex: got 'both'"),
        ({"preset": "wan", "fabric": "nvlink4"}, "network.fabric: got 'nvlink4'"),
        (
            {"preset": "home-broadband", "duplex": "half"},
            "network.upload: got 2500000.0; expected none on a half-duplex",
        ),
        ({"preset": ["wan"]}, "network.preset: got ['wan']"),
        ({"per_node": 8, "inside": 3, "between": "wan"}, "network.inside: got 3; expected a link's name"),
        ("{preset: wan", "network: got '{preset: wan'; expected fields in YAML"),
        ("{preset: wan}]", "network: got '{preset: wan}]'; expected fields in YAML"),
        ("dgx-h10", "did you mean 'dgx-h100'"),
        ("infinband", "did you mean 'infiniband'"),
        ("50us,10", "network.bandwidth"),
        ("fast,10Gbit/s", "network.latency"),
        ({"latency": "1 ms"}, "network.bandwidth"),
        ({"latency": "1 ms", "bandwidth": "1 Gbit/s", "rate": 1}, "network.rate"),
        ("/no/such/file.yaml", "No such file"),
        (3, "a network's name"),
    ],
)
def test_what_is_no_network_is_refused_in_one_line(value: object, complaint: str) -> None:
    with pytest.raises(SpecError) as caught:
        network(value)  # type: ignore[arg-type]
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["- 1\n", "a: [\n", ""])
def test_a_file_that_describes_no_network_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(content)
    with pytest.raises(SynclineError, match=r"bad\.yaml") as caught:
        network(file)
    assert "\n" not in str(caught.value)


def test_the_cost_model_loads_neither_torch_nor_a_yaml_parser() -> None:
    check = "import sys, syncline.costmodel; print({'torch', 'yaml', 'pydantic'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"
