"""A cluster's file: one section for the network, one for the hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncline.costmodel import HARDWARE, GlooCosts, Hardware, Link
from syncline.errors import SpecError
from syncline.specs import hardware, hardware_fields, network

CLUSTER = """
name: my-cluster
measured: {date: 2026-01-01, command: anything, torch: 2.13.0}
network: {latency: 1.02 ms, bandwidth: 0.99 Gbit/s, gloo: {message_overhead: 0.1 ms}}
hardware: {peak_flops: 4.1e10, mfu: 0.31, precision: fp32, memory_bytes_per_s: 9.1e9}
collectives: [{kind: all_reduce, workers: 4}]
"""

LINK = Link(1.02e-3, 0.99e9 / 8, "my-cluster", gloo=GlooCosts(1e-4))
MACHINE = Hardware("my-cluster", 4.1e10, 0.31, "fp32", "", memory_bytes_per_s=9.1e9)


def written(folder: Path, text: str) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(text)
    return file


def test_a_file_has_a_section_for_each(tmp_path: Path) -> None:
    file = written(tmp_path, CLUSTER)
    assert network(file) == network(str(file)) == LINK
    assert hardware(file) == hardware(str(file)) == MACHINE


def test_a_section_is_called_by_its_file(tmp_path: Path) -> None:
    unnamed = written(tmp_path, CLUSTER.replace("name: my-cluster\n", ""))
    assert (network(unnamed).name, hardware(unnamed).name) == ("cluster", "cluster")
    assert network(written(tmp_path, CLUSTER.replace("{latency", "{name: '', latency"))).name == "my-cluster"
    assert network(written(tmp_path, CLUSTER.replace("{latency", "{name: own, latency"))).name == "own"


def test_a_file_of_hardware_alone(tmp_path: Path) -> None:
    assert hardware(written(tmp_path, "{peak_flops: 1e12, mfu: 0.5}")) == Hardware("cluster", 1e12, 0.5, "fp32", "")


def test_nodes_can_be_a_clusters_network(tmp_path: Path) -> None:
    nodes = written(tmp_path, "network: {per_node: 8, inside: nvlink4, between: ib-ndr}\nname: ours\n")
    assert (network(nodes).name, network(nodes).among(16).workers) == ("ours", 16)


@pytest.mark.parametrize("name", HARDWARE)
def test_a_preset_is_written_by_its_name(name: str) -> None:
    assert hardware_fields(HARDWARE[name]) == name


@pytest.mark.parametrize(
    "made", [MACHINE, Hardware("a100", 1e9, 1.0, "bf16", "mine, not the preset", memory_bytes=1e9)]
)
def test_what_describes_hardware_makes_the_same_again(made: Hardware) -> None:
    assert hardware(hardware_fields(made)) == made  # type: ignore[arg-type]


def test_hardware_has_units() -> None:
    given = {"peak_flops": 41e9, "mfu": 0.5, "memory_bytes": "8 GiB", "memory_bytes_per_s": "9.1 GB/s"}
    assert hardware(given) == Hardware("41 GFLOP/s", 41e9, 0.5, "fp32", "", 2.0**33, 9.1e9)


@pytest.mark.parametrize(
    ("text", "what", "complaint"),
    [
        (
            "hardware: {peak_flops: 1, mfu: 1}",
            network,
            "cluster.yaml'; expected a file with a section 'network: {...}'",
        ),
        ("network: {preset: wan}", hardware, "cluster.yaml'; expected a file with a section 'hardware: {...}'"),
        ("network: {latency: 1 ms}\nhardware: {}", network, "network.bandwidth: got None"),
        ("network: {preset: wan}\nhardware: {mfu: 1}", hardware, "hardware.peak_flops: got None; expected a number"),
        ("hardware: {peak_flops: 1, mfu: 2}", hardware, "hardware.mfu: got 2.0; expected a fraction"),
        ("latency: 1 ms\nbandwidth: 1 GB/s", hardware, "hardware.latency: got '1 ms'; expected no such field here"),
        ("- 1", hardware, "cluster.yaml'; expected a machine's fields, as in 'peak_flops: ...'"),
        ("a: [", hardware, "cluster.yaml'; expected a file in YAML"),
    ],
)
def test_a_file_without_what_is_asked_for_is_refused_in_one_line(
    text: str, what: Any, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        what(written(tmp_path, text))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"peak_flops": "1 TFLOP/s", "mfu": 1}, "hardware.peak_flops: got '1 TFLOP/s'; expected a number"),
        ({"peak_flops": 0, "mfu": 1}, "hardware.peak_flops: got 0.0; expected a positive number"),
        ({"peak_flops": 1, "mfu": True}, "hardware.mfu: got True"),
        ({"peak_flop": 1}, "hardware.peak_flop: got 1; expected no such field here, but one of"),
        ({"peak_flops": 1, "mfu": 1, "memory_bytes": "8 Gb"}, "hardware.memory_bytes: got '8 Gb'; expected a size"),
        ({"peak_flops": 1, "mfu": 1, "memory_bytes": 0}, "hardware.memory_bytes: got 0.0; expected a positive number"),
        ("/no/such/file.yaml", "hardware: got '/no/such/file.yaml'; expected a file that can be read"),
        (3, "hardware: got 3; expected one of 'a100'"),
    ],
)
def test_what_is_no_hardware_is_refused_in_one_line(value: Any, complaint: str) -> None:
    with pytest.raises(SpecError) as caught:
        hardware(value)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
