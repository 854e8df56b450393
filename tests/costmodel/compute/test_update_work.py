"""The kernels of updates in the cost model, against the operations that the methods dispatch."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from syncline.comm import SimulatedCommunicator
from syncline.costmodel import HARDWARE, TensorShape
from syncline.costmodel.compute.models import MODELS
from syncline.costmodel.compute.update_work import UpdateWork, Updating, orthogonal_work, qr
from syncline.measure.recording.operations import OperationCounter, cost_of
from syncline.measure.replaying.replay import operations_s
from syncline.methods import METHODS, method_of
from syncline.planner.projection.plan import ProjectionPlan
from syncline.specs import ComputeSpec, load_spec
from syncline.training import parameter_groups


def test_products_of_messages_count_without_known_kernels() -> None:
    """DeMo's transforms of 64 x 64 blocks: three of two products, 2 x 64 FLOPs for each element."""
    core, tensors = HARDWARE["cpu-core"], [TensorShape("w", (128, 64), is_matrix=True)]
    added_s = method_of("demo").added_update_s(tensors, core)
    assert added_s == 3 * 2 * 2 * 64 * 128 * 64 / (core.peak_flops * core.mfu)
    assert method_of("demo").added_update_s(tensors, core, updating=Updating(with_messages=False)) == 0


MODEL = replace(MODELS["gpt-160m"], layers=2)
H100 = HARDWARE["h100"]

OUTSIDE = {name for name in METHODS if method_of(name).wire}
"""Presets whose wire formats work outside of the update."""

RARE = {
    name
    for name in METHODS
    if getattr(method_of(name), "compressor", None) and getattr(method_of(name), "period", 1) > 1
}
"""Presets that compress once in a period, over whose steps the work is spread."""

APART = {"one-bit-adam", "galore", "demo-periodic", "dion-8bit"} | RARE
"""One-bit Adam is counted as it is after its first steps. GaLore's momentum does not follow its rare new bases. DeMo's
messages are spread over its period. Compressors of factors are left out."""

DECOMPOSITIONS = {"linalg_qr": "qr", "_linalg_eigh": "eigh"}
SCATTERED = {"scatter_", "scatter_add_"}
"""Operations that are counted as if they read and wrote their whole target."""


class Recorder(TorchDispatchMode):
    """A record of the operations that move data or multiply; no trigger fires."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._overloadpacket._qualified_op_name.removeprefix("aten::")
        if name == "_local_scalar_dense":
            return False if args[0].dtype == torch.bool else 1.0
        out = func(*args, **(kwargs or {}))
        counted = cost_of(func, args, kwargs or {}, out)
        if counted is not None and name != "promote_types":
            self.operations.append((name, counted, args))
        return out


def steps_of(spec):
    """Return the operations of an ordinary step, and of one that renews bases."""
    params = {}
    for tensor in MODEL.tensors:
        params[tensor.name] = parameter = torch.nn.Parameter(torch.empty(1, *tensor.shape, device="meta"))
        parameter.grad = torch.empty_like(parameter)
    matrices = tuple(tensor.name for tensor in MODEL.tensors if tensor.is_matrix)
    task = SimpleNamespace(params=params, matrices=matrices)
    optimizer = spec.build(parameter_groups(task), SimulatedCommunicator(1))
    frequency = getattr(spec, "frequency", None) or 4
    records = []
    for t in (1, frequency - 1, frequency, frequency + 1, frequency + 2):
        for group in optimizer.param_groups:
            group["step"] = t
        with Recorder() as recorder:
            optimizer.step()
        records.append(recorder.operations)
    return records[-1], max(records[1:], key=len)


def sums(operations):
    """Return bytes of operations that memory limits, their number with products, FLOPs, and decompositions."""
    memory = sum(one.kernels * one.nbytes for one in operations if one.kind in ("memory", "lists"))
    flops = sum(one.kernels * one.flops for one in operations if one.kind == "product")
    decompositions = Counter()
    for one in operations:
        if one.kind in ("qr", "eigh"):
            decompositions[one.kind, int(one.shape[0]), int(one.shape[-2])] += round(one.kernels)
    return memory, sum(one.kernels for one in operations if one.kind != "view"), flops, decompositions


def sums_of_record(record):
    memory = sum(
        counted.nbytes
        for name, counted, _ in record
        if counted.kind != "product" and name not in DECOMPOSITIONS and name not in SCATTERED and name != "topk"
    )
    flops = sum(counted.flops for _, counted, _ in record)
    decompositions = Counter()
    for name, _, args in record:
        if name in DECOMPOSITIONS:
            decompositions[DECOMPOSITIONS[name], *args[0].shape[-2:]] += 1
    return memory, len(record), flops, decompositions


@pytest.mark.parametrize("name", [*sorted(METHODS.keys() - OUTSIDE - APART), "frozen"])
def test_the_kernels_are_those_that_the_method_dispatches(name):
    spec = method_of({"kind": "one-bit-adam", "lr": 0.1, "freeze_step": 1} if name == "frozen" else name)
    work = spec._update_work(MODEL.tensors)
    usual = work.step + work.iterations + work.messages
    for told, record in zip((usual, usual + work.renewal), steps_of(spec), strict=True):
        nbytes, kernels, flops, decompositions = sums(told)
        recorded_bytes, recorded_kernels, recorded_flops, recorded_decompositions = sums_of_record(record)
        assert nbytes == pytest.approx(recorded_bytes, rel=0.04)
        assert kernels == pytest.approx(recorded_kernels, rel=0.15, abs=25)
        assert flops == pytest.approx(recorded_flops, rel=1e-9)
        assert decompositions == recorded_decompositions


def test_messages_of_a_period_are_spread_over_its_steps():
    of_each, of_some = (method_of({"kind": "demo", "lr": 0.1, "period": period}) for period in (1, 4))
    every, some = (sums(spec._update_work(MODEL.tensors).messages) for spec in (of_each, of_some))
    assert [one / 4 for one in every[:3]] == pytest.approx(some[:3])


def rows_of(file, part):
    return json.loads((Path("results/gpu") / file).read_text())["parts"][part]["rows"]


@pytest.mark.parametrize(
    ("gpu", "file"),
    [
        ("h100", "nvidia-h100-80gb-hbm3.json"),
        ("h200", "nvidia-h200-ceilings-compute-readback-alone-kernels-optimizers.json"),
    ],
)
def test_steps_of_methods_take_as_long_as_they_were_measured(gpu, file):
    """The constants are those of single kernels, which are in other parts of the files."""
    errors = []
    for row in rows_of(file, "optimizers"):
        spec, tensors = method_of(row["method"]), MODELS[row["model"]].tensors
        seconds = spec._update_work(tensors).seconds(HARDWARE[gpu], spec._renewal_period(0, 1))
        errors.append(seconds / row["mean_s" if row["cycle"] > 1 else "median_s"] - 1)
    assert len(errors) == 24 and max(map(abs, errors)) < 0.25
    assert statistics.median(map(abs, errors)) < 0.1


@pytest.mark.parametrize(("kernels", "precision"), [("eager", "fp32"), ("tf32", "tf32"), ("optimised", "bf16")])
def test_iterations_on_tensor_cores_take_as_long_as_they_were_measured(kernels, precision):
    errors = []
    for row in rows_of("nvidia-h200-updates.json", "updates"):
        if row["kernel"] == "newton-schulz" and row["precision"] == precision:
            work = orthogonal_work([TensorShape("w", tuple(row["shape"][1:]), is_matrix=True)])
            errors.append(work.seconds(HARDWARE["h200"], None, Updating(kernels)) / row["median_s"] - 1)
    assert len(errors) == 12 and statistics.median(map(abs, errors)) < 0.08 and max(map(abs, errors)) < 0.3


def test_an_optimised_update_decomposes_faster_and_never_slower():
    dion, square = method_of("dion")._update_work(MODEL.tensors), UpdateWork((qr(2**15, 2**15),))
    assert dion.seconds(H100, None, Updating("optimised")) < 0.7 * dion.seconds(H100, None)
    assert square.seconds(H100, None, Updating("optimised")) == square.seconds(H100, None)


def test_an_update_adds_what_it_takes_longer_than_that_of_adam():
    added = {
        name: method_of(name).added_update_s(MODEL.tensors, H100) for name in ("ddp-adam", "mt-dao", "ddp-lion", "dion")
    }
    assert added["ddp-adam"] == added["mt-dao"] == added["ddp-lion"] == 0.0  # by about as much, or less
    dion, adam = (method_of(name)._update_work(MODEL.tensors).seconds(H100, None) for name in ("dion", "ddp-adam"))
    assert added["dion"] == pytest.approx(dion - adam)
    decayed = method_of({"kind": "dion", "lr": 0.1, "weight_decay": 0.1}).added_update_s(MODEL.tensors, H100)
    assert decayed == pytest.approx(added["dion"] + 8 * MODEL.parameters / (0.85 * 0.88 * 3.35e12), rel=0.01)


def test_messages_are_in_the_update_or_in_the_encoding():
    demo = method_of("demo")
    plain, encoding = (ComputeSpec(hardware=H100, encode_bandwidth=rate) for rate in (None, 1e9))
    alone_s, beside_s = (one.optimizer_s(demo, MODEL.tensors, 1.0, 1.0, "") for one in (plain, encoding))
    without_messages_s = demo.added_update_s(MODEL.tensors, H100, updating=Updating(with_messages=False))
    assert beside_s == without_messages_s < alone_s


def test_only_gpus_whose_updates_were_measured_have_their_prices():
    priced = {name for name in HARDWARE if ComputeSpec(hardware=name).prices_updates}
    assert priced == {"h100", "h200"}
    dion, given = method_of("dion"), ComputeSpec(hardware="h100", optimizer_time=1e-3)
    assert given.optimizer_s(dion, MODEL.tensors, 1.0, 1.0, "") == 1e-3
    assert ComputeSpec(hardware="a100").optimizer_s(dion, MODEL.tensors, 1.0, 1.0, "") == 0.0


def test_sharded_states_share_out_the_update():
    fields = {"name": "p", "kind": "project", "model": "gpt-350m", "workers": 8, "methods": ["ddp-muon"]}
    fields |= {"networks": ["nvlink4"]}
    seconds = []
    for sharding in ("none", "optimizer"):
        spec = load_spec(fields | {"compute": {"hardware": "h100"}, "memory": {"sharding": sharding}})
        seconds.append(float(ProjectionPlan([spec]).method_plans[0].optimizer_s[0]))
    assert seconds[1] == pytest.approx(seconds[0] / 8)


def test_a_trace_has_decompositions_and_their_prices():
    counted = []
    with OperationCounter(counted.append, lambda: True):
        torch.linalg.qr(torch.randn(2, 30, 8))
        torch.linalg.eigh(torch.eye(16))
    decomposed = [one for one in counted if one.kind != "memory"]
    assert [(one.kind, one.shape) for one in decomposed] == [("qr", (30.0, 8.0, 2.0)), ("eigh", (16.0, 1.0))]
    seconds = operations_s((decomposed[0]._replace(shape=(4096.0, 1024.0, 1.0)),), H100)
    assert seconds == pytest.approx(7.7e-3, rel=0.1)  # as measured
