"""What a spec's clock makes of a training's ledger."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.costmodel import TensorShape, mean_step
from syncline.costmodel.compute.update_work import orthogonal_work
from syncline.costmodel.traffic.overlap import gradient_buckets
from syncline.errors import SpecError
from syncline.problems import Rows
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.runs.training.trained import task_tensors
from syncline.specs import CompareSpec, ComputeSpec, RunSpec, load_spec, validate

LINK = {"latency": 1e-4, "bandwidth": 1e7, "name": "lab"}
DIGITS = {"kind": "digits", "hidden": 16, "batch_size": 4}
COLUMNS = ("step_time_s", "compute_s", "encode_s", "trigger_s", "optimizer_s", "communication_s",
           "exposed_communication_s")  # fmt: skip


def spec_of(method: dict[str, Any], **fields: Any) -> RunSpec:
    own = {"kind": "run", "name": "r", "problem": DIGITS, "workers": 3, "steps": 12, "method": {"lr": 0.01} | method,
           "algorithm": "ring"}  # fmt: skip
    return validate(RunSpec, own | {"network": LINK, "compute": {"seconds": 1e-3}} | fields)


def timed(spec: RunSpec) -> tuple[Any, Any]:
    trained = train_method(spec, spec.method)
    return trained, time_method(spec, trained, spec.network)


@pytest.mark.parametrize("overlap", ["none", "ddp", "async"])
@pytest.mark.parametrize(
    "method",
    [
        {"kind": "ddp", "rule": "sgdm"},
        {"kind": "ddp", "wire": "bf16"},
        {"kind": "ddp", "compressor": "qsgd"},
        {"kind": "mt-dao", "period": 4, "wire": "fp16"},
        {"kind": "streaming-diloco", "period": 6, "stream": {"fragments": 3, "tau": 2}},
        {"kind": "lion-cub"},
        {"kind": "one-bit-adam", "freeze_step": 4},
        {"kind": "demo", "chunk": 4, "k": 2},
    ],
    ids=lambda method: method["kind"] + method.get("wire", "") + method.get("compressor", ""),
)
def test_the_clock_of_equal_workers_is_the_closed_form(method: dict[str, Any], overlap: str) -> None:
    """What is sent, when it is needed and what is encoded are told twice: from the ledger, and by the spec alone."""
    spec = spec_of(
        method,
        overlap=overlap,
        bucket_size=512,
        compute={"seconds": 1e-3, "encode_bandwidth": "1 MB/s", "optimizer_time": 2e-4},
    )
    trained, clock = timed(spec)
    tensors = task_tensors(spec.problem.build(Rows.whole_group(spec.workers)))
    told = mean_step(
        1e-3, spec.method.exchanges(tensors, spec.workers), spec.steps, spec.workers, spec.network, overlap=overlap,
        buckets=gradient_buckets([one.elements for one in trained.tensors], 512), encode_bytes_per_s=1e6,
        optimizer_s=2e-4,
    )  # fmt: skip
    for name in COLUMNS:
        assert getattr(clock, name) == pytest.approx(getattr(told, name), rel=1e-9, abs=1e-15), name


def test_buckets_are_filled_by_gradients_of_the_precision() -> None:
    """As a projection fills them: of 16-bit gradients twice as many make a bucket."""
    spec = spec_of({"kind": "ddp"}, overlap="ddp", bucket_size=512, precision="bf16")
    trained, clock = timed(spec)
    tensors = task_tensors(spec.problem.build(Rows.whole_group(spec.workers)))
    elements = [one.elements for one in trained.tensors]
    exchanges = spec.method.in_precision("bf16").exchanges(tensors, spec.workers)
    exposed_s = [
        mean_step(1e-3, exchanges, spec.steps, spec.workers, spec.network, overlap="ddp",
                  buckets=gradient_buckets(elements, 512, element_bytes=size)).exposed_communication_s
        for size in (2, 4)
    ]  # fmt: skip
    assert clock.exposed_communication_s == pytest.approx(exposed_s[0], rel=1e-9) and exposed_s[0] != exposed_s[1]


def test_one_training_under_two_names_has_one_clock() -> None:
    """Local Adam is MT-DAO with one momentum that has all the weight: the same calls, so the same clock."""
    fields = [
        "networks=[10gbe]",
        "steps=24",
        "seeds=[0]",
        "problem.skew=0",
        "compute.seconds=0.001",
        "compute.encode_bandwidth=1 MB/s",
        "algorithm=ring",
    ]
    shared = "lr: 0.003, period: 8, wire: bf16"
    local, mt_dao = f"{{kind: local, {shared}}}", f"{{kind: mt-dao, betas: [0.9], omegas: [1.0], {shared}}}"
    spec = load_spec("digits-skewed", [*fields, f"methods=[{local}, {mt_dao}]"], CompareSpec)
    trainings = [train_method(spec, method) for method in spec.methods]
    one, other = (time_method(spec, trained, spec.networks[0]) for trained in trainings)
    assert trainings[0].ledger == trainings[1].ledger
    assert one.step_time_s == other.step_time_s == pytest.approx(8.26e-3, rel=1e-3)
    assert one.encode_s == other.encode_s == pytest.approx(7.21e-3, rel=1e-3)


def test_buckets_shorten_a_step_and_change_no_loss() -> None:
    fast = {"network": LINK | {"latency": 0.0}}
    (plain, without), (bucketed, with_it) = (
        timed(spec_of({"kind": "ddp"}, overlap=overlap, bucket_size=512, **fast)) for overlap in ("none", "ddp")
    )
    assert with_it.step_time_s < without.step_time_s
    assert with_it.communication_s == pytest.approx(without.communication_s)
    assert bucketed.history.final_records() == plain.history.final_records()
    assert {"gradient 1/2", "gradient 2/2"} <= set(with_it.timeline.label.tolist())


def test_streamed_averages_are_waited_for_when_they_are_merged() -> None:
    now, later = (
        timed(spec_of({"kind": "streaming-diloco", "period": 6, "stream": {"fragments": 1, "tau": tau}}))[1]
        for tau in (0, 3)
    )
    assert now.exposed_communication_s == pytest.approx(now.communication_s)
    # The second of two averages begins as the training ends, and nobody waits for it.
    assert later.communication_s == pytest.approx(now.communication_s / 2)
    assert later.exposed_communication_s < now.exposed_communication_s / 2


def test_a_trigger_reads_a_number_of_each_matrix_in_every_step() -> None:
    spec = spec_of({"kind": "curvadion"}, compute={"seconds": 1e-3, "readback_latency": "20 us"})
    trained, clock = timed(spec)
    assert trained.readbacks_by_step().tolist() == [1] * 12  # of the hidden layer; the output layer is no matrix to it
    assert clock.trigger_s == pytest.approx(20e-6)
    _, free = timed(spec_of({"kind": "curvadion"}))
    assert clock.step_time_s == pytest.approx(free.step_time_s + clock.trigger_s)
    assert timed(spec_of({"kind": "ddp"}, compute={"seconds": 1e-3, "readback_latency": "20 us"}))[1].trigger_s == 0


MUON = {"kind": "ddp", "rule": "muon", "other_lr": 0.01}


def test_updates_are_counted_at_the_speed_of_the_step() -> None:
    """Of Muon the iterations of its one matrix; nothing of Adam, whose update multiplies nothing."""
    trained, clock = timed(spec_of(MUON, compute={"seconds": 1e-3, "optimizer_time": "counted"}))
    iterations = orthogonal_work([TensorShape("w", (16, 64), is_matrix=True)])
    share = iterations.flops(None) / trained.flops_per_step
    assert clock.optimizer_s == pytest.approx(1e-3 * share) and share > 0.1
    on_core = timed(spec_of(MUON, compute={"hardware": "cpu-core", "optimizer_time": "counted"}))[1]
    assert on_core.optimizer_s == pytest.approx(share * on_core.compute_s)
    _, free = timed(spec_of(MUON))
    assert clock.step_time_s == pytest.approx(free.step_time_s + clock.optimizer_s)
    assert timed(spec_of({"kind": "ddp"}, compute={"seconds": 1e-3, "optimizer_time": "counted"}))[1].optimizer_s == 0


def test_updates_take_what_is_given_and_longer_where_computing_does() -> None:
    given = {"seconds": 1e-3, "optimizer_time": {"ddp-muon": "4 ms", "another": "1 s"}}
    assert timed(spec_of(MUON, compute=given))[1].optimizer_s == pytest.approx(4e-3)
    slow = given | {"slow_workers": [{"worker": 1, "factor": 2}]}
    assert timed(spec_of(MUON, compute=slow))[1].optimizer_s == pytest.approx(4e-3 * 4 / 3)
    fast = spec_of(MUON, compute=given, speeds=[1, 1, 2])
    assert timed(fast)[1].optimizer_s == pytest.approx(4e-3 * 2.5 / 3)


def test_updates_that_cannot_be_counted_are_refused_before_anything_is_trained() -> None:
    spec = spec_of({"kind": "ddp"}, problem="rosenbrock", compute={"seconds": 1e-3, "optimizer_time": "counted"})
    with pytest.raises(
        SpecError, match=r"compute.optimizer_time: got 'counted'; expected a time, as rosenbrock has no FLOPs"
    ):
        train_method(spec, spec.method)


def test_an_algorithm_and_a_start_rule_change_the_clock() -> None:
    steps = {
        (algorithm, rule): timed(spec_of({"kind": "ddp"}, algorithm=algorithm, protocol=rule, workers=4))[1].step_time_s
        for algorithm, rule in (
            (None, "eager"), ("auto", "eager"), ("ring", "eager"), ("tree", "eager"), ("tree", "rendezvous")
        )
    }  # fmt: skip
    assert steps[None, "eager"] == steps["auto", "eager"] < steps["ring", "eager"] < steps["tree", "eager"]
    assert steps["tree", "rendezvous"] != steps["ring", "eager"]


def test_a_clock_needs_no_times_of_steps_that_were_never_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A billion steps of three workers would be 24 GB."""

    def stop(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    sampled = []
    sample = ComputeSpec.sample
    monkeypatch.setattr(ComputeSpec, "sample", lambda self, base_s, steps, *rest: sampled.append(steps) or sample(
        self, base_s, steps, *rest))  # fmt: skip
    spec = spec_of({"kind": "ddp", "rule": "sgdm"}, steps=10**9)
    trained = train_method(spec, spec.method, stop)
    assert trained.history.interrupted
    clock = time_method(spec, trained, spec.network)
    assert clock is not None and sampled == [trained.history.steps] and len(clock.step_end_s) == sampled[0]
