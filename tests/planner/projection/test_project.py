from __future__ import annotations

import math
import re

import pytest
import torch

import syncline as sl
from syncline.comm import SimulatedCommunicator
from syncline.costmodel import MODELS, Link, ModelShape, calls_at, calls_of, ring_all_reduce_s
from syncline.costmodel.traffic.overlap import gradient_buckets
from syncline.errors import SpecError
from syncline.methods import METHODS, method_of, tensors_of
from syncline.planner.projection.project import project
from syncline.problems.network import NetworkTask
from syncline.problems.text_gpt import TextGPT
from syncline.runs.catalogue import method_rows
from syncline.runs.training.results import clock_record
from syncline.runs.training.train_and_time import time_method, train_method
from syncline.sim import clock
from syncline.specs import CompareSpec, ProjectSpec, load_spec
from syncline.training import parameter_groups, rows_of

GPT = {"layers": 1, "width": 8, "heads": 2}
SHAPE = ModelShape(
    "tiny", **GPT, vocabulary=256, sequence=8, tied=True, position_embedding=True, norms_per_layer=2, fused_qkv=True
)
STEPS, WORKERS = 72, 3  # the longest period of a named method that a short training can see is 69
SHARED = {
    "name": "tiny",
    "workers": WORKERS,
    "steps": STEPS,
    "networks": ["wan", "10gbe"],
    "compute": {"hardware": "cpu-core", "optimizer_time": "counted"},
    "overlap": "none",
    "algorithm": "ring",
}
"""Without overlap and over rings, whose closed forms are exact for any number of workers."""
VARIANTS = {
    "sgd without momentum": {"kind": "local", "rule": {"kind": "sgdm", "momentum": 0}, "lr": 0.1, "period": 5},
    "bf16": {"kind": "ddp", "lr": 0.003, "wire": "bf16"},
    "local, bf16": {"kind": "local", "lr": 0.003, "wire": "bf16", "period": 7},
    "periods of their own": {"kind": "mt-dao", "lr": 0.003, "betas": [0.9, 0.99], "omegas": [0.5, 0.4], "period": 4,
                             "momentum_periods": [6, 12], "second_moment_period": 9},
    "the paper's phase": {"kind": "mt-dao", "lr": 0.003, "period": 8, "momentum_periods": [12], "phase": "paper"},
    "momenta of outer layers": {"kind": "lion-cub", "vote": "direct", "ties": "zero", "lr": 0.0005, "wire": "bf16",
                                "momentum_layers": "first-and-last", "momentum_period": 6},
    "nodes": {"kind": "demo", "per_node": 3, "lr": 0.001},
    "an outer optimizer": {"kind": "mt-dao", "lr": 0.003, "period": 8, "outer_optimizer": {"lr": 0.7}},
}  # fmt: skip


def named(method):
    """The fields of a method; a trigger is made to fire in every step, as no formula knows when it would."""
    fields = METHODS.get(method) or VARIANTS[method]
    triggered = "threshold" in type(method_of(fields)).model_fields
    return fields | ({"threshold": 0.0, "expected_sync_rate": 1.0} if triggered else {})


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_bytes(bytes(range(256)) * 8)
    return str(path)


def training(text, methods, **fields):
    problem = {"kind": "text-gpt", "context": 8, "batch_size": 1, "validation_windows": 1, "path": text, **GPT}
    return CompareSpec.model_validate({"kind": "compare", "problem": problem, "methods": methods} | SHARED | fields)


def projection(methods, **fields):
    shape = {"kind": "project", "model": SHAPE, "tokens_per_worker": 8, "methods": methods}
    return ProjectSpec.model_validate(shape | SHARED | fields)


@pytest.fixture
def _gradients_are_noise(monkeypatch):
    """What is sent, and when, is the same whatever the gradients are; noise takes a tenth of a network's time."""

    def step_gradients(task, step):
        source = torch.Generator().manual_seed(step)
        for p in task.params.values():
            p.grad = torch.randn(p.shape, generator=source)
        return torch.ones(len(task.rows))

    monkeypatch.setattr(NetworkTask, "step_gradients", step_gradients)


@pytest.mark.usefixtures("_gradients_are_noise")
@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_the_closed_form_is_the_ledger_and_the_clock_of_a_real_training(method, text):
    fields = named(method)
    # The closed form of a tree is exact for powers of two; workers that the last broadcast reaches early do not wait.
    tree = "server" in fields.get("vote", "")
    workers = 4 if tree else WORKERS * (2 if method == "nodes" else 1)
    exchanges = method_of(fields).exchanges(SHAPE.tensors, workers)
    # Once all has begun, two periods and a step show the rest.
    shown = max(max(one.start, one.stop or 0) + 2 * one.period + 1 for one in exchanges)
    steps = STEPS if tree else min(max(shown, 8), STEPS)
    spec = training(text, [fields], workers=workers, steps=steps)
    (planned,) = spec.methods
    trained = train_method(spec, planned)
    for step in range(steps):
        due = [call.payload_bytes for call in calls_at(planned.exchanges(SHAPE.tensors, workers), step)]
        sent = [call.payload_bytes for call in trained.ledger if call.step == step and 0 in call.group]
        assert sent == due
    told = {row["network"]: row for row in project(projection([fields], workers=workers, steps=steps))}
    for link in spec.networks:
        simulated = clock_record(time_method(spec, trained, link))
        for name, value in simulated.items():
            rel = 1 / STEPS if tree and "communication" in name else 1e-9
            assert told[link.name][name] == pytest.approx(value, rel=rel), name


@pytest.mark.usefixtures("_gradients_are_noise")
@pytest.mark.parametrize("method", METHODS)
def test_so_it_is_with_what_nobody_says(method, text):
    """Gradients in buckets beside the backward pass, the fastest algorithm of each size, four workers."""
    how = {"overlap": "ddp", "algorithm": None, "workers": 4, "steps": 8, "bucket_size": 1024}
    fields = named(method)
    spec = training(text, [fields], **how)
    trained = train_method(spec, spec.methods[0])
    if any(call.payload_bytes == 0 for call in trained.ledger) or "server" in fields.get("vote", ""):
        return  # of no bytes every algorithm is the fastest; a tree is held above
    told = {row["network"]: row for row in project(projection([fields], **how))}
    for link in spec.networks:
        for name, value in clock_record(time_method(spec, trained, link)).items():
            assert told[link.name][name] == pytest.approx(value, rel=1e-9), name


def test_a_worker_alone_sends_nothing(text):
    methods = [METHODS["ddp-adam"], METHODS["local-adam"]]
    spec = training(text, methods, workers=1)
    for method, row in zip(spec.methods, project(projection(methods, workers=1)), strict=False):
        timed = time_method(spec, train_method(spec, method), spec.networks[0])
        for bytes_per_worker, communication_s in [
            (timed.bytes_per_worker, timed.communication_s),
            (row["bytes_per_worker"], row["communication_s"]),
        ]:
            assert (bytes_per_worker, communication_s) == (0, 0)


def test_the_text_gpt_of_the_problems_is_the_one_of_the_cost_model():
    parameters = sum(p.numel() for p in TextGPT().module().parameters())
    assert parameters == MODELS["text-gpt"].parameters


def test_ddp_sends_four_bytes_per_parameter_of_the_default_gpt_in_every_step(text):
    problem = {"kind": "text-gpt", "batch_size": 1, "validation_windows": 1, "path": text}
    spec = training(text, ["ddp-adam"], problem=problem, workers=2, steps=2)
    ledger = train_method(spec, spec.methods[0]).ledger
    assert [call.payload_bytes for call in ledger] == [4 * MODELS["text-gpt"].parameters] * 2


def test_three_states_every_32_steps_are_32_thirds_less_than_a_gradient_every_step(text):
    spec = training(text, ["ddp-adam", "mt-dao"], steps=64)
    ddp, mt_dao = (sum(call.payload_bytes for call in train_method(spec, method).ledger) for method in spec.methods)
    assert 3 * ddp == 32 * mt_dao


def test_a_step_of_ddp_is_computing_and_one_ring_all_reduce():
    plain = ["overlap=none", "algorithm=ring", "precision=fp32", "compute.mfu=0.4"]
    spec = load_spec("project-gpt-160m", ["methods=[ddp-adam, diloco]", "networks=[10gbe]", *plain])
    ddp, diloco = project(spec)
    machine = spec.compute.hardware
    compute_s = spec.model.flops_per_token * spec.worker_tokens / (0.4 * machine.peak_flops)
    sync_s = float(ring_all_reduce_s(4, 4 * spec.model.parameters, spec.networks[0]))
    assert ddp["step_time_s"] == pytest.approx(compute_s + sync_s, rel=1e-12)
    assert diloco["step_time_s"] == pytest.approx(compute_s + sync_s / 32, rel=1e-12)
    assert ddp["speedup"] == 1
    assert diloco["speedup"] == pytest.approx(ddp["step_time_s"] / diloco["step_time_s"], rel=1e-12)
    assert ddp["communication_share"] == pytest.approx(sync_s / (compute_s + sync_s), rel=1e-12)
    assert ddp["wall_clock_s"] == pytest.approx(9984 * ddp["step_time_s"], rel=1e-12)


def test_the_projected_speedups_of_curvadion_are_those_of_its_table_3():
    rows = project(load_spec("curvadion-table3"))
    assert [row["network"] for row in rows] == ["infiniband", "10gbe", "wan"]
    assert [f"{row['speedup']:.4f}" for row in rows] == ["1.0201", "1.2024", "4.3610"]
    for row in rows:
        assert row["baseline_step_time_s"] / row["step_time_s"] == pytest.approx(row["speedup"], rel=1e-12)
        assert row["compute_s"] + row["communication_s"] == pytest.approx(row["step_time_s"], rel=1e-12)
        assert row["alpha_beta_sync_s"] + row["unexplained_sync_s"] == pytest.approx(row["sync_s"], rel=1e-12)


def test_demo_s_table_is_reproduced_and_adamw_s_rows_are_off_by_what_was_found():
    rows = project(load_spec("demo-table1"))
    demo, adamw = ([row for row in rows if row["method"] == name] for name in ("demo", "adamw"))
    assert (len(demo), len(adamw)) == (22, 2)
    assert all(row["matches"] for row in demo) and not any(row["matches"] for row in adamw)
    assert [f"{row['deviation']:+.1%}" for row in adamw] == ["-0.5%", "+2.7%"]
    for row in demo:
        parameters = MODELS[row["model"]].parameters
        assert row["bytes_per_worker"] == 12 * parameters * row["k"] / row["chunk"] ** 2
    for row in adamw:
        assert (row["k"], row["chunk"]) == (None, None)
        assert row["bytes_per_worker"] == 2 * MODELS[row["model"]].parameters


def test_a_number_is_cut_off_after_the_digits_that_the_paper_prints():
    row = "rows=[{{method: demo, model: olmo-1b, paper_megabytes_per_step: {}}}]"
    for printed, matches in (("110.32", True), ("110", True), ("110.33", False), ("110.321664", True), ("111", False)):
        assert project(load_spec("demo-table1", [row.format(printed)]))[0]["matches"] is matches


def test_the_volumes_of_curvadion_come_out_in_three_different_units():
    rows = project(load_spec("curvadion-table2"))
    assert [row["unit"] for row in rows if row["matches"]] == ["MiB", "GiB", "1000 MiB"]
    large = rows[3]
    assert (large["model"], large["matches"]) == ("gpt-1.3b", False)
    assert large["bytes"] == 47_000 * 4 * MODELS["gpt-1.3b"].parameters
    for row in rows:
        assert row["volume"] * row["unit_bytes"] == pytest.approx(row["bytes"], rel=1e-12)
        assert row["paper_volume"] / row["volume"] - 1 == pytest.approx(row["deviation"], abs=1e-12)


def test_a_volume_of_nothing_has_no_deviation_and_no_error():
    row = "{method: local-adam, model: gpt-160m, steps: 1, paper_volume: 1, paper_unit: MB}"
    (told,) = project(load_spec("curvadion-table2", [f"rows=[{row}]"]))
    assert (told["bytes"], told["matches"], told["deviation"]) == (0, False, math.inf)


MORE = [
    {"kind": "mt-dao", "lr": 0.003, "outer_optimizer": "fedadam"},
    {"kind": "mt-dao", "base": "muon", "betas": [0.9, 0.99], "omegas": [0.5, 0.4], "lr": 0.003},
    {"kind": "curvadion", "other_rule": "lion", "threshold": 0.0, "lr": 0.003},
    {"kind": "sign-sgd", "momentum": 0.9, "lr": 0.003},
    {"kind": "streaming-diloco", "rule": "muon", "lr": 0.003},
    {"kind": "powersgd", "rule": "adam", "rank": 1, "compress_all_matrices": True, "lr": 0.003},
]


@pytest.mark.parametrize("fields", [*map(named, [*METHODS, *VARIANTS]), *MORE], ids=lambda fields: fields["kind"])
def test_a_method_keeps_as_many_numbers_as_its_spec_says(fields, text):
    spec = training(text, [fields], workers=1)
    (planned,) = spec.methods
    comm = SimulatedCommunicator(1)
    task = spec.problem.build(rows_of(comm, (0,)))
    optimizer = planned.build(parameter_groups(task), comm)
    task.step_gradients(0)
    optimizer.step()
    kept = sum(tensor.numel() for state in optimizer.state.values() for tensor in state.values())
    assert kept == planned.kept_elements(SHAPE.tensors, 1)


def test_formulas_in_the_number_of_parameters_give_the_bytes_of_a_model():
    shape = MODELS["olmo-300m"]
    counts = {"N'": sum(t.elements for t in shape.tensors if not t.is_matrix), "N": shape.parameters}
    for row in method_rows(print, shape):
        formula = row["bytes_per_worker_and_step"].replace("×", "*").replace("²", "**2")
        if "Σ" not in formula:
            for symbol, count in counts.items():
                formula = re.sub(rf" {symbol}(?!')", f" * {count}", formula)
            assert row["bytes_per_worker"] == pytest.approx(eval(formula), rel=1e-12), row["name"]


def test_no_computing_and_no_communication_is_no_division_by_zero():
    row = project(projection([METHODS["ddp-adam"]], workers=1, compute={"seconds": 0}))[0]
    assert (row["step_time_s"], row["communication_share"], row["speedup"]) == (0, 0, 1)
    assert not any(math.isnan(value) for value in row.values() if isinstance(value, float))


def test_all_projected_methods_have_names_of_their_own():
    assert len({method_of(name).name for name in METHODS}) == len(METHODS)


def test_a_width_too_small_for_the_workers_is_refused_with_the_path_of_the_method():
    spec = load_spec("project-gpt-160m", ["methods=[ddp-adam, lion-cub-4bit]", "workers=300"], ProjectSpec)
    with pytest.raises(SpecError, match=r"^methods\.1\.bits: got 4; expected at least 9 for sums over 300 workers"):
        project(spec)


@pytest.mark.parametrize("overlap", ["none", "ddp", "async"])
def test_messages_inside_nodes_and_between_them_share_a_workers_network(overlap: str) -> None:
    fields = {"kind": "demo", "lr": 0.003, "per_node": 2, "period": 3}
    link = Link(1e-3, 1e9, name="link")
    (row,) = sl.project(
        model="gpt2", methods=[fields], networks=[link], workers=8, steps=24, overlap=overlap, algorithm="ring",
        compute={"seconds": 0.01}, thresholds=False,
    ).rows  # fmt: skip
    tensors = tensors_of(MODELS["gpt2"].tensors)
    buckets = gradient_buckets([tensor.elements for tensor in tensors])
    calls = calls_of(method_of(fields).exchanges(tensors, 8), 24, range(8))
    simulated = clock(calls, 0.01, link, 8, 24, overlap=overlap, buckets=buckets, algorithm="ring")
    assert row["step_time_s"] == pytest.approx(simulated.step_time_s, rel=1e-9)
