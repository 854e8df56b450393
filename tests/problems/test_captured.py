"""A recorded pass has the gradients of the pass that it stands for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from syncline.errors import SpecError
from syncline.problems import Digits, Rows, TeacherStudent, TextGPT
from syncline.problems.network import RecordedPass, batched_pass, compiling_recorder, graph_recorder
from syncline.runs.compare import compare
from tests.runs.examples import bowl

T = TypeVar("T")
ROWS = Rows.whole_group(2)
PROBLEMS = [
    Digits(hidden=8, batch_size=4),
    TeacherStudent(inputs=4, hidden=8),
    TextGPT(width=16, layers=1, heads=2, context=8, batch_size=2, validation_windows=1),
]


class Played:
    """A graph's memory without a device: replays compute again, into what the capture returned."""

    def __init__(self) -> None:
        self.captures = 0

    def capture(self, work: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        self.captures += 1
        made = work()
        for x in tensors_in(made):
            x.fill_(torch.nan)  # a capture computes nothing

        def replay() -> None:
            for x, value in zip(tensors_in(made), tensors_in(work()), strict=True):
                x.copy_(value)

        return made, replay


def tensors_in(made: object) -> list[Tensor]:
    gradients, losses = made  # type: ignore[misc]
    return [*gradients.values(), losses]


def quadratic(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
    return ((inputs @ weights["w"] - targets) ** 2).sum()


def linear(seed: int = 0) -> tuple[dict[str, torch.nn.Parameter], Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    w, x, y = (torch.randn(size, generator=source) for size in ((3, 2), (3, 5, 2), (3, 5)))
    return {"w": torch.nn.Parameter(w)}, x, y


@pytest.mark.parametrize("record", ["compiled", "graph"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_steps_are_those_of_the_eager_pass(problem: Digits | TeacherStudent | TextGPT, record: str) -> None:
    eager, recorded = (problem.build(ROWS, execution="vmap") for _ in range(2))
    graphs = Played()
    how = graph_recorder(graphs) if record == "graph" else compiling_recorder("aot_eager")
    recorded._gradients = RecordedPass(batched_pass(recorded._loss, fused=True), how, in_place=record == "graph")
    for step in range(3):
        assert_close(recorded.step_gradients(step), eager.step_gradients(step), rtol=1e-6, atol=0)
        for name, param in eager.params.items():
            other = recorded.params[name]
            assert param.grad is not None and other.grad is not None
            assert_close(other.grad, param.grad, rtol=1e-6, atol=1e-7)
            with torch.no_grad():
                param.sub_(param.grad)
                other.sub_(other.grad)
    assert graphs.captures == (record == "graph")


@pytest.mark.slow
def test_what_the_compiler_made_has_the_same_gradients() -> None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("torch's compiler needs a C++ compiler on a CPU")
    eager, compiled = (PROBLEMS[0].build(ROWS, execution=how) for how in ("vmap", "compiled"))  # type: ignore[arg-type]
    assert_close(compiled.step_gradients(0), eager.step_gradients(0), rtol=1e-6, atol=0)
    for name, param in eager.params.items():
        assert_close(compiled.params[name].grad, param.grad, rtol=1e-5, atol=1e-6)


def test_a_pass_is_recorded_again_for_arguments_of_another_kind_or_place() -> None:
    graphs, (params, x, y) = Played(), linear()
    run = RecordedPass(batched_pass(quadratic), graph_recorder(graphs), in_place=True)
    found = []
    for inputs, targets in ((x, y), (x, y), (x[:, :3], y[:, :3]), (x[:, :3], y[:, :3])):
        run(params, inputs, targets)
        found.append(graphs.captures)
    params["w"].data = params["w"].data.clone()
    run(params, x, y)
    assert [*found, graphs.captures] == [1, 1, 2, 2, 3]


def test_gradients_stay_as_they_are_when_the_next_step_is_taken() -> None:
    params, x, y = linear()
    run = RecordedPass(batched_pass(quadratic), graph_recorder(Played()), in_place=True)
    losses = run(params, x, y)
    first, kept = params["w"].grad, (params["w"].grad.clone(), losses.clone())  # type: ignore[union-attr]
    run(params, x + 1, y)
    assert torch.equal(first, kept[0]) and torch.equal(losses, kept[1])  # type: ignore[arg-type]


def test_what_looks_at_values_is_refused_in_a_line() -> None:
    params, x, y = linear()

    def branches(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return quadratic(weights, inputs, targets) if float(inputs.sum()) > 0 else inputs.sum()

    for how, name in ((compiling_recorder("aot_eager"), "compiled"), (graph_recorder(Played()), "graph")):
        with pytest.raises(
            SpecError, match=rf"^execution: got '{name}'; expected eager, because torch raises: .+$"
        ) as told:
            RecordedPass(batched_pass(branches), how)(params, x, y)
        assert len(str(told.value).splitlines()) == 1


def test_a_graph_needs_a_cuda_device_and_a_way_a_problem_that_has_some(tmp_path) -> None:
    digits = {"kind": "digits", "hidden": 8, "batch_size": 4}
    for problem, execution, expected in (
        (digits, "graph", "eager or compiled, as only a CUDA device keeps graphs"),
        ("rosenbrock", "compiled", "eager or loop, as a landscape's gradient is a formula"),
    ):
        with pytest.raises(SpecError, match=rf"^execution: got '{execution}'; expected {expected}"):
            compare(bowl(problem=problem, execution=execution), tmp_path / "run", jobs=1, figures=False)
    with pytest.raises(SpecError, match=r"^execution: got 'graph'; "):
        Digits().build(ROWS, execution="graph")
