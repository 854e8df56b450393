"""Which items a worker sees in which step, and how they were drawn."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from syncline.problems import Rows, TorchProblem
from syncline.randomness import preserved

ITEMS = 23


class Numbers(Dataset):
    """Items that say which they are, one by one."""

    def __len__(self):
        return ITEMS

    def __getitem__(self, number):
        return torch.tensor([float(number)])


class Stream(IterableDataset):
    """The same as a stream, in another order in each epoch."""

    def __iter__(self):
        order = list(range(ITEMS))
        random.shuffle(order)
        yield from (torch.tensor([float(number)]) for number in order)


class Noisy(Numbers):
    """With a transform that draws from every global generator."""

    def __getitem__(self, number):
        return super().__getitem__(number) + torch.rand(1) + 10 * np.random.rand() + 100 * random.random()  # noqa: NPY002


class NoisyStream(Stream):
    def __iter__(self):
        yield from (item + torch.rand(1) for item in super().__iter__())


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.scale * x


def mean(output, target):
    return output.mean()


def seen(data, rows, steps, **options):
    """The items of each row, step by step."""
    options = {"batch_size": 3} | options
    task = TorchProblem(First, data, mean, **options).build(rows)
    with preserved(torch.device("cpu")):
        return [
            [[flat(part) for part in task._data.row_batches(row, step)] for row in range(len(rows))] for step in steps
        ]


def flat(nested):
    nested = nested.tolist() if isinstance(nested, torch.Tensor) else nested
    return [x for inner in nested for x in flat(inner)] if isinstance(nested, list) else [nested]


@pytest.mark.parametrize("data", [Numbers(), TensorDataset(torch.arange(ITEMS).float().unsqueeze(1)), Stream()])
def test_an_epoch_shows_each_item_once_and_the_next_in_another_order(data):
    per_epoch = ITEMS // (2 * 3)
    epochs = [flat(seen(data, Rows.whole_group(2), range(e * per_epoch, (e + 1) * per_epoch))) for e in range(2)]
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == per_epoch * 2 * 3
    assert epochs[0] != epochs[1]


def test_without_shuffling_worker_w_has_every_mth_item():
    in_order = seen(Numbers(), Rows.whole_group(3), range(2), shuffle=False)
    assert in_order[0] == [[[0, 3, 6]], [[1, 4, 7]], [[2, 5, 8]]] and in_order[1][0] == [[9, 12, 15]]


class InOrder(Stream):
    def __iter__(self):
        yield from (torch.tensor([float(number)]) for number in range(ITEMS))


def test_a_stream_is_dealt_as_a_set_in_order_is():
    rows = Rows.whole_group(3)
    assert seen(InOrder(), rows, range(5)) == seen(Numbers(), rows, range(5), shuffle=False)


def test_what_is_left_of_an_epoch_is_a_smaller_batch_where_it_is_kept():
    rows = Rows.whole_group(2)
    for data in (Numbers(), InOrder()):  # 11 items each: 3, 3, 3, 2
        steps = seen(data, rows, range(5), shuffle=False, drop_last=False)
        assert [len(step[0][0]) for step in steps] == [3, 3, 3, 2, 3]
        assert steps[3] == [[[18, 20]], [[19, 21]]] and steps[4] == steps[0]


def test_micro_batches_are_the_next_batches_of_the_shard():
    rows = Rows.whole_group(2)
    for data in (Numbers(), InOrder()):
        together = seen(data, rows, range(3), accumulate=2, shuffle=False)
        alone = seen(data, rows, range(6), shuffle=False)
        for step, both in enumerate(together):
            for row in range(2):
                assert both[row] == alone[2 * step][row] + alone[2 * step + 1][row]


@pytest.mark.parametrize("data", [Noisy(), NoisyStream()], ids=["set", "stream"])
def test_what_a_worker_sees_depends_on_seed_worker_and_step_alone(data):
    everything = seen(data, Rows.whole_group(3, seeds=(5, 6)), range(5))
    alone = seen(data, Rows((6,), (1,), 3), (4, 0, 3))
    assert [everything[step][4] for step in (4, 0, 3)] == [step[0] for step in alone]
    assert len(set(flat(everything))) == len(flat(everything))


LOADERS = {
    "shuffled": (DataLoader(Numbers(), 4, shuffle=True), {"batch_size": 4}, Numbers(), 2),
    "in order": (DataLoader(Numbers(), 3), {"shuffle": False, "drop_last": False}, Numbers(), 2),
    "of a stream": (DataLoader(Stream(), 4, drop_last=True), {"batch_size": 4}, Stream(), 1),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_loaders_own_settings_hold_and_are_told(name):
    loader, arguments, data, notes = LOADERS[name]
    arguments = {"drop_last": loader.drop_last} | arguments
    rows = Rows.whole_group(2)
    assert seen(loader, rows, range(5)) == seen(data, rows, range(5), **arguments)
    problem = TorchProblem(First, loader, mean, batch_size=3)
    assert problem.batch_size == loader.batch_size and len(problem.notes()) == notes
    assert all(line.startswith("problem.train_set is a DataLoader: its ") for line in problem.notes())
    agreeing = TorchProblem(First, loader, mean, **({"batch_size": 3} | arguments))
    assert agreeing.notes() == []


def test_a_loaders_sampler_and_collate_function_are_used():
    odd = SubsetRandomSampler(range(1, ITEMS, 2))
    loader = DataLoader(Numbers(), 2, sampler=odd, drop_last=True, collate_fn=lambda items: -torch.stack(items))
    epoch = flat(seen(loader, Rows.whole_group(2), range(2)))
    assert len(epoch) == 8 and set(epoch) <= {-float(i) for i in range(1, ITEMS, 2)} and len(set(epoch)) == 8
    problem = TorchProblem(First, loader, mean)
    assert "its SubsetRandomSampler gives the order" in problem.notes()[-1]
    weights = WeightedRandomSampler([0.0] * 20 + [1.0] * 3, 12, generator=torch.Generator().manual_seed(1))
    chosen = [seen(DataLoader(Numbers(), 2, sampler=weights), Rows.whole_group(2), range(3)) for _ in range(2)]
    assert chosen[0] == chosen[1] and set(flat(chosen)) == {20.0, 21.0, 22.0}


def test_parts_of_sets_are_sets():
    assert set(flat(seen(Subset(Numbers(), [2, 4, 6, 8, 9, 10]), Rows.whole_group(1), range(2)))) == {2, 4, 6, 8, 9, 10}


def evaluated(task):
    return {
        name: value.item() for name, value in task.evaluate({k: p.detach() for k, p in task.params.items()}).items()
    }


def size(output, target):
    return float(len(output))


def test_evaluations_are_means_over_items():
    numbers = [torch.tensor([float(i)]) for i in range(7)]
    for validation in (numbers, DataLoader(numbers, 3), torch.arange(7.0).unsqueeze(1), InOrderOf(7)):
        task = TorchProblem(First, Numbers(), mean, size, batch_size=3, validation=validation).build(
            Rows.whole_group(1)
        )
        # Batches of 3, 3 and 1: a mean over batches would be another one.
        assert evaluated(task) == pytest.approx({"loss": 3.0, "size": (3 * 3 + 3 * 3 + 1) / 7})


class InOrderOf(IterableDataset):
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        yield from (torch.tensor([float(number)]) for number in range(self.items))


def test_without_validation_data_a_part_of_the_training_data_is_the_same_for_all_seeds():
    many = TensorDataset(torch.arange(3000.0).unsqueeze(1))
    losses = {
        evaluated(TorchProblem(First, data, mean).build(Rows.whole_group(2, seeds=(seed,))))["loss"]
        for data in (many, DataLoader(many, 32, sampler=SequentialSampler(many)))
        for seed in (0, 1)
    }
    assert len(losses) == 1 and losses != {2999 / 2}
    assert evaluated(TorchProblem(First, InOrderOf(3000), mean).build(Rows.whole_group(2)))["loss"] == 1023 / 2
