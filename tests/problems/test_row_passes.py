"""Passes over rows: their gradients, their memory, and their attention."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from syncline.comm import SimulatedCommunicator, rows_share_memory
from syncline.methods import method_of
from syncline.problems import Digits, Rows, TeacherStudent, TextGPT
from syncline.problems.network import PerWorkerGradients, batched_pass
from syncline.problems.row_passes import GradientRows, PassSize
from syncline.training import parameter_groups, train

GPT = TextGPT(width=16, layers=2, heads=2, context=32, batch_size=2, validation_windows=1)


def quadratic(weights, inputs, targets):
    return ((inputs @ weights["w"] - targets) ** 2).sum()


def linear_rows(rows):
    source = torch.Generator().manual_seed(0)
    draw = [torch.randn(size, generator=source, dtype=torch.float64) for size in ((rows, 2), (rows, 5, 2), (rows, 5))]
    return {"w": torch.nn.Parameter(draw[0])}, draw[1], draw[2]


class Memory:
    """A GPU with memory for a few rows."""

    def __init__(self, rows):
        self.rows, self.passes = rows, []

    def run(self, part):
        size = part.stop - part.start
        if size > self.rows:
            raise torch.cuda.OutOfMemoryError(f"{size} rows")
        self.passes.append(size)
        return size


@pytest.mark.parametrize(
    ("rows", "memory", "passes"), [(5, 9, [5]), (8, 2, [2] * 4), (7, 3, [3, 3, 1]), (3, 1, [1] * 3)]
)
def test_a_pass_without_memory_is_made_in_halves(rows, memory, passes):
    gpu, size = Memory(memory), PassSize()
    assert list(size.results(rows, gpu.run)) == passes
    gpu.passes.clear()
    assert list(size.results(rows, gpu.run)) == passes == gpu.passes  # the next step begins with what has fitted


def test_a_row_without_memory_is_an_error():
    with pytest.raises(torch.cuda.OutOfMemoryError, match="1 rows"):
        list(PassSize().results(4, Memory(0).run))


@pytest.mark.parametrize("problem", [Digits(hidden=8, batch_size=4), TeacherStudent(inputs=4, hidden=8), GPT])
def test_gradients_of_smaller_passes_are_those_of_one(problem):
    whole, parts = (problem.build(Rows.whole_group(5), dtype=torch.float64, execution="vmap") for _ in range(2))
    parts._gradients._pass_size = PassSize(2)
    assert_close(parts.step_gradients(0), whole.step_gradients(0), rtol=1e-12, atol=0)
    for name, param in whole.params.items():
        assert_close(parts.params[name].grad, param.grad, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("how", "rows"), [("loop", 5), ("vmap", 5), ("vmap", 2), ("loop", 1)])
def test_a_running_mean_is_the_mean_of_the_rows(how, rows):
    params, inputs, targets = linear_rows(5)
    PerWorkerGradients(quadratic, "vmap")(params, inputs, targets)
    mean = params["w"].grad.mean(0)
    gradients = PerWorkerGradients(quadratic, how)
    gradients.keeps_mean, gradients._pass_size = True, PassSize(rows)
    gradients(params, inputs, targets)
    assert rows_share_memory(params["w"].grad) and params["w"].grad.shape == (5, 2)
    assert_close(params["w"].grad, mean.expand(5, 2))


def test_gradients_that_two_parameters_share_are_summed_apart():
    params = {name: torch.nn.Parameter(torch.zeros(2, 3)) for name in "ab"}
    rows = GradientRows(params, keeps_mean=True)
    for value in (1.0, 3.0):
        gradient = torch.full((1, 3), value)
        rows.add([gradient, gradient])
    rows.store()
    assert all(torch.equal(p.grad, torch.full((2, 3), 2.0)) for p in params.values())


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements of a tensor that an operation returns."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.numel())
        return result


def test_fused_attention_is_that_of_the_loop_without_weights_of_pairs():
    problem = TextGPT(width=8, layers=1, heads=2, context=128, batch_size=1, validation_windows=1)
    loop, task = (problem.build(Rows.whole_group(3), execution=how) for how in ("loop", "vmap"))
    values, batch = {name: p.detach() for name, p in task.params.items()}, task.batch(0)
    loop.step_gradients(0)
    largest = {}
    for fused in (False, True):
        with LargestTensor() as memory:
            gradients, _ = batched_pass(task._loss, fused=fused)(values, *batch)
        largest[fused] = memory.elements
        for name, param in loop.params.items():
            assert_close(gradients[name], param.grad, rtol=1e-5, atol=1e-6)
    pairs, logits = 3 * 2 * 128**2, 3 * 128 * 256
    assert largest[False] >= pairs and largest[True] <= max(pairs // 1.5, logits)


def trained(method, execution):
    comm = SimulatedCommunicator(3)
    task = GPT.build(Rows.whole_group(3), execution=execution)
    optimizer = method_of(method).build(parameter_groups(task), comm)
    history = train(task, optimizer, (0,), 4)
    return task, history, comm.ledger.records


@pytest.mark.parametrize("method", ["ddp-adam", "ddp-muon"])
def test_a_training_from_the_mean_has_the_losses_and_the_traffic_of_one_from_all_gradients(method):
    (rows, losses, calls), (mean, mean_losses, mean_calls) = (trained(method, how) for how in ("auto", "loop"))
    assert all(rows_share_memory(p.grad) for p in mean.params.values())
    assert not any(rows_share_memory(p.grad) for p in rows.params.values())
    assert mean_calls == calls and len(calls) == 4
    assert_close(torch.tensor(mean_losses.loss), torch.tensor(losses.loss), rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", ["local-adam", "diloco", "demo", "dion", "lion-cub"])
def test_a_training_that_reads_all_gradients_keeps_them(method):
    (_, losses, _), (loop, loop_losses, _) = (trained(method, how) for how in ("auto", "loop"))
    assert not any(rows_share_memory(p.grad) for p in loop.params.values())
    assert_close(torch.tensor(loop_losses.loss), torch.tensor(losses.loss), rtol=1e-5, atol=0)
