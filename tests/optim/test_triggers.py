"""RMMC against computation by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import PlacedDion, method_of
from syncline.methods.dion import placed_steps
from syncline.optim import RMMC, DionRule, Every
from syncline.optim.base import ParamRow
from syncline.optim.triggers import GradientChange
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of, train
from tests.optim.given import dion, gradients, run

RULE = DionRule()


def layer(momentum: list[list[float]], gradient: list[list[float]], trigger: RMMC) -> ParamRow:
    """Two workers with a matrix of one row."""
    m, g = (torch.tensor(v, dtype=torch.float64).unsqueeze(1) for v in (momentum, gradient))
    return ParamRow(torch.zeros_like(m), g, {"momentum": m, **trigger.init(m)}, {}, RULE, 0)


def test_paper_form_compares_with_the_step_before() -> None:
    """``||m_0||`` is 5 and 2, ``||m_1||`` is 10 and 1: changes 1 and 1/2."""
    trigger = RMMC(0.1)
    row = layer([[0.0, 0.0], [0.0, 0.0]], [[3.0, 4.0], [2.0, 0.0]], trigger)
    assert trigger.changes([row]).tolist() == [[math.inf], [math.inf]]
    row.state["momentum"].copy_(torch.tensor([[[1.0, 1.0]], [[0.5, 0.0]]]))
    moved = row._replace(g=torch.tensor([[[5.0, 7.0]], [[0.5, 0.0]]]).double())
    torch.testing.assert_close(trigger.changes([moved]), torch.tensor([[1.0], [0.5]]).double())


def test_code_form_compares_with_the_buffer_after_error_feedback() -> None:
    """``||M||`` is 5 and 0.05, the second too small to be looked at; ``||M + G||`` is 10 and 4."""
    trigger = RMMC(0.1, "code")
    row = layer([[3.0, 4.0], [0.0, 0.05]], [[3.0, 4.0], [0.0, 3.95]], trigger)
    assert trigger.changes([row]).tolist() == [[math.inf], [math.inf]]
    torch.testing.assert_close(trigger.changes([row]), torch.tensor([[1.0], [0.0]]).double())


def test_the_largest_change_of_any_layer_and_worker_decides() -> None:
    """Strictly above the threshold; all that travels is one number of 4 bytes."""
    for threshold, fires in ((0.49, True), (0.5, False), (0.51, False)):
        trigger, comm = RMMC(threshold), SimulatedCommunicator(2)
        first = [layer([[0.0], [0.0]], [[4.0], [8.0]], trigger), layer([[0.0], [0.0]], [[1.0], [2.0]], trigger)]
        assert trigger.fires(first, comm, 0)
        after = [  # changes 1/4 and 0; 0 and 1/2
            first[0]._replace(g=torch.tensor([[[5.0]], [[8.0]]]).double()),
            first[1]._replace(g=torch.tensor([[[1.0]], [[1.0]]]).double()),
        ]
        assert trigger.fires(after, comm, 1) is fires
        assert trigger.records[1].tolist() == [[0.25, 0.0], [0.0, 0.5]]
        assert [r.payload_bytes for r in comm.ledger.records] == [4, 4]


def test_a_zero_momentum_changes_without_dividing_by_zero() -> None:
    trigger = RMMC(0.1)
    row = layer([[0.0], [0.0]], [[0.0], [0.0]], trigger)
    trigger.changes([row])
    assert trigger.changes([row]).tolist() == [[0.0], [0.0]]
    assert bool((trigger.changes([row._replace(g=row.g + 1)]) > 1e20).all())


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_in_a_run_the_change_is_that_of_dions_momentum(variant: str) -> None:
    """The norm of ``M + G`` with each worker's own gradient, M after Dion's error feedback."""
    trigger, given = RMMC(0.0, variant), gradients(4, 2, (6, 4))
    build = partial(dion, lr=0.1, trigger=trigger)
    norms, buffers = [], []
    for t in range(4):
        before = run(build, given[:t]).state(0, "momentum") if t else torch.zeros(2, 6, 4).double()
        buffers.append(before.flatten(1).norm(dim=1))
        norms.append((before + given[t][0]).flatten(1).norm(dim=1))
    trigger.records.clear()
    run(build, given)
    for t in range(1, 4):
        reference = norms[t - 1] if variant == "paper" else buffers[t]
        torch.testing.assert_close(trigger.records[t][:, 0], (norms[t] - reference).abs() / reference)


def test_placements_are_as_many_as_asked_for_and_where_they_say() -> None:
    for averages, steps in ((1, 7), (5, 12), (7, 7), (30, 400)):
        placed = {one: placed_steps(averages, steps, one) for one in ("even", "random", "early")}
        assert all(len(set(one)) == averages and 0 <= min(one) <= max(one) < steps for one in placed.values())
        assert placed["early"] == tuple(range(averages)) and placed["even"][-1] == steps - 1
        gaps = {after - before for before, after in pairwise((-1, *placed["even"]))}
        assert gaps <= {steps // averages, -(-steps // averages)}
    draws = [placed_steps(10, 40, "random", seed) for seed in range(400)]
    assert len(set(draws)) > 390 and draws[0] == placed_steps(10, 40, "random", 0)
    counts = [sum(t in draw for draw in draws) for t in range(40)]  # 100 each, with a deviation of 8.7
    assert min(counts) > 100 - 4.5 * 8.7 and max(counts) < 100 + 4.5 * 8.7


def test_dion_averages_where_it_is_placed_and_begins_anew() -> None:
    """A loop over the steps that says by hand which of them average."""
    given = gradients(9, 3, (6, 4), (4,))

    class ByHand(Every):
        def fires(self, rows: object, comm: object, t: int) -> bool:
            return t in (1, 3, 5, 7)  # of every four steps two, evenly

    got = run(partial(PlacedDion, lr=0.1, num_averages=2, steps=4), given)
    expected = run(partial(dion, lr=0.1, trigger=ByHand()), given)
    for one, other in zip(got.path, expected.path, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
    assert [record.step for record in got.records] == [1, 3, 5, 7]
    with pytest.raises(SpecError, match=r"^num_averages: got 9; expected at most steps \(4\)$"):
        PlacedDion([torch.nn.Parameter(torch.zeros(2, 2))], 0.1, num_averages=9, steps=4)


@pytest.mark.parametrize("name", ["curvadion", "selsync", "selsync-dion", "placed-dion"])
def test_a_training_keeps_which_steps_averaged_and_what_decided(name: str) -> None:
    """Against the ledger: an average is a call that carries more than the trigger's flag."""
    comm = SimulatedCommunicator(3)
    task = Digits(hidden=6, batch_size=4).build(rows_of(comm, (1,)))
    knobs = {"num_averages": 4, "steps": 12} if name == "placed-dion" else {"threshold": 0.2}
    method = method_of({"kind": name, "lr": 0.02, **knobs}).build(parameter_groups(task), comm)
    history = train(task, method, (1,), 12)
    averaged = {record.step for record in comm.ledger.records if record.payload_bytes > 4}
    assert np.flatnonzero(history.trace["averaged"][:, 0]).tolist() == sorted(averaged) and 0 < len(averaged) < 12
    if name == "placed-dion":
        assert history.trace.keys() == {"averaged"}
    else:
        value, reaches = history.trace["trigger"][:, 0], np.greater if name == "curvadion" else np.greater_equal
        assert (reaches(value, 0.2) == history.trace["averaged"][:, 0]).all() and np.isinf(value[0])


def test_a_tensor_whose_gradient_begins_later_adds_nothing_to_what_was_before() -> None:
    """Squares of 4 and none, then of 4 and 4: the sum of the squares doubles from 4 to 8."""
    trigger = GradientChange(0.1, smoothing=1.0)
    g = torch.full((1, 4), 1.0)
    first, second = (ParamRow(g, g, trigger.init(g), {}, RULE, number) for number in (0, 1))
    assert trigger.change([first]).tolist() == [math.inf]
    assert trigger.change([first, second]).tolist() == [1.0]


@pytest.mark.parametrize("trigger", [RMMC(1.0), GradientChange(1.0)])
def test_without_a_gradient_to_look_at_a_trigger_fires(trigger: RMMC | GradientChange) -> None:
    assert trigger.fires([], SimulatedCommunicator(2), 0)
    assert not replace(trigger, threshold=math.inf).fires([], SimulatedCommunicator(2), 0)
