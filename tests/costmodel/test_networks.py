from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from syncline.costmodel import NETWORKS, Link, network
from syncline.errors import SpecError, SynclineError
from syncline.units import parse_bandwidth


def test_presets_have_the_bandwidths_of_their_names() -> None:
    bandwidths = {"infiniband": "100 Gbit/s", "10gbe": "10 Gbit/s", "1gbe": "1 Gbit/s", "wan": "1 Gbit/s"}
    assert {name: preset.link.bandwidth_bytes_per_s for name, preset in NETWORKS.items()} == {
        name: parse_bandwidth(text) for name, text in bandwidths.items()
    }
    assert 2 * network("wan").latency_s == 50e-3  # the round trip
    assert all(preset.link.name == name and preset.source for name, preset in NETWORKS.items())


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


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
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
