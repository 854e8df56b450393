from __future__ import annotations

import pytest

from syncline.costmodel import MODELS
from syncline.costmodel.compute.update_work import orthogonal_work
from syncline.errors import SpecError
from syncline.specs import ProjectSpec, RunSpec, load_spec, validate

PROJECT = {
    "kind": "project", "name": "p", "model": "gpt-160m", "tokens_per_worker": 1024, "workers": 4,
    "methods": ["ddp-adam", "mt-dao"], "networks": ["10gbe"],
}  # fmt: skip


def project(**fields):
    return validate(ProjectSpec, PROJECT | fields)


def test_the_defaults_are_what_somebody_would_run():
    spec = project()
    assert (spec.overlap, spec.bucket_size, spec.algorithm, spec.protocol) == ("ddp", 25 * 2**20, None, "eager")
    assert [spec.algorithm_on(network) for network in spec.networks] == ["auto"]
    known = project(networks=[{"latency": "1 ms", "bandwidth": "1 Gbit/s", "gloo": {}}])
    assert [known.algorithm_on(network) for network in known.networks] == [None]
    assert project(algorithm="ring").algorithm_on(known.networks[0]) == "ring"
    assert (spec.precision, spec.number_format) == (None, "fp32")
    assert project(compute={"hardware": "h100"}).number_format == "bf16"
    assert load_spec("digits-skewed", ["compute={hardware: h100}"]).number_format == "fp32"
    assert (spec.compute.encode_bandwidth, spec.compute.readback_latency) == (None, 0.0)
    assert spec.warnings() == []


def test_sizes_rates_and_times_have_units():
    spec = project(
        bucket_size="5 MB", compute={"encode_bandwidth": "8 Gbit/s", "readback_latency": "20us"}, overlap="ddp"
    )
    assert (spec.bucket_size, spec.compute.encode_bandwidth, spec.compute.readback_latency) == (5e6, 1e9, 20e-6)


def test_an_update_takes_a_time_or_times_by_method_or_is_counted():
    of_each = {"ddp-adam": "1 ms", "mt-dao": 0.002}
    assert project().compute.optimizer_time is None
    assert project(compute={"optimizer_time": "2 ms"}).compute.optimizer_time == 2e-3
    assert project(compute={"optimizer_time": of_each}).compute.optimizer_time == {"ddp-adam": 1e-3, "mt-dao": 2e-3}
    assert project(compute={"optimizer_time": ".5 ms"}).compute.optimizer_time == 0.5e-3
    assert project(compute=".5 ms").compute.seconds == 0.5e-3
    assert project(compute={"optimizer_time": "counted"}).compute.optimizer_time == "counted"
    for given in ("2 ms", of_each, "counted"):
        spec = project(compute={"optimizer_time": given})
        assert validate(ProjectSpec, spec.model_dump(mode="json")).compute == spec.compute


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"pipeline": {"stages": 2}, "workers": 1}, "none with pipeline, which counts"),
        ({"method": {"kind": "ddp", "lr": 0.1, "asynchronous": {}}}, "0 with async-ddp-adam, whose server's updates"),
    ],
)
def test_an_update_has_no_time_of_its_own_where_another_clock_says_when_it_is(fields, line):
    run = {"kind": "run", "name": "r", "problem": {"kind": "text-gpt", "tied": False}, "workers": 2, "steps": 2,
           "method": "ddp-adam", "network": "10gbe", "compute": {"seconds": 1, "optimizer_time": 1}}  # fmt: skip
    with pytest.raises(SpecError, match=f"compute.optimizer_time: got 1.0; expected {line}"):
        validate(RunSpec, run | fields)


@pytest.mark.parametrize("name", ["auto", "gloo", "nccl", "ring", "double-binary-tree", "hierarchical"])
def test_policies_and_algorithms_of_all_collectives_are_known(name):
    assert project(algorithm=name).algorithm == name


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"overlap": "dpp"}, "overlap: got 'dpp'; expected 'none', 'ddp' or 'async'"),
        ({"bucket_size": 0}, "bucket_size: got 0; expected greater than 0"),
        ({"bucket_size": "25 Mb"}, "bucket_size: got '25 Mb'; expected a size"),
        ({"algorithm": "rang"}, r"algorithm: got 'rang'; expected .*did you mean 'ring'"),
        ({"protocol": "late"}, "protocol: got 'late'"),
        ({"compute": {"encode_bandwidth": "5 GB"}}, "compute.encode_bandwidth: got '5 GB'; expected a positive rate"),
        ({"compute": {"readback_latency": -1}}, "compute.readback_latency: got -1"),
        ({"compute": {"optimizer_time": -1}}, "compute.optimizer_time: got -1; expected a time"),
        (
            {"compute": {"optimizer_time": "count"}},
            "compute.optimizer_time: got 'count'; expected a time, times by method as in",
        ),
        (
            {"compute": {"optimizer_time": {"mt-dao": "1 s"}}},
            "compute.optimizer_time: got {.*}; expected a time for 'ddp-adam', too",
        ),
        ({"compute": {"optimizer_time": {"mt-dao": "1 parsec"}}}, "compute.optimizer_time.mt-dao: got '1 parsec'"),
    ],
)
def test_fields_that_cannot_be(fields, line):
    with pytest.raises(SpecError, match=line):
        project(**fields)


def test_what_changes_nothing_is_a_warning():
    assert project(bucket_size=4096).warnings() == []
    said = "bucket_size has no effect with overlap none; it is the size of DDP's buckets"
    assert project(bucket_size=4096, overlap="none").warnings() == [said]
    compressed = {"kind": "ddp", "lr": 0.1, "compressor": "qsgd"}
    said = "bucket_size has no effect, as nothing is sent during the backward pass"
    assert project(bucket_size=4096, methods=[compressed, "mt-dao"]).warnings() == [said]


def test_updates_that_take_a_good_part_of_a_step_and_none_of_the_clock_are_a_warning():
    given = {"model": "gpt-1.3b", "tokens_per_worker": 16384, "methods": ["ddp-adam", "ddp-muon", "dion"]}
    (said,) = project(**given).warnings()
    iterations = orthogonal_work(MODELS["gpt-1.3b"].tensors).flops(None)
    share = iterations / (MODELS["gpt-1.3b"].flops_per_token * 16384)
    assert said.startswith(
        f"updates take no time here; their products are {share:.0%} (ddp-muon) of a step's operations"
    )
    assert project(**given, compute={"optimizer_time": "counted"}).warnings() == []
    assert project(**given, compute={"seconds": 0.1}).warnings() == []  # which may have it in them
    assert project(**given | {"tokens_per_worker": 2**20}).warnings() == []


def test_a_delay_of_the_clock_alone_is_a_warning_where_there_are_losses():
    said = "overlap async changes only the clock: losses are those of the methods without the delay"
    assert said in load_spec("digits-skewed", ["overlap=async"]).warnings()
    assert project(overlap="async").warnings() == []


def test_a_rule_that_no_message_follows_is_a_warning():
    said = ["protocol rendezvous has no effect on what gloo and NCCL run, which have protocols of their own"]
    known = {"latency": "1 ms", "bandwidth": "1 Gbit/s", "gloo": {}}
    assert project(protocol="rendezvous", networks=[known]).warnings() == said
    assert project(protocol="rendezvous", algorithm="gloo").warnings() == said
    for fields in ({"networks": [known], "algorithm": "ring"}, {"networks": [known, "wan"]}, {}):
        assert project(protocol="rendezvous", **fields).warnings() == []


def test_undisturbed_computing_times_of_a_long_training_are_kept_once():
    spec = load_spec("rosenbrock-mt-dao")
    many = 10**6, 10**6  # which would be 8 TB
    times = spec.compute.sample(0.5, *many, seed=0, factors=spec.faults.stragglers.factors(*many, seed=0))
    assert times.shape == many and times.strides[0] == 0 and (times[0] == 0.5).all()
