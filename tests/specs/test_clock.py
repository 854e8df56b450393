from __future__ import annotations

import pytest

from syncline.errors import SpecError
from syncline.specs import ProjectSpec, load_spec, validate

PROJECT = {
    "kind": "project", "name": "p", "model": "gpt-160m", "tokens_per_worker": 1024, "workers": 4,
    "methods": ["ddp-adam", "mt-dao"], "networks": ["10gbe"],
}  # fmt: skip


def project(**fields):
    return validate(ProjectSpec, PROJECT | fields)


def test_the_defaults_are_what_somebody_would_run():
    spec = project()
    assert (spec.overlap, spec.bucket, spec.algorithm, spec.rule) == ("ddp", 25 * 2**20, None, "eager")
    assert [spec.algorithm_on(network) for network in spec.networks] == ["auto"]
    known = project(networks=[{"latency": "1 ms", "bandwidth": "1 Gbit/s", "gloo": {}}])
    assert [known.algorithm_on(network) for network in known.networks] == [None]
    assert project(algorithm="ring").algorithm_on(known.networks[0]) == "ring"
    assert (spec.precision, spec.number_format) == (None, "fp32")
    assert project(compute={"hardware": "h100"}).number_format == "bf16"
    assert load_spec("digits-skewed", ["compute={hardware: h100}"]).number_format == "fp32"
    assert (spec.compute.encode, spec.compute.readback) == (None, 0.0)
    assert spec.warnings() == []


def test_sizes_rates_and_times_have_units():
    spec = project(bucket="5 MB", compute={"encode": "8 Gbit/s", "readback": "20us"}, overlap="ddp")
    assert (spec.bucket, spec.compute.encode, spec.compute.readback) == (5e6, 1e9, 20e-6)


@pytest.mark.parametrize("name", ["auto", "gloo", "nccl", "ring", "double-binary-tree", "hierarchical"])
def test_policies_and_algorithms_of_all_collectives_are_known(name):
    assert project(algorithm=name).algorithm == name


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"overlap": "dpp"}, "overlap: got 'dpp'; expected 'none', 'ddp' or 'async'"),
        ({"bucket": 0}, "bucket: got 0; expected greater than 0"),
        ({"bucket": "25 Mb"}, "bucket: got '25 Mb'; expected a size"),
        ({"algorithm": "rang"}, r"algorithm: got 'rang'; expected .*did you mean 'ring'"),
        ({"rule": "late"}, "rule: got 'late'"),
        ({"compute": {"encode": "5 GB"}}, "compute.encode: got '5 GB'; expected a positive rate"),
        ({"compute": {"readback": -1}}, "compute.readback: got -1"),
    ],
)
def test_fields_that_cannot_be(fields, line):
    with pytest.raises(SpecError, match=line):
        project(**fields)


def test_what_changes_nothing_is_a_warning():
    assert project(bucket=4096).warnings() == []
    said = "bucket has no effect with overlap none; it is the size of DDP's buckets"
    assert project(bucket=4096, overlap="none").warnings() == [said]
    compressed = {"kind": "ddp", "lr": 0.1, "compressor": "qsgd"}
    said = "bucket has no effect, as nothing is sent during the backward pass"
    assert project(bucket=4096, methods=[compressed, "mt-dao"]).warnings() == [said]


def test_a_delay_of_the_clock_alone_is_a_warning_where_there_are_losses():
    said = "overlap async delays the clock alone: losses are those of the methods without the delay"
    assert said in load_spec("digits-skewed", ["overlap=async"]).warnings()
    assert project(overlap="async").warnings() == []


def test_a_rule_that_no_message_follows_is_a_warning():
    said = ["rule rendezvous has no effect on what gloo and NCCL run, which have rules of their own"]
    known = {"latency": "1 ms", "bandwidth": "1 Gbit/s", "gloo": {}}
    assert project(rule="rendezvous", networks=[known]).warnings() == said
    assert project(rule="rendezvous", algorithm="gloo").warnings() == said
    for fields in ({"networks": [known], "algorithm": "ring"}, {"networks": [known, "wan"]}, {}):
        assert project(rule="rendezvous", **fields).warnings() == []


def test_undisturbed_computing_times_of_a_long_training_are_kept_once():
    spec = load_spec("rosenbrock-mt-dao")
    many = 10**6, 10**6  # which would be 8 TB
    times = spec.compute.sample(0.5, *many, seed=0, factors=spec.faults.stragglers.factors(*many, seed=0))
    assert times.shape == many and times.strides[0] == 0 and (times[0] == 0.5).all()
