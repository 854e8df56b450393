"""Several workers: as one with a larger batch, in one pass or one by one, here or in processes of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from syncline.comm import ProcessGroupCommunicator
from syncline.costmodel import Call
from syncline.errors import SpecError
from syncline.methods import DDP, Local
from syncline.optim import sgdm
from syncline.problems import Rows, TorchProblem
from syncline.problems.network import MANY_ROWS
from syncline.training import mean_parameters, parameter_groups, rows_of, train
from tests.problems.torch_problem.models import (
    Convolutional,
    Recurrent,
    TiedFrozen,
    classified,
    images,
    sentences,
    token_loss,
    trained,
)
from tests.processes import run_processes

STILL = Convolutional(dropout=0.0)
"""Without random draws, and with batch norm."""


def local(params, comm):
    return Local(params, 0.1, sgdm(0.9), period=2, comm=comm, worker_axis=True)


def test_two_workers_of_data_parallelism_are_one_with_a_batch_of_twice_the_size():
    history, task, _ = trained(TorchProblem(TiedFrozen, sentences(), token_loss, batch_size=4), workers=2)
    one, whole, _ = trained(TorchProblem(TiedFrozen, sentences(), token_loss, batch_size=8))
    assert_close(torch.from_numpy(history.loss), torch.from_numpy(one.loss), rtol=1e-6, atol=1e-6)
    for key, parameter in whole.params.items():
        assert_close(task.params[key][1:], parameter.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", ["convolutions", "tied", "recurrent"])
def test_one_pass_over_all_rows_is_the_loop(name, accumulate):
    make, data, loss = {
        "convolutions": (STILL, images(), classified),
        "tied": (TiedFrozen, sentences(), token_loss),
        "recurrent": (Recurrent, sentences(), token_loss),
    }[name]
    rows = Rows.whole_group(3, seeds=(0, 1))
    tasks = [
        TorchProblem(make, data, loss, batch_size=4, accumulate=accumulate, how=how).build(rows, dtype=torch.float64)
        for how in ("loop", "vmap")
    ]
    for step in (0, 1):
        losses = [task.step_gradients(step) for task in tasks]
        assert_close(*losses, rtol=1e-9, atol=0)
    assert len(set(losses[0].tolist())) == len(rows)
    loop, vmap = tasks
    for key, parameter in loop.params.items():
        assert_close(parameter.grad, vmap.params[key].grad, rtol=1e-8, atol=1e-12)
    for key, buffer in loop.buffers.items():
        assert_close(buffer, vmap.buffers[key], rtol=1e-9, atol=1e-12)


FLAT = images()[0].flatten(1), images()[1]
LINEAR = TorchProblem(nn.Linear(36, 4), FLAT, classified, batch_size=4)


@pytest.mark.parametrize(
    ("problem", "rows", "how", "why"),
    [
        (LINEAR, MANY_ROWS, "vmap", "many small rows"),
        (LINEAR, 2, "loop", "fewer than"),
        (replace(LINEAR, how="vmap"), 2, "vmap", "asked for"),
        (TorchProblem(Convolutional, images(), classified, batch_size=4), MANY_ROWS, "loop", "the module draws random"),
    ],
)
def test_the_way_is_chosen_and_told(problem, rows, how, why):
    facts = problem.build(Rows.whole_group(rows)).describe()
    assert facts["how"] == how and str(facts["why"]).startswith(why)


class Branching(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum().item() > 0 else -super().forward(x)


def test_a_module_that_cannot_be_batched_is_looped_over_or_refused():
    many = Rows.whole_group(MANY_ROWS)
    facts = TorchProblem(Branching(36, 4), FLAT, classified, batch_size=4).build(many).describe()
    assert facts["how"] == "loop" and facts["why"].startswith("torch cannot batch the module; it says: RuntimeError")
    with pytest.raises(SpecError, match=r"problem\.how: got 'vmap'; expected loop or auto, as torch cannot batch"):
        TorchProblem(Branching(36, 4), FLAT, classified, batch_size=4, how="vmap").build(many)


def same_on_all(task):
    return all(torch.equal(buffer[:1].expand_as(buffer), buffer) for buffer in task.buffers.values())


def test_with_mean_gradients_all_have_the_buffers_of_the_first_worker():
    problem = TorchProblem(STILL, images(), classified, batch_size=4)
    _, task, comm = trained(problem, workers=3, steps=2)
    assert same_on_all(task)
    floats, counts = 4 * 2 * (4 + 4), 8 * 2
    sent = [call for call in comm.ledger.records if call.collective == "broadcast"]
    assert sent == [
        Call(step, "broadcast", nbytes, range(3), label="buffers") for step in (0, 1) for nbytes in (floats, counts)
    ]
    # The first worker's alone decide: it has seen its own shard and nothing else.
    alone = TorchProblem(STILL, images(), classified, batch_size=4, buffers="own")
    _, own, comm = trained(alone, workers=3, steps=2)
    assert not same_on_all(own) and {call.collective for call in comm.ledger.records} == {"all_reduce"}
    for key, buffer in own.buffers.items():
        assert torch.equal(buffer[0], task.buffers[key][0])


def test_where_parameters_are_averaged_buffers_are_too():
    problem = TorchProblem(STILL, images(), classified, batch_size=4)
    _, apart, comm = trained(problem, local, workers=3, steps=1)
    assert not same_on_all(apart) and not comm.ledger.records
    apart.step_gradients(1)
    _, task, comm = trained(problem, local, workers=3, steps=2)
    assert [call.step for call in comm.ledger.records if call.label == "buffers"] == [1]
    for key, buffer in apart.buffers.items():
        expected = buffer.mean(0, keepdim=True).expand_as(buffer) if buffer.is_floating_point() else buffer
        assert_close(task.buffers[key], expected)


def test_evaluation_is_of_the_mean_parameters_with_the_mean_buffers():
    problem = TorchProblem(STILL, images(), classified, batch_size=4, validation=images(20), buffers="own")
    history, task, comm = trained(problem, local, workers=3, steps=3)
    module = Convolutional(dropout=0.0).eval()
    means = {name: p.detach().mean(0) for name, p in task.params.items()}
    floats = {name: b.mean(0) for name, b in task.buffers.items() if b.is_floating_point()}
    module.load_state_dict(means | floats, strict=False)
    inputs, targets = images(20)
    assert_close(history.evaluation["loss"][-1, 0], classified(module(inputs), targets).item(), rtol=1e-5, atol=0)
    assert task._swappable.module.training
    # Evaluating again changes nothing, not even what batch norm has counted.
    before = {name: buffer.clone() for name, buffer in task.buffers.items()}
    task.evaluate(mean_parameters(task, comm, task.rows))
    assert all(torch.equal(buffer, before[name]) for name, buffer in task.buffers.items())


PROBLEM = TorchProblem(Convolutional, images(), classified, batch_size=4)


def in_process(make):
    comm = ProcessGroupCommunicator(reproducible=True)
    task = PROBLEM.build(rows_of(comm, (3,)))
    history = train(task, make(parameter_groups(task), comm), (3,), 4)
    return {
        "loss": history.loss, "evaluation": history.evaluation["loss"], "ledger": comm.ledger.records,
        "params": {name: p.detach() for name, p in task.params.items()}, "buffers": task.buffers,
    }  # fmt: skip


def data_parallel(params, comm):
    return DDP(params, 0.1, sgdm(0.9), comm=comm, worker_axis=True)


def both():
    return {"ddp": in_process(data_parallel), "local": in_process(local)}


def test_processes_see_what_the_simulator_sees():
    ranks = run_processes(both, 2)
    for name, make in (("ddp", data_parallel), ("local", local)):
        history, task, comm = trained(PROBLEM, make, workers=2, steps=4)
        for rank, found in enumerate(ranks):
            one = found[name]
            assert one["ledger"] == comm.ledger.records
            for kind, tensors in (("params", task.params), ("buffers", task.buffers)):
                for key, tensor in tensors.items():
                    assert_close(one[kind][key][0], tensor.detach()[rank], rtol=1e-6, atol=1e-7)
            assert_close(one["evaluation"], history.evaluation["loss"], rtol=1e-6, atol=0)
        losses = sum(found[name]["loss"] for found in ranks) / 2
        assert_close(losses, history.loss, rtol=1e-6, atol=0)
