"""The device and the type of numbers of a training: what they change, what they do not, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from syncline.errors import SpecError
from syncline.measure.launching.process import Launch
from syncline.problems import Quadratic, Rows
from syncline.runs.compare import compare
from syncline.runs.training.train_and_time import train_method
from syncline.runs.training.trained import build_task
from tests.methods.table import METHODS
from tests.runs.examples import bowl, bowl_run

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@pytest.mark.parametrize("dtype", BYTES)
def test_a_type_of_numbers_is_that_of_the_whole_training(dtype):
    spec = bowl_run(dtype=dtype, problem={"kind": "quadratic", "spectrum": [1, 10]})
    own, single = (train_method(one, one.method) for one in (spec, bowl_run(problem=spec.problem)))
    assert {call.payload_bytes for call in own.ledger} == {
        call.payload_bytes * BYTES[dtype] / 4 for call in single.ledger
    }
    losses = own.history.evaluation["loss"]
    assert losses.dtype == (np.float64 if dtype == "float64" else np.float32)
    assert losses[-1] == pytest.approx(single.history.evaluation["loss"][-1], rel={2: 0.2}.get(BYTES[dtype], 1e-4))
    if dtype != "float32":
        assert not np.array_equal(losses, single.history.evaluation["loss"])
    task = build_task(spec.problem, Rows.whole_group(2), torch.device("cpu"), dtype)
    assert {p.dtype for p in task.params.values()} == {getattr(torch, dtype)}


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if name in ("mt-dao", "dion", "lion-cub")])
def test_methods_train_in_sixteen_bits(name):
    spec = bowl(problem={"kind": "digits", "hidden": 8, "batch_size": 4}, seeds=[0], dtype="bfloat16", steps=3)
    assert np.isfinite(train_method(spec, METHODS[name].spec).history.loss).all()


def test_what_trained_is_told_in_the_folder(tmp_path):
    compare(bowl(dtype="float64"), tmp_path / "run", jobs=1, figures=False)
    noted = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (noted["device"], noted["dtype"]) == ("cpu", "float64")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_missing_is_refused_before_anything_and_auto_goes_on(tmp_path):
    with pytest.raises(SpecError, match=r"^device: got 'cuda'; expected cpu, as torch finds no GPU here$"):
        compare(bowl(device="cuda"), tmp_path / "run", jobs=1)
    assert not list(tmp_path.iterdir())
    auto, cpu = (train_method(spec, spec.method).history.loss for spec in (bowl_run(device="auto"), bowl_run()))
    assert np.array_equal(auto, cpu)


def test_everything_is_built_on_the_device():
    task = build_task(bowl().problem, Rows.whole_group(2), torch.device("meta"))
    assert {p.device.type for p in task.params.values()} == {"meta"}


@dataclass(frozen=True)
class Plain:
    """A problem of one's own that knows neither."""

    name = "plain"

    def build(self, rows):
        return Quadratic().build(rows)


def test_a_problem_that_takes_no_type_is_refused_only_where_one_is_asked_for():
    spec = bowl_run(problem=Plain())
    assert train_method(spec, spec.method).history.steps == 40
    with pytest.raises(SpecError, match=r"^dtype: got 'bfloat16'; expected float32, as the method build of plain"):
        train_method(bowl_run(problem=Plain(), dtype="bfloat16"), spec.method)


def test_processes_take_the_device_of_the_spec_where_nobody_says_another():
    spec = bowl_run(device="cuda")
    assert (Launch().for_spec(spec).device, Launch("cpu").for_spec(spec).device) == ("cuda", "cpu")
    assert Launch().for_spec(bowl_run()).device == "auto"
