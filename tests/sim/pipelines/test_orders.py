"""Orders as numbers are the lists of tasks that they stand for."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from syncline.sim.pipelines.pipeline import check_orders
from syncline.sim.pipelines.schedules import Orders, PipelineTask, TaskNumbering, schedule
from tests.sim.pipelines.schedules import IN_ORDER, made_of


@pytest.mark.parametrize("microbatches, chunks", [(1, 1), (5, 1), (3, 2)])
def test_a_number_is_a_task(microbatches, chunks):
    tasks = TaskNumbering(microbatches, chunks)
    for number in range(3 * microbatches * chunks):
        assert tasks.number(tasks.task(number)) == number
    assert [tasks.task(number) for number in tasks.of_kind("backward", chunks - 1)] == [
        PipelineTask("backward", i, chunks - 1) for i in range(microbatches)
    ]


@pytest.mark.parametrize("name", IN_ORDER)
def test_orders_are_sequences_of_lists(name):
    made = made_of(name, 3, 6)
    orders = made.orders
    assert len(orders) == 3 and all(isinstance(order, list) for order in orders)
    assert orders == list(orders) == [orders[0], *orders[1:]]
    assert (orders == list(orders)[::-1]) == (orders[0] == orders[2])
    again = Orders.from_lists(list(orders), TaskNumbering(6, made.chunks))
    assert again == orders == copy.deepcopy(orders) == pickle.loads(pickle.dumps(orders))
    assert made == made_of(name, 3, 6) != made_of(name, 3, 9)


@pytest.mark.parametrize("name", IN_ORDER)
@pytest.mark.parametrize("stages, microbatches", [(1, 1), (3, 6), (4, 4)])
def test_whole_orders_pass_and_others_do_not(name, stages, microbatches):
    made = made_of(name, stages, microbatches)
    check_orders(made, stages)
    kinds, numbers = len(made.kinds), np.array(made.orders.numbers)
    assert made.orders.are_complete(kinds)
    for wrong in (numbers[:, ::-1], numbers[:, :-1], np.where(numbers == 0, numbers.max(), numbers)):
        assert not Orders(wrong, made.orders.numbering).are_complete(kinds)


def test_sixteen_thousand_microbatches():
    orders = schedule("1f1b", 64, 16_384).orders
    assert orders.numbers.nbytes < 10e6
    assert orders[63][:3] == [PipelineTask("forward", 0), PipelineTask("backward", 0), PipelineTask("forward", 1)]
