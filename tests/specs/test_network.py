from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from syncline.costmodel import NETWORKS, Graph, Link, MultiLevel, Sites, TwoLevel
from syncline.errors import SpecError
from syncline.sim import collective_finish_s
from syncline.sim.lockstep.routed import Contention
from syncline.specs import CompareSpec, RunSpec, load_spec, network

DESCRIBED = {
    "50us,10Gbit/s": (Link, "50us,10Gbit/s"),
    "{latency: 50us, bandwidth: 10 Gbit/s}": (Link, "50 us, 10 Gbit/s"),
    "{preset: wan, loss: 1e-2, streams: 4}": (Link, "wan"),
    "{preset: wan, tcp: {connections: 1, window: 1 MiB, loss: 0.001}}": (Link, "wan"),
    "{preset: wan, tcp: true}": (Link, "wan"),
    "{latency: 1ms, bandwidth: 1 Gbit/s, upload: 1 Mbit/s, overhead: 1us}": (
        Link,
        "1 ms, 1 Gbit/s down, 1 Mbit/s up, 1 us per message",
    ),
    "{per_node: 2, inside: nvlink4, between: ib-ndr, nics: 1}": (
        TwoLevel,
        "2 per node, nvlink4 inside, ib-ndr (1 per node) between",
    ),
    "{sites: [1, 3], lan: 10gbe, uplink: [wan, wan-metro], name: two}": (Sites, "two"),
    "{levels: [{units: 2, link: nvlink4}, {link: wan, rails: 1, shares_lower_links: true, oversubscription: 2}]}": (
        MultiLevel,
        "2 by nvlink4, any by wan (1 rail, 2:1)",
    ),
    "{hosts: [a, b, c, d], edges: [{from: a, to: s, preset: wan}, {from: b, to: s, preset: wan},"
    " {from: c, to: s, preset: wan}, {from: d, to: s, preset: wan}], routes: [[a, s, b]]}": (
        Graph,
        "4 hosts, 1 switches, 4 links",
    ),
    "dgx-h100": (TwoLevel, "dgx-h100"),
    "{preset: gb200-nvl72, per_node: 2}": (TwoLevel, "gb200-nvl72"),
    "{preset: dgx-h100, between: {preset: ib-hdr, latency: 9 us}, name: slower}": (TwoLevel, "slower"),
    "two-sites": (Sites, "two-sites"),
}


def run_with(network: str, *overrides: str) -> RunSpec:
    given = network if network.startswith("{") else f"'{network}'"
    return load_spec("rosenbrock-mt-dao", [f"network={given}", "workers=4", *overrides], RunSpec)


@pytest.mark.parametrize("network", DESCRIBED)
def test_a_written_spec_has_the_same_network(network: str, tmp_path: Path) -> None:
    spec = run_with(network)
    kind, name = DESCRIBED[network]
    assert (type(spec.network), spec.network.name) == (kind, name)
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    assert load_spec(file, (), RunSpec) == spec


@pytest.mark.parametrize("network", DESCRIBED)
def test_every_message_has_a_way_that_lockstep_and_events_time_alike(network: str) -> None:
    """Between any two of four workers, and collectives on it, where lockstep can follow them."""
    on = run_with(network).network.among(4)
    senders, receivers = map(np.ravel, np.nonzero(~np.eye(4, dtype=bool)))
    ways = on.paths(senders, receivers)
    assert ((ways.channels >= 0).sum(axis=1) > 0).all()
    assert ways.channels.max() < len(on.bandwidth_bytes_per_s) and (on.bandwidth_bytes_per_s > 0).all()
    followed = 0
    for kind, algorithm in (("broadcast", "binomial"), ("all_reduce", "ring"), ("all_gather", "recursive-doubling")):
        try:
            told_s = collective_finish_s(kind, 4, 1e6, on, algorithm, evaluator="lockstep")
        except Contention:
            continue
        followed += 1
        np.testing.assert_allclose(
            told_s, collective_finish_s(kind, 4, 1e6, on, algorithm, evaluator="events"), rtol=1e-9
        )
    assert followed


def test_every_preset_can_be_named() -> None:
    spec = load_spec("digits-skewed", [f"networks=[{', '.join(NETWORKS)}]", "workers=8"], CompareSpec)
    assert [network.name for network in spec.networks] == list(NETWORKS)


@pytest.mark.parametrize(
    ("network", "overrides", "path", "value", "expected"),
    [
        ("dgx-h100", ["workers=12"], "workers", 12, "a multiple of 8, the workers of a node (network 'dgx-h100')"),
        ("{sites: [2, 3], lan: 10gbe, uplink: wan, name: x}", [], "workers", 4, "5, the workers of all sites"),
        ("{sites: 2, lan: 10gbe, uplink: {latency: 1ms}}", [], "network.uplink.bandwidth", None, "a value"),
        ("{per_node: 2, inside: nvlink4, between: {preset: wan, rate: 3}}", [], "network.between.rate", 3, "no such"),
        ("{per_node: 2, inside: nvlink4, between: wan, nics: 3}", [], "network.nics", 3, "from 1 to per_node (2)"),
    ],
)
def test_what_no_network_is_or_joins_is_refused(
    network: str, overrides: list[str], path: str, value: object, expected: str
) -> None:
    with pytest.raises(SpecError) as caught:
        run_with(network, *overrides)
    assert (caught.value.path, caught.value.value) == (path, value)
    assert expected in caught.value.expected


def test_a_rack_that_is_used_in_part_is_its_preset_with_fewer_gpus_per_node() -> None:
    rack = NETWORKS["gb200-nvl72"].network
    assert network("{preset: gb200-nvl72, per_node: 64}") == replace(rack, per_node=64)
    assert network({"preset": "gb200-nvl72", "per_node": 64}).among(256).workers == 256
    with pytest.raises(SpecError, match="a multiple of 72, the workers of a node, or 64 of each: 'per_node: 64'"):
        rack.among(256)
    with pytest.raises(SpecError, match="per_nodes"):
        network("{preset: gb200-nvl72, per_nodes: 64}")


def test_a_formula_for_one_link_takes_no_other_network() -> None:
    with pytest.raises(SpecError, match="one link that all workers have") as caught:
        load_spec("curvadion-table3", ["networks.0.network=dgx-h100"])
    assert (caught.value.path, caught.value.value) == ("networks.0.network", "dgx-h100")
