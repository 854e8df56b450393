from __future__ import annotations

import pytest
import torch

from syncline.errors import SpecError
from syncline.problems import PROBLEMS, Rows
from syncline.problems.base import Problem


def test_rows_are_laid_replica_by_replica():
    rows = Rows(seeds=(7, 8), workers=(1, 3), world_size=4)
    x = torch.arange(4)
    assert len(rows) == 4
    assert rows.by_replica(x).tolist() == [[0, 1], [2, 3]]


def test_the_whole_group_lives_in_a_simulator():
    assert Rows.whole_group(3, seeds=(5,)) == Rows((5,), (0, 1, 2), 3)


@pytest.mark.parametrize("workers", [(), (0, 0), (4,), (-1,)])
def test_impossible_workers_are_refused(workers):
    with pytest.raises(SpecError, match=r"rows\.workers: got .*; expected distinct workers from 0 to 3"):
        Rows((0,), workers, 4)


def test_a_group_without_a_seed_is_refused():
    with pytest.raises(SpecError, match="at least one seed"):
        Rows((), (0,), 1)


def test_parameters_are_equal_within_a_replica_and_only_there():
    rows = Rows(seeds=(3, 4), workers=(0, 1), world_size=2)
    params = rows.parameters(lambda seed: {"w": torch.full((2, 2), float(seed))}, torch.float64, "cpu")
    assert params["w"].shape == (4, 2, 2)
    assert params["w"].dtype == torch.float64
    assert params["w"][:, 0, 0].tolist() == [3, 3, 4, 4]


@pytest.mark.parametrize("name", PROBLEMS.names())
def test_every_problem_is_named_and_built_by_default(name):
    problem: Problem = PROBLEMS[name]()
    task = problem.build(Rows.whole_group(2, seeds=(0, 1)))
    losses = task.step_gradients(0)
    means = {key: param.detach().unflatten(0, (2, 2)).mean(1) for key, param in task.params.items()}
    assert problem.name == name
    assert losses.shape == (4,)
    assert not losses.requires_grad
    assert all(param.grad.shape == param.shape and param.grad.dtype == param.dtype for param in task.params.values())
    assert {value.shape for value in task.evaluate(means).values()} == {torch.Size([2])}
    assert {value.shape[0] for value in task.trace().values()} <= {2}
    assert task.describe()["parameters"] == sum(param[0].numel() for param in task.params.values())


@pytest.mark.parametrize("name", PROBLEMS.names())
def test_every_problem_is_built_from_shapes_alone(name):
    task = PROBLEMS[name]().build(Rows.whole_group(2), device="meta")
    assert task.step_gradients(0).is_meta
    assert all(param.is_meta and param.grad.is_meta for param in task.params.values())


@pytest.mark.parametrize("name", PROBLEMS.names())
def test_torch_global_generator_is_neither_read_nor_moved(name):
    def gradients(global_seed):
        torch.manual_seed(global_seed)
        task = PROBLEMS[name]().build(Rows.whole_group(1))
        task.step_gradients(3)
        assert torch.initial_seed() == global_seed
        untouched = torch.Generator().manual_seed(global_seed)
        assert torch.equal(torch.rand(4), torch.rand(4, generator=untouched))
        return [param.grad for param in task.params.values()]

    assert all(map(torch.equal, gradients(1), gradients(2)))
