from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from syncline.comm import ProcessGroupCommunicator, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import DDP, Local
from syncline.optim import sgdm, warmup_stable_decay, wsd_factor
from syncline.problems import PROBLEMS, Quadratic
from syncline.training import CHECK_EVERY, StepLog, rows_of, train
from tests.processes import run_processes

SPECTRUM = (1.0, 3.0)


def descent(seeds=(0,), workers=2, lr=0.1, **fields):
    """Plain gradient descent on a quadratic that starts at ones: x_t = (1 - lr lambda)^t."""
    comm = SimulatedCommunicator(workers, replicas=len(seeds))
    task = PROBLEMS["quadratic"](spectrum=SPECTRUM, **fields).build(rows_of(comm, seeds), dtype=torch.float64)
    return task, DDP(task.params.values(), lr, sgdm(0.0), comm=comm, worker_axis=True)


def positions(lrs):
    """The way of that descent, ``(T + 1, 2)``, with a learning rate per step."""
    factors = 1 - np.outer(lrs, SPECTRUM)
    return np.concatenate([np.ones((1, 2)), np.cumprod(factors, axis=0)])


def loss_at(x):
    return 0.5 * (np.array(SPECTRUM) * x**2).sum(-1)


class Scripted:
    """A task whose losses are given: ``(T, S)`` while training, ``(E, S)`` when evaluated."""

    flops_per_step = None

    def __init__(self, rows, losses, evaluations):
        self.params = rows.parameters(lambda seed: {"x": torch.zeros(1)}, torch.float32, "cpu")
        self.rows, self.losses, self.evaluations = rows, losses, list(evaluations)

    def step_gradients(self, step):
        loss = self.losses[step]
        if isinstance(loss, BaseException):
            raise loss
        self.params["x"].grad = torch.zeros_like(self.params["x"])
        return torch.tensor(loss).repeat_interleave(len(self.rows.workers))

    def evaluate(self, means):
        value = self.evaluations.pop(0)
        if isinstance(value, BaseException):
            raise value
        return {"loss": torch.tensor(value)}

    def trace(self):
        return {}

    def describe(self):
        return {}


def scripted(losses, evaluations, seeds, **options):
    comm = SimulatedCommunicator(2, replicas=len(seeds))
    task = Scripted(rows_of(comm, seeds), losses, evaluations)
    return train(task, DDP(task.params.values(), 0.1, sgdm(), comm=comm, worker_axis=True), seeds, **options)


def test_gradient_descent_takes_the_way_of_its_closed_form():
    history = train(*descent(), (0,), 10, eval_every=4)
    way = positions([0.1] * 10)
    np.testing.assert_allclose(history.loss[:, 0], loss_at(way[:-1]), rtol=1e-12)
    np.testing.assert_allclose(history.trace["position"][:, 0], way[1:], rtol=1e-12)
    assert history.eval_step.tolist() == [0, 4, 8, 10]
    np.testing.assert_allclose(history.evaluation["loss"][:, 0], loss_at(way[[0, 4, 8, 10]]), rtol=1e-12)
    assert (history.steps, history.diverged_at, history.interrupted) == (10, (None,), False)


def test_the_schedule_sets_the_rate_of_each_step():
    task, method = descent()
    schedule = warmup_stable_decay(method, 12, warmup_steps=3, cooldown_steps=4)
    history = train(task, method, (0,), 12, schedule=schedule)
    way = positions([0.1 * wsd_factor(t, 12, 3, 4) for t in range(12)])
    np.testing.assert_allclose(history.trace["position"][:, 0], way[1:], rtol=1e-12)


def test_evaluations_are_no_traffic():
    task, method = descent()
    train(task, method, (0,), 6, eval_every=1)
    assert [call.step for call in method.comm.ledger.records] == list(range(6))


def test_seeds_side_by_side_are_the_seeds_one_by_one():
    noisy = {"noise_std": 0.5, "shift_std": 0.3}
    both = train(*descent(seeds=(3, 5), **noisy), (3, 5), 20, eval_every=5)
    for column, seed in enumerate((3, 5)):
        alone = train(*descent(seeds=(seed,), **noisy), (seed,), 20, eval_every=5)
        np.testing.assert_array_equal(both.loss[:, column], alone.loss[:, 0])
        np.testing.assert_array_equal(both.evaluation["loss"][:, column], alone.evaluation["loss"][:, 0])
    assert not np.array_equal(both.loss[:, 0], both.loss[:, 1])


def test_what_is_evaluated_is_the_mean_of_the_workers():
    comm = SimulatedCommunicator(4)
    task = PROBLEMS["quadratic"](spectrum=SPECTRUM, shift_std=1.0).build(rows_of(comm, (0,)), dtype=torch.float64)
    method = Local(task.params.values(), 0.1, sgdm(0.0), 100, comm=comm, worker_axis=True)
    history = train(task, method, (0,), 10)
    x = task.params["x"].detach()
    assert not torch.equal(x[0], x[1])
    torch.testing.assert_close(history.evaluation["distance"][-1, 0], float(x.mean(0).norm()))


def test_a_seed_that_diverges_is_told_with_its_step_and_the_others_go_on():
    losses = [[1.0, math.nan if t >= 7 else 1.0] for t in range(2 * CHECK_EVERY)]
    history = scripted(losses, [[2.0, 2.0], [1.0, math.nan]], (0, 1), steps=2 * CHECK_EVERY)
    assert history.diverged_at == (None, 7)
    assert history.steps == 2 * CHECK_EVERY


def test_a_training_ends_soon_after_every_seed_has_diverged():
    losses = [[1.0 if t < 7 else math.inf, 1.0 if t < 60 else math.nan] for t in range(1000)]
    history = scripted(losses, [[2.0, 2.0], [math.nan, math.nan]], (0, 1), steps=1000)
    assert history.diverged_at == (7, 60)
    assert history.steps == 2 * CHECK_EVERY
    assert history.eval_step.tolist() == [0, 2 * CHECK_EVERY]


def test_a_divergence_in_the_very_last_step_is_told():
    history = scripted([[1.0, 1.0]] * 3, [[2.0, 2.0], [1.0, math.inf]], (0, 1), steps=3)
    assert history.diverged_at == (None, 3)


def stop_at(step):
    def on_step(done):
        if done == step:
            raise KeyboardInterrupt

    return on_step


def test_a_stopped_training_is_the_beginning_of_the_whole_one_and_evaluated_where_it_ended():
    whole = train(*descent(noise_std=1.0), (0,), 20, eval_every=5)
    part = train(*descent(noise_std=1.0), (0,), 20, eval_every=5, on_step=stop_at(12))
    assert part.interrupted and part.steps == 12
    np.testing.assert_array_equal(part.loss, whole.loss[:12])
    np.testing.assert_array_equal(part.trace["distance"], whole.trace["distance"][:12])
    assert part.eval_step.tolist() == [0, 5, 10, 12]
    np.testing.assert_array_equal(part.evaluation["loss"][:3], whole.evaluation["loss"][:3])
    np.testing.assert_array_equal(part.evaluation["distance"][-1], whole.trace["distance"][11])


def test_a_stop_before_the_first_step_leaves_an_empty_history():
    history = train(*descent(), (0,), 20, on_step=stop_at(0))
    assert history.interrupted and history.steps == 0
    assert history.loss.shape == (0, 1) and history.eval_step.size == 0
    assert history.final_records() == [{"seed": 0, "steps": 0, "diverged_at": None}]


def test_a_stop_after_the_last_step_is_no_interruption():
    history = train(*descent(), (0,), 20, on_step=stop_at(20))
    assert not history.interrupted and history.steps == 20


def test_an_interrupt_in_the_middle_of_something_leaves_whole_records():
    in_a_step = scripted([[1.0], [1.0], KeyboardInterrupt()], [[2.0]], (0,), steps=3)
    assert (in_a_step.interrupted, in_a_step.steps, in_a_step.eval_step.tolist()) == (True, 2, [0])
    in_an_evaluation = scripted([[1.0]] * 3, [[2.0], KeyboardInterrupt()], (0,), steps=3, eval_every=2)
    assert (in_an_evaluation.steps, in_an_evaluation.eval_step.tolist()) == (2, [0])
    assert in_an_evaluation.evaluation["loss"].shape == (1, 1)


def test_every_step_is_told_from_the_beginning():
    told: list[int] = []
    train(*descent(), (0,), 5, on_step=told.append)
    assert told == [0, 1, 2, 3, 4, 5]


def test_the_last_word_is_the_last_evaluation_and_means_over_the_last_tenth():
    history = train(*descent(), (0,), 40)
    (row,) = history.final_records()
    assert row["loss"] == history.evaluation["loss"][-1, 0]
    assert row["train_loss"] == pytest.approx(history.loss[-4:, 0].mean(), rel=1e-12)
    assert row["distance_mean"] == pytest.approx(history.trace["distance"][-4:, 0].mean(), rel=1e-12)
    assert "position_mean" not in row


def test_seeds_must_be_those_of_the_communicator():
    with pytest.raises(SpecError, match=r"seeds: got \(0,\); expected 2, one per replica"):
        rows_of(SimulatedCommunicator(3, replicas=2), (0,))


def lose_one_process() -> tuple[int, tuple[int | None, ...]]:
    """A training in which only worker 1 diverges, as a process sees it."""
    comm = ProcessGroupCommunicator()
    task = Quadratic(spectrum=(1.0,)).build(rows_of(comm, (0,)))
    if comm.local_workers[0] == 1:
        with torch.no_grad():
            task.params["x"].fill_(torch.inf)
    history = train(task, Local(task.params.values(), 0.1, sgdm(), 10**6, comm=comm, worker_axis=True), (0,), 120)
    return history.steps, history.diverged_at


def test_processes_stop_together() -> None:
    """One process that has nothing left waits for the other instead of leaving it alone in a collective."""
    (steps, lost), (steps_of_lost, lost_at) = run_processes(lose_one_process, 2)
    assert steps == steps_of_lost == 120
    assert lost_at == (0,)
    assert lost in ((None,), (120,))


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_a_log_in_blocks_is_the_list_of_its_tensors(shape, monkeypatch):
    monkeypatch.setattr("syncline.training.STEPS_PER_BLOCK", 4)
    log, plain = StepLog(), list[torch.Tensor]()
    assert log.part(0, 5) is None
    for step in range(13):
        plain.append(torch.full(shape, float(step)))
        log.append(plain[-1])
        assert len(log) == len(plain)
        for first in range(0, step + 2):
            for last in range(first, step + 3):
                part = log.part(first, last)
                wanted = plain[first:last]
                assert (part is None and not wanted) or torch.equal(part, torch.stack(wanted))
