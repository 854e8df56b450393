"""A cluster's file as the network and the hardware of a spec."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from syncline.costmodel import GlooCosts, Hardware, Link
from syncline.errors import SpecError
from syncline.specs import RunSpec, class_of_kind, load_spec, validate

CLUSTER = """
name: lab
measured: {command: by hand}
network: {latency: 1 ms, bandwidth: 1 Gbit/s, gloo: {message_overhead: 0.1 ms, call_overhead: {2: 0.2 ms}}}
hardware: {peak_flops: 4.0e+10, mfu: 0.3, memory_bytes_per_s: 9.0e+9}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    return file


FIELDS = {"kind": "run", "name": "x", "problem": "digits", "workers": 2, "steps": 4, "method": "ddp-adam",
          "network": "cluster.yaml", "compute": {"hardware": "cluster.yaml"}}  # fmt: skip


def test_a_spec_names_it_and_the_one_that_is_written_does_without(cluster: Path) -> None:
    spec = validate(RunSpec, FIELDS)
    assert spec.network == Link(1e-3, 125e6, "lab", gloo=GlooCosts(1e-4, ((2, 2e-4),)))
    assert spec.compute.hardware == Hardware("lab", 4e10, 0.3, "fp32", "", memory_bytes_per_s=9e9)
    cluster.unlink()
    file = cluster.with_name("spec.yaml")
    file.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    assert load_spec(file, (), RunSpec) == spec


def test_a_preset_stays_a_name(cluster: Path) -> None:
    spec = validate(RunSpec, FIELDS | {"compute": {"hardware": "H100", "mfu": 0.2}})
    assert spec.model_dump(mode="json")["compute"]["hardware"] == "h100"


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("project", {"memory": {"hardware": "cluster.yaml"}, "model": "gpt-160m", "tokens_per_worker": 1, "workers": 2,
                     "methods": ["ddp-adam"], "networks": ["cluster.yaml"]}),
        ("pipeline", {"schedules": ["1f1b"], "stages": 2, "microbatches": 4, "model": "gpt-160m",
                      "tokens_per_microbatch": 8, "hardware": "cluster.yaml", "networks": ["cluster.yaml"]}),
    ],
)  # fmt: skip
def test_other_kinds_of_spec_take_it(kind: str, fields: dict, cluster: Path) -> None:
    spec = validate(class_of_kind(kind), {"kind": kind, "name": "x", **fields})
    assert validate(class_of_kind(kind), spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("text", "change", "complaint"),
    [
        (
            "hardware: {peak_flops: 1.0, mfu: 0.5}",
            {},
            "network: got 'cluster.yaml'; expected a file with a section 'net",
        ),
        (
            "network: {preset: wan}",
            {},
            "compute.hardware: got 'cluster.yaml'; expected a file with a section 'hardware",
        ),
        (
            "network: {preset: wan, gloo: {message_overhead: 1 m}}\nhardware: {peak_flops: 1, mfu: 1}",
            {},
            "network.gloo.message_overhead: got '1 m'",
        ),
        (CLUSTER, {"compute": {"hardware": {"peak_flops": 1.0}}}, "compute.hardware.mfu: got None; expected a number"),
        (CLUSTER, {"compute": {"hardware": {"peak_flops": -1, "mfu": 1}}}, "compute.hardware.peak_flops: got -1.0"),
        (CLUSTER, {"network": "no.yaml"}, "network: got 'no.yaml'; expected a file that can be read (No such file"),
    ],
)
def test_what_is_missing_is_said_in_one_line(text: str, change: dict, complaint: str, cluster: Path) -> None:
    cluster.write_text(text)
    with pytest.raises(SpecError) as caught:
        validate(RunSpec, FIELDS | change)
    assert str(caught.value).startswith(complaint)
    assert "\n" not in str(caught.value)
