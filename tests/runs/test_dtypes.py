"""The device and the type of numbers of a training: what they change, what they do not, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from syncline.errors import SpecError
from syncline.measure.launching.process import Launch
from syncline.problems import Digits, Quadratic, Rows
from syncline.problems.network import batched_pass, compiling_recorder, graph_recorder, with_autocast
from syncline.problems.torch_problem import TorchProblem
from syncline.runs.compare import compare
from syncline.runs.training.train_and_time import train_method
from syncline.runs.training.trained import build_task
from tests.methods.table import METHODS
from tests.problems.test_captured import Played
from tests.runs.examples import bowl, bowl_run, digits

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


ITEMS = torch.ones(8, 3), torch.zeros(8, dtype=torch.int64)
SMALL = {
    "digits": {"kind": "digits", "hidden": 8, "batch_size": 4},
    "teacher-student": {"kind": "teacher-student", "inputs": 4, "hidden": 8},
    "text-gpt": {"kind": "text-gpt", "width": 16, "layers": 1, "heads": 2, "context": 16, "batch_size": 2},
    "module": TorchProblem(lambda: torch.nn.Linear(3, 2), ITEMS, cross_entropy, batch_size=2),
}


@pytest.mark.parametrize("execution", ["eager", "loop"])
@pytest.mark.parametrize("problem", SMALL)
def test_autocast_multiplies_in_bfloat16_and_keeps_float32(problem, execution):
    with ProductTypes() as seen:
        spec = bowl_run(
            problem=SMALL[problem], seeds=[0], steps=3, eval_every=0, autocast="bfloat16", execution=execution
        )
        task = build_task(spec.problem, Rows.whole_group(3), torch.device("cpu"), **spec.arithmetic)
        seen.types.clear()
        losses = task.step_gradients(0)
    answers = {torch.float32} if problem == "teacher-student" else set()  # the teacher's, which are data
    assert seen.types == {torch.bfloat16} | answers
    assert {x.dtype for p in task.params.values() for x in (p, p.grad, losses)} == {torch.float32}
    exact = build_task(spec.problem, Rows.whole_group(3), torch.device("cpu"))
    assert_close(losses, exact.step_gradients(0), rtol=0.02, atol=0.01)
    for name, param in exact.params.items():
        off = (param.grad - task.params[name].grad).norm() / param.grad.norm()
        assert off < 0.1


class ProductTypes(TorchDispatchMode):
    """Records the types of the factors of matrix products."""

    def __init__(self):
        super().__init__()
        self.types = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm):
            self.types.update(x.dtype for x in args[-2:])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("execution", ["compiled", "graph"])
def test_recorded_passes_are_of_the_cast_loss(execution):
    task = Digits(hidden=8, batch_size=4).build(Rows.whole_group(2), execution="vmap", autocast=torch.bfloat16)
    batch, values = task.batch(0), {name: p.detach() for name, p in task.params.items()}
    loss = with_autocast(task._loss, torch.device("cpu"), torch.bfloat16)
    record = compiling_recorder("aot_eager") if execution == "compiled" else graph_recorder(Played())
    recorded = record(batched_pass(loss), values, *batch)
    task.step_gradients(0)
    for name, gradient in recorded(values, *batch)[0].items():
        assert_close(gradient, task.params[name].grad, rtol=1e-2, atol=1e-4)


def test_autocast_is_refused_where_it_makes_no_sense():
    with pytest.raises(SpecError, match=r"^autocast: got 'bfloat16'; expected none with dtype float64, as it "):
        digits("autocast=bfloat16", "dtype=float64")
    spec = bowl_run(autocast="bfloat16")
    with pytest.raises(SpecError, match=r"^autocast: got 'bfloat16'; expected none, as the method build of quadratic"):
        train_method(spec, spec.method)


def test_every_problem_trains_in_a_loop():
    for problem in (*SMALL.values(), "quadratic", "rosenbrock", "spiral"):
        loop, eager = (
            bowl_run(problem=problem, steps=3, seeds=[0], eval_every=0, execution=execution)
            for execution in ("loop", "eager")
        )
        losses = [train_method(spec, spec.method).history.loss for spec in (loop, eager)]
        np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_module_of_a_user_is_not_recorded():
    spec = bowl_run(problem=SMALL["module"], execution="compiled")
    with pytest.raises(SpecError, match=r"^execution: got 'compiled'; expected eager or loop, as a user's module"):
        train_method(spec, spec.method)


def test_processes_take_the_device_of_the_spec_where_nobody_says_another():
    spec = bowl_run(device="cuda")
    assert (Launch().for_spec(spec).device, Launch("cpu").for_spec(spec).device) == ("cuda", "cpu")
    assert Launch().for_spec(bowl_run()).device == "auto"
