"""Basis Rotation in the staleness study: its bundled specs, its cost on the clock, its frequencies at each stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from replication.studies.staleness import STUDY, LateMethod, StalenessSpec
from replication.studies.staleness.study import work_of
from replication.studies.staleness.training import train_late
from syncline.comm import SimulatedCommunicator
from syncline.costmodel import HARDWARE, MODELS
from syncline.costmodel.compute.update_work import rotation_work, stage_renewal_intervals
from syncline.errors import SpecError
from syncline.problems import Rows, TextGPT
from syncline.runs.run import run_study
from syncline.runs.training.delayed_gradients import delays_of
from syncline.runs.training.stage_updates import added_update_s, async_update_times
from syncline.specs import load_spec, validate
from syncline.training import parameter_groups

TINY = ["steps=2", "eval_every=1", "schedule={}", "seeds=[0]", "problem.width=4", "problem.heads=1",
        "problem.context=4", "problem.batch_size=1", "problem.validation_windows=1"]  # fmt: skip
FEW = {
    "basis-rotation-fig5": ["rate_factors=[]", "tuning_seeds=[]", "stages=[1, 4]", "clock.networks=[nvlink4]"],
    "basis-rotation-fig10": ["stages=[16]", "clock.networks=[nvlink4]"],
    "basis-rotation-fig11": ["stages=[4]"],
}


def rotation(**fields: Any) -> LateMethod:
    """Basis Rotation of these settings."""
    late = validate(LateMethod, {"method": {"kind": "basis-rotation", "lr": 0.01} | fields})
    assert isinstance(late, LateMethod)
    return late


def rows_of(spec: StalenessSpec) -> list[dict[str, Any]]:
    return STUDY.rows(spec, STUDY.records(spec))


# Bundled specs.


@pytest.mark.parametrize("name", FEW)
def test_bundled_studies_of_rotation_run(name):
    assert load_spec(name, (), StalenessSpec).warnings() == []
    spec = load_spec(name, TINY + FEW[name], StalenessSpec)
    rows = rows_of(spec)
    assert len(rows) == len(spec.methods) * len(spec.stages) * (len(spec.clock.networks) if spec.clock else 1)
    assert all(row["diverged_at"] is None for row in rows)


@pytest.mark.parametrize("name", FEW)
def test_the_large_form_is_the_same_study_at_other_sizes(name):
    large = load_spec(name, (), StalenessSpec, scale="gpu")
    small = load_spec(name, (), StalenessSpec)
    assert (large.device, small.device) == ("cuda", "cpu")
    assert max(large.stages) == large.problem.layers == 32 and large.warnings() == []
    assert [late.name for late in large.methods] == [late.name for late in small.methods]
    assert [late.method for late in large.methods] == [late.method for late in small.methods]


def test_the_large_form_trains_with_its_sizes_cut_down():
    cut = [
        *TINY,
        "device=cpu",
        "stages=[32]",
        "methods=[basis-rotation]",
        "clock=null",
        "rate_factors=[]",
        "tuning_seeds=[]",
    ]
    (first, *_) = rows_of(load_spec("basis-rotation-fig5", cut, StalenessSpec, scale="gpu"))
    assert first["stages"] == 32 and first["diverged_at"] is None


# The clock.

GPT_350M, A100 = MODELS["gpt-350m"], HARDWARE["a100"]


def test_renewals_cost_in_inverse_proportion_to_their_frequency():
    def added(frequency: int | None) -> float:
        return sum(added_update_s(rotation(frequency=frequency).method, GPT_350M, A100, 8))

    never = added(None)
    assert never > 0
    assert added(10) - never == pytest.approx((added(1) - never) / 10)
    assert added(1) > 3 * never


def test_what_is_added_is_the_work_of_each_stages_blocks():
    seconds = added_update_s(rotation().method, GPT_350M, A100, 8)
    width, rate = GPT_350M.width, A100.peak_flops * A100.mfu
    square = rotation_work(width, width, "2nd", "bilateral")
    wide = rotation_work(width, 4 * width, "2nd", "bilateral")
    each = [work.flops(10) / rate for work in (square, wide)]
    assert seconds == pytest.approx([3 * (4 * each[0] + 2 * each[1])] * 8)  # 24 blocks in 8 stages


def test_a_method_whose_update_is_elementwise_adds_nothing():
    late = LateMethod.model_validate({"method": {"kind": "ddp", "rule": "adam", "lr": 0.01}})
    assert added_update_s(late.method, GPT_350M, A100, 8) == (0.0,) * 8


@pytest.mark.parametrize("rule", ["muon", "scion"])
def test_orthogonalising_is_charged_too(rule):
    """Five iterations of two products with the matrix and one of a square, of six matrices in each of 24 blocks."""
    late = LateMethod.model_validate({"method": {"kind": "ddp", "rule": rule, "lr": 0.01}})
    d, rate = GPT_350M.width, A100.peak_flops * A100.mfu
    flops = 4 * 5 * (3 * 2 * d**3) + 2 * 5 * (2 * 2 * d * d * 4 * d + 2 * d**3)
    assert added_update_s(late.method, GPT_350M, A100, 8) == pytest.approx([3 * flops / rate] * 8)


def test_stage_aware_renewals_cost_most_at_the_first_stage_and_reversed_ones_at_the_last():
    aware, reverse, uniform = (
        added_update_s(rotation(allocation=one).method, GPT_350M, A100, 8)
        for one in ("stage-aware", "reversed", "uniform")
    )
    assert list(aware) == sorted(aware, reverse=True) and aware[0] > uniform[0] > aware[-1]
    assert aware == pytest.approx(reverse[::-1])
    # Together they cost what uniform ones do, but for intervals that are rounded down.
    assert sum(uniform) * 0.999 <= sum(aware) <= sum(uniform) * 1.1


def test_the_added_time_is_in_the_update_of_both_pipelines():
    fields = ["methods=[basis-rotation, {method: ddp-adam}]", "rate_factors=[]", "tuning_seeds=[]"]
    spec = load_spec("basis-rotation-fig5", fields, StalenessSpec)
    fast = next(network for network in spec.clock.networks if network.name == "nvlink4")
    rotated, adam = (work_of(spec, late.method, 8) for late in spec.methods)
    assert rotated.forward_s == adam.forward_s
    slower = async_update_times(rotated, fast).update_s - async_update_times(adam, fast).update_s
    assert slower == pytest.approx(max(rotated.update_s), rel=0.01)


# Frequencies at each stage.


@pytest.mark.parametrize("allocation", ["stage-aware", "reversed"])
def test_each_stage_renews_as_often_as_its_delay_says(allocation):
    problem = TextGPT(layers=4, width=4, heads=1, context=4, batch_size=1, tied=False, validation_windows=1)
    task = problem.build(Rows.whole_group(1, (0,)))
    groups = parameter_groups(task, delays_of(task, 4, "per-stage"))
    optimizer = rotation(allocation=allocation).method.build(groups, SimulatedCommunicator(1))
    intervals = stage_renewal_intervals([3, 2, 1, 0], 10, reversed_order=allocation == "reversed")
    expected = dict(zip([3, 2, 1, 0], intervals, strict=True))
    found = [(group["delay"], group["frequency"]) for group in optimizer.param_groups]
    assert {delay for delay, _ in found} == set(expected)
    assert all(frequency == expected[delay] for delay, frequency in found)


def test_frequencies_change_the_training():
    fields = {"kind": "staleness", "name": "f", "stages": [4], "steps": 12, "problem":
              {"kind": "text-gpt", "layers": 4, "width": 8, "heads": 2, "context": 8, "batch_size": 2, "tied": False,
               "validation_windows": 1}}  # fmt: skip
    lates = [rotation(frequency=4, allocation=one) for one in ("uniform", "stage-aware", "reversed")]
    spec = validate(StalenessSpec, fields | {"methods": lates})
    assert isinstance(spec, StalenessSpec)
    losses = {tuple(train_late(spec, late, 4).loss[:, 0].tolist()) for late in lates}
    assert len(losses) == 3


# The device.


def test_a_device_that_is_not_there_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spec = load_spec("basis-rotation-fig5", (), StalenessSpec, scale="gpu")
    with pytest.raises(SpecError, match=r"^device: got 'cuda'; expected cpu, as torch finds no GPU here$"):
        run_study(spec, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("weights", ["stashed", "current"])
def test_the_device_reaches_the_task(monkeypatch, weights):
    asked, build = [], TextGPT.build

    def recorded(self: TextGPT, rows: Rows, **options: Any) -> Any:
        asked.append(options["device"])
        return build(self, rows, **options | {"device": "cpu"})

    monkeypatch.setattr(TextGPT, "build", recorded)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: asked.append(device) or self)
    fields = {"kind": "staleness", "name": "d", "stages": [2], "steps": 1, "device": "cuda", "problem":
              {"kind": "text-gpt", "layers": 2, "width": 4, "heads": 1, "context": 4, "batch_size": 1, "tied": False,
               "validation_windows": 1}}  # fmt: skip
    late = rotation()
    spec = validate(StalenessSpec, fields | {"methods": [{"method": late.method, "backward_weights": weights}]})
    assert isinstance(spec, StalenessSpec)
    train_late(spec, spec.methods[0], 2)
    assert set(asked) - {torch.float32} == {"cuda"} and len(asked) >= (1 if weights == "stashed" else 2)
