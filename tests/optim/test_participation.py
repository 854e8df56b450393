"""Training with workers that leave and come back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from syncline.comm import Absence, Membership, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import DDP, DESLOC, MTDAO, DiLoCo, Local
from syncline.optim import PartialParticipation, adam, sgdm
from syncline.problems import Quadratic, Rows
from syncline.training import rows_of, train

SEEDS = (3, 5)
LAMB = {"kind": "torch", "target": "tests.methods.own:Lamb", "average_states": ["m", "v"]}
METHODS = {
    "ddp": lambda params, **options: DDP(params, 0.02, adam(), clip_norm=1.0, **options),
    "local": lambda params, **options: Local(params, 0.02, adam(), 4, **options),
    "local-lamb": lambda params, **options: Local(params, 0.02, LAMB, 4, **options),
    "diloco": lambda params, **options: DiLoCo(params, 0.02, adam(), 4, **options),
    "mt-dao": lambda params, **options: MTDAO(params, 0.02, period=4, momentum_periods=(6,), **options),
    "des-loc": lambda params, **options: DESLOC(params, 0.02, period=4, **options),
}
each_method = pytest.mark.parametrize("name", METHODS)


def trained(name, workers, absences=None, steps=23, eval_every=5, see=None):
    membership = None if absences is None else Membership(workers, absences)
    comm = SimulatedCommunicator(workers, replicas=len(SEEDS), membership=membership)
    task = Quadratic(spectrum=(1.0, 3.0, 10.0), noise_std=0.5).build(see or rows_of(comm, SEEDS))
    method = METHODS[name](task.params.values(), comm=comm, worker_axis=True)
    return train(task, method, SEEDS, steps, eval_every=eval_every), task, method


def rows(x, workers):
    return x.detach().unflatten(0, (len(SEEDS), workers))


def everything(task, method):
    """Parameters and states by name."""
    x = task.params["x"]
    return {"x": x} | method.state[x]


@each_method
def test_a_worker_that_is_never_there_is_one_worker_less(name):
    others = [0, 2, 3]
    history, task, method = trained(name, 4, [Absence(1)])
    # A group of three that sees what the others of a group of four see.
    without, task_without, method_without = trained(name, 3, see=Rows(SEEDS, tuple(others), 4))
    np.testing.assert_array_equal(history.loss, without.loss)
    for metric, values in without.evaluation.items():
        np.testing.assert_array_equal(history.evaluation[metric], values)
    expected = everything(task_without, method_without)
    assert len(expected) > 1
    for key, x in everything(task, method).items():
        assert torch.equal(rows(x, 4)[:, others], rows(expected[key], 3)), key
    sent, alone = method.comm.ledger.records, method_without.comm.ledger.records
    assert {tuple(call.group) for call in sent} == {tuple(others)}
    assert [call._replace(group=range(3)) for call in sent] == alone


@each_method
def test_without_absences_nothing_changes(name):
    history, task, method = trained(name, 3, [])
    plain, plain_task, plain_method = trained(name, 3)
    np.testing.assert_array_equal(history.loss, plain.loss)
    beyond, beyond_task, beyond_method = trained(name, 3, [Absence(1, 1000)])
    np.testing.assert_array_equal(beyond.loss, plain.loss)
    for key, x in everything(plain_task, plain_method).items():
        assert torch.equal(x, everything(task, method)[key])
        assert torch.equal(x, everything(beyond_task, beyond_method)[key])


@each_method
def test_an_absent_worker_stands_still(name):
    _, before, method_before = trained(name, 3, [Absence(1, 10, 20)], steps=10)
    _, while_away, method_away = trained(name, 3, [Absence(1, 10, 20)], steps=17)
    kept = everything(before, method_before)
    for key, x in everything(while_away, method_away).items():
        assert torch.equal(rows(x, 3)[:, 1], rows(kept[key], 3)[:, 1]), key
    assert not torch.equal(rows(while_away.params["x"], 3)[:, 0], rows(before.params["x"], 3)[:, 0])


@each_method
def test_a_worker_that_joins_adopts_the_first_of_those_present(name):
    comm = SimulatedCommunicator(3, replicas=2, membership=Membership(3, [Absence(0, 0, 5)]))
    task = Quadratic(noise_std=0.5).build(rows_of(comm, SEEDS))
    method = METHODS[name](task.params.values(), comm=comm, worker_axis=True)
    participation = PartialParticipation(method, comm.membership)
    for t in range(5):
        participation.join(t)
        task.step_gradients(t)
        with participation.frozen(t):
            method.step()
    x = everything(task, method)
    started = rows(x["x"], 3).clone()
    assert torch.equal(started[:, 0], torch.ones_like(started[:, 0]))  # where a quadratic begins
    assert not torch.equal(started[:, 1], started[:, 0])
    others = {key: rows(value, 3)[:, 1:].clone() for key, value in x.items()}
    participation.join(5)
    for key, value in x.items():
        assert torch.equal(rows(value, 3)[:, 0], rows(value, 3)[:, 1]), key
        assert torch.equal(rows(value, 3)[:, 1:], others[key]), key


def test_gradient_descent_whose_group_shrinks_takes_the_way_of_its_closed_form():
    """Two workers with optima at +s and -s: the mean gradient of both is that of 0, of one alone its own.

    x_t of both: (1 - lr)^t; then, of worker 0 alone, s + (x - s) (1 - lr)^k.
    """
    comm = SimulatedCommunicator(2, membership=Membership(2, [Absence(1, 10, 30)]))
    task = Quadratic(spectrum=(1.0,), shift_std=1.0).build(rows_of(comm, (0,)), dtype=torch.float64)
    s = float(Quadratic(spectrum=(1.0,), shift_std=1.0).shifts(0, 2)[0, 0])
    mean = float(Quadratic(spectrum=(1.0,), shift_std=1.0).shifts(0, 2).mean())
    train(task, DDP(task.params.values(), 0.1, sgdm(0.0), comm=comm, worker_axis=True), (0,), 20)
    both = mean + (1 - mean) * 0.9**10
    expected = [s + (both - s) * 0.9**10, both]
    assert task.params["x"].detach().flatten().tolist() == pytest.approx(expected, rel=1e-12)


def test_a_worker_axis_is_needed():
    method = DDP([torch.nn.Parameter(torch.zeros(2))], 0.1, sgdm())
    with pytest.raises(SpecError, match="worker_axis"):
        PartialParticipation(method, Membership(2, [Absence(1)]))


def test_a_worker_that_joins_adopts_numbers_and_attributes_of_an_optimizer():
    """Which of Steady decide its steps: with the same gradients two workers then go the same way, bit for bit."""
    membership = Membership(3, [Absence(1, 2, 5)])
    comm = SimulatedCommunicator(3, replicas=2, membership=membership)
    x = torch.nn.Parameter(torch.ones(6, 4))
    rule = {"kind": "torch", "target": "tests.methods.own:Steady"}
    method = Local([x], 0.02, rule, 100, comm=comm, worker_axis=True)
    participation = PartialParticipation(method, membership)
    draw = torch.Generator().manual_seed(0)
    for t in range(8):
        participation.join(t)
        x.grad = torch.randn(6, 4, generator=draw)
        if t >= 5:
            x.grad[1::3] = x.grad[0::3]  # worker 1 of both replicas sees what worker 0 does
        with participation.frozen(t):
            method.step()
    made = [one.optimizer for one in method._steppers._optimizers]
    for replica in (0, 3):
        assert torch.equal(x[replica + 1], x[replica]) and not torch.equal(x[replica + 2], x[replica])
        assert made[replica + 1].total == made[replica].total != made[replica + 2].total
    assert not torch.equal(x[0], x[3])
