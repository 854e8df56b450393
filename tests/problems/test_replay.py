"""What a row sees depends on its seed, its worker and the step: not on the process, its neighbours or its past."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from syncline.problems import PROBLEMS, Rows
from tests.problems.table import NETWORKS, ROWS

WORLD_SIZE = 4
by_name = pytest.mark.parametrize("name", ROWS)


def losses_and_gradients(problem, rows, steps):
    task = problem.build(rows, dtype=torch.float64)
    seen = []
    for step in steps:
        losses = task.step_gradients(step)
        seen += [losses, *(param.grad for param in task.params.values())]
    return seen


def test_the_table_has_every_problem():
    assert set(ROWS) == set(PROBLEMS)


@by_name
def test_a_process_sees_what_its_row_of_the_simulator_sees(name):
    steps = (0, 300, 1)
    simulated = losses_and_gradients(ROWS[name], Rows.whole_group(WORLD_SIZE, seeds=(5,)), steps)
    alone = losses_and_gradients(ROWS[name], Rows(seeds=(5,), workers=(2,), world_size=WORLD_SIZE), steps)
    assert_close([x[2:3] for x in simulated], alone, rtol=1e-12, atol=1e-14)


@by_name
def test_a_replica_equals_a_run_of_its_own(name):
    together = losses_and_gradients(ROWS[name], Rows.whole_group(WORLD_SIZE, seeds=(5, 6, 7)), (0, 1))
    alone = losses_and_gradients(ROWS[name], Rows.whole_group(WORLD_SIZE, seeds=(6,)), (0, 1))
    assert_close([x[WORLD_SIZE : 2 * WORLD_SIZE] for x in together], alone, rtol=1e-12, atol=1e-14)


@by_name
def test_a_resumed_run_sees_the_same_bits(name):
    rows = Rows.whole_group(WORLD_SIZE)
    continued = losses_and_gradients(ROWS[name], rows, (0, 1, 700, 701))
    resumed = losses_and_gradients(ROWS[name], rows, (700, 701))
    assert all(map(torch.equal, continued[len(resumed) :], resumed))


@by_name
def test_workers_steps_and_seeds_differ(name):
    seen = losses_and_gradients(ROWS[name], Rows.whole_group(2, seeds=(0, 1)), (0, 1))
    half = len(seen) // 2
    gradients = torch.cat([seen[1].flatten(1), seen[half + 1].flatten(1)])
    assert torch.cdist(gradients, gradients).fill_diagonal_(1.0).min() > 1e-6


@pytest.mark.parametrize("name", NETWORKS)
def test_batches_of_a_process_are_the_simulators_bit_for_bit(name):
    simulated = ROWS[name].build(Rows.whole_group(WORLD_SIZE, seeds=(5,)))
    alone = ROWS[name].build(Rows(seeds=(5,), workers=(2,), world_size=WORLD_SIZE))
    for step in (0, 1, 999):
        (inputs, targets), (all_inputs, all_targets) = alone._data.batch(step), simulated._data.batch(step)
        assert torch.equal(inputs, all_inputs[2:3])
        if name == "teacher-student":
            # What the teacher answers is a product of matrices, whose kernel goes by the CPU and the number of rows.
            assert_close(targets, all_targets[2:3], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(targets, all_targets[2:3])


@by_name
def test_precision_changes_no_draw(name):
    rows = Rows.whole_group(WORLD_SIZE)
    single, double = (ROWS[name].build(rows, dtype=dtype) for dtype in (torch.float32, torch.float64))
    assert_close(single.step_gradients(0), double.step_gradients(0).float(), rtol=1e-5, atol=1e-5)
    for key, param in single.params.items():
        assert_close(param.grad, double.params[key].grad.float(), rtol=1e-4, atol=1e-4)


@by_name
def test_gradients_of_one_step_are_not_overwritten_by_the_next(name):
    task = ROWS[name].build(Rows.whole_group(2))
    task.step_gradients(0)
    first = next(iter(task.params.values())).grad
    kept = first.clone()
    task.step_gradients(1)
    assert torch.equal(first, kept)
