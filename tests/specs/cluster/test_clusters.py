"""Clusters: bundled, in files, in one line; what projections and collectives take of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import syncline as sl
from syncline.cli.application import app
from syncline.costmodel import HARDWARE, MultiLevel, collective_s
from syncline.errors import SpecError
from syncline.sim import collective_finish_s
from syncline.specs import bundled_clusters, named_cluster

MINE = {"network": {"levels": [{"units": 2, "link": "nvlink3"}, {"units": 3, "link": "ib-hdr"}]}, "hardware": "v100"}


@pytest.mark.parametrize("name", bundled_clusters())
def test_bundled_clusters_say_all(name: str) -> None:
    one = named_cluster(name)
    assert one.name == one.network.name == name
    assert one.workers and one.hardware and one.description and one.source
    one.network.among(one.workers)


def test_two_sites_are_what_they_are_called() -> None:
    one = named_cluster("two-sites-a100")
    assert isinstance(one.network, MultiLevel)
    assert one.network.sizes(64) == (8, 4, 2)
    wan = one.network.levels[2].link
    assert (wan.latency_s, wan.bandwidth_bytes_per_s) == (0.02, 125e6)
    assert one.hardware == HARDWARE["a100"]


def test_a_hierarchical_sum_over_three_levels_by_hand() -> None:
    n, nvlink, hdr, wan = 1e9, 300e9, 25e9, 125e6
    inside = 2 * (7 * 0.6e-6 + 7 / 8 * n / nvlink) + 2 * (3 * 2e-6 + 3 / 4 * n / 8 / hdr)
    # 32 GPUs share a site's line; each sends half of its 32nd twice, past a card and the line
    across = 2 * (0.02 + 2e-6 + n / 32 / 2 / (wan / 32))
    one = named_cluster("two-sites-a100")
    assert collective_s("all_reduce", 64, n, one.network, "hierarchical") == pytest.approx(inside + across)


@pytest.mark.parametrize("algorithm", ["hierarchical", "hierarchical-doubling", "leader"])
def test_closed_forms_of_three_levels_are_what_happens(algorithm: str) -> None:
    small = named_cluster({
        "network": {"levels": [
            {"units": 2, "link": "nvlink3"},
            {"units": 2, "link": "ib-hdr"},
            {"units": 2, "link": "20ms,1Gbit/s", "rails": 1},
        ]}
    })  # fmt: skip
    assert small.workers == 8
    told = collective_s("all_reduce", 8, 1e6, small.network, algorithm)
    happened = collective_finish_s("all_reduce", 8, 1e6, small.network, algorithm, evaluator="events").max()
    assert told == pytest.approx(happened, rel=1e-9)


def test_a_file_has_sections(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(json.dumps(MINE | {"name": "lab", "measured": {"date": "today"}}))
    one = named_cluster(str(file))
    assert (one.name, one.network.name, one.workers, one.hardware) == ("lab", "lab", 6, HARDWARE["v100"])
    assert named_cluster(MINE | {"workers": 2}).workers == 2
    assert named_cluster("{network: 10gbe}").workers is None
    plain = tmp_path / "plain.yaml"
    plain.write_text("{latency: 1 ms, bandwidth: 1 Gbit/s}")
    assert (named_cluster(plain).name, named_cluster(plain).hardware) == ("plain", None)


@pytest.mark.parametrize(
    ("given", "path", "expected"),
    [
        ("two-sites-a10", "cluster", "did you mean 'two-sites-a100'"),
        ({"hardware": "a100"}, "cluster.network", "a network: its name"),
        (MINE | {"workers": 5}, "cluster.workers", "a multiple of 2"),
        (MINE | {"workers": "six"}, "cluster.workers", "a number of workers"),
        (MINE | {"hardware": "a1000"}, "cluster.hardware", "one of"),
        ({"network": {"levels": []}}, "cluster.network.levels", "at least one level"),
        ("nowhere.yaml", "cluster", "a file that can be read"),
        (MINE | {"hardwear": "a100"}, "cluster.hardwear", "no such section, but 'hardware'"),
        (3, "cluster", "a .yaml file"),
    ],
)
def test_what_is_no_cluster_is_told_in_one_line(given: Any, path: str, expected: str) -> None:
    with pytest.raises(SpecError) as raised:
        named_cluster(given)
    assert raised.value.path == path
    assert expected in raised.value.expected


def test_projections_and_collectives_take_all_of_a_cluster() -> None:
    asked = ["--cluster", "two-sites-a100", "--json"]
    told = CliRunner().invoke(app, ["project", "--model", "gpt2", "--method", "ddp-adam,diloco", *asked])
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    assert [(row["network"], row["hardware"], row["workers"]) for row in rows] == [("two-sites-a100", "a100", 64)] * 2
    by_python = sl.project(model="gpt2", methods=["ddp-adam", "diloco"], cluster="two-sites-a100").rows
    assert [row["step_time_s"] for row in by_python] == [row["step_time_s"] for row in rows]
    fewer = sl.project(model="gpt2", methods=["diloco"], cluster="two-sites-a100", workers=8, hardware="h100").rows
    assert [(row["hardware"], row["workers"]) for row in fewer] == [("h100", 8)]
    sums = sl.collectives(cluster="two-sites-a100", nbytes="1 MB", collectives="all_reduce", algorithms="hierarchical")
    assert sums.rows[0]["workers"] == 64


OWN = """
name: lab
network:
  levels:
    - {name: node, units: 4, link: {latency: 2 us, bandwidth: 300 GB/s}}
    - {name: rack, units: 3, link: {latency: 3 us, bandwidth: 100 Gbit/s}, rails: 4}
    - {name: room, units: 2, link: {latency: 100 us, bandwidth: 10 Gbit/s}, rails: 2}
hardware: {name: mine, peak_flops: 2.0e14, mfu: 0.35, precision: bf16, memory_bytes: 48e9}
"""

COMMANDS = {
    "project": ["project", "--model", "gpt2", "--method", "ddp-adam,diloco"],
    "collectives": ["collectives", "--collective", "all_reduce", "--algorithm", "auto"],
    "advise": ["advise", "--model", "gpt2", "--method", "diloco"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_one_s_own_is_taken(command: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(OWN)
    told = CliRunner().invoke(app, [*COMMANDS[command], "--cluster", str(file), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["rows"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("units: 3", "units: 0", "--cluster.network.levels.1.units: got 0"),
        (", rails: 2", "", "--cluster.network.levels.2.rails: got None; expected the uplinks"),
        ("100 us", "100 parsec", "--cluster.network.levels.2.link.latency: got '100 parsec'; expected a time"),
        ("2.0e14", "-1", "--cluster.hardware.peak_flops: got -1.0; expected a positive number"),
        ("memory_bytes:", "memory:", "--cluster.hardware.memory: got 48000000000.0; expected no such field here"),
        ("hardware:", "hardwear:", "--cluster.hardwear: got {"),
        ("name: lab", "workers: 7", "--cluster.workers: got 7; expected a multiple of 4, the workers of a node"),
        ("network:", "network: [", "--cluster: got "),
    ],
)
def test_a_bad_file_is_one_line_whoever_asks(command: str, old: str, new: str, line: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    assert old in OWN
    file.write_text(OWN.replace(old, new))
    told = CliRunner().invoke(app, [*COMMANDS[command], "--cluster", str(file)])
    assert isinstance(told.exception, SpecError)
    assert str(told.exception).startswith(line)
    assert "\n" not in str(told.exception)


@pytest.mark.parametrize("command", ["project", "collectives"])
def test_a_network_beside_a_cluster_is_refused(command: str) -> None:
    told = CliRunner().invoke(app, [command, "--cluster", "two-sites-a100", "--network", "wan"])
    assert "--network: got 'wan'; expected none with --cluster" in str(told.exception)
