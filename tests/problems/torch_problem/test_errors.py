"""What cannot be trained is told in one line, before anything is."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler, TensorDataset

from syncline.comm import Absence, Membership, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.methods import DDP
from syncline.optim import sgdm
from syncline.problems import Rows, TorchProblem
from syncline.training import parameter_groups, rows_of, train
from tests.problems.torch_problem.models import Convolutional, Recurrent, TiedFrozen, images, sentences, token_loss

DATA = torch.ones(12, 3), torch.ones(12, 1)
SET = TensorDataset(*DATA)
SAMPLED = BatchSampler(SequentialSampler(SET), 2, drop_last=True)
mse = nn.functional.mse_loss


def linear():
    return nn.Linear(3, 1)


def frozen():
    return nn.Linear(3, 1).requires_grad_(False)


def failing():
    raise ValueError("no weights\nhere")


def no_stream():
    yield from ()


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 1, sparse=True)

    def forward(self, x):
        return self.table(x.long())[..., 0]


class Thawed(TiedFrozen):
    def __init__(self):
        super().__init__()
        self.fixed.requires_grad_(True)


class Never:
    def __iter__(self):
        return iter(())


class Elementwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (self.scale * x).sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"batch_size": 7}, "problem.batch_size: got 7; expected at most 6, the items of a worker's shard"),
        ({"batch_size": 0}, "problem.batch_size: got 0; expected an integer of at least 1"),
        ({"batch_size": None}, "problem.batch_size: got None; expected a whole number"),
        ({"accumulate": 0}, "problem.accumulate: got 0; expected an integer of at least 1"),
        ({"train_set": DATA[0][:1]}, "workers: got 2; expected at most 1, one per item of the data"),
        ({"train_set": Never()}, "workers: got 2; expected at most 0, one per item of the data"),
        ({"train_set": (DATA[0], DATA[1][:5])}, "problem.train_set: got [12, 5]; expected tensors of one length"),
        (
            {"train_set": no_stream()},
            "problem.train_set: got 'no_stream'; expected data that can be read more than once",
        ),
        ({"train_set": 3}, "problem.train_set: got 'int'; expected a data set with a length"),
        (
            {"train_set": [(torch.ones(i), 1) for i in range(4)]},
            "problem.train_set: got 'list'; expected items that make",
        ),
        ({"train_set": DataLoader(SET, batch_sampler=SAMPLED)}, "a DataLoader with a batch_size and no batch_sampler"),
        ({"train_set": DataLoader(SET, batch_size=None)}, "a DataLoader with a batch_size and no batch_sampler"),
        ({"train_set": DataLoader(SET, sampler=DistributedSampler(SET, 2, 0))}, "a DataLoader without it"),
        ({"validation": DATA[0][:0]}, "problem.validation: got 'no items'; expected at least one item"),
        ({"make_model": frozen}, "problem.make_model: got 'Linear'; expected a module with parameters that can be tr"),
        ({"make_model": lambda: 3}, "problem.make_model: got '<lambda>'; expected a module; it returns int"),
        ({"make_model": failing}, "'failing'; expected a module; it says: ValueError: no weights here"),
        ({"make_model": Sparse}, "problem.make_model: got 'table.sparse'; expected dense gradients: sparse=False"),
        ({"make_model": lambda: nn.LazyLinear(1)}, "'LazyLinear'; expected a module whose shapes are known"),
        (
            {"make_model": nn.Linear(2, 1)},
            "problem.make_model: got 'Linear'; expected a module that takes a batch; it s",
        ),
        ({"make_model": 3}, "problem.make_model: got 3; expected a function"),
        (
            {"loss": lambda output, target: output - target},
            "problem.loss: got 'a tensor of shape (2, 1)'; expected a fun",
        ),
        ({"loss": lambda output, target: 3.0}, "problem.loss: got 'float'; expected a function of output and target"),
        ({"loss": lambda output, target: target.mean()}, "expected a loss that depends on the trainable parameters"),
        ({"loss": lambda output: output.mean()}, "expected a function of output and target; it says: TypeError"),
        ({"loss": None, "train_set": DATA[0]}, "expected a function loss(output, target), as the module returns no"),
        ({"how": "vmp"}, "problem.how: got 'vmp'; expected one of 'auto', 'loop', 'vmap' (did you mean 'vmap'?)"),
        ({"buffers": "mean"}, "problem.buffers: got 'mean'; expected one of 'auto', 'own'"),
        ({"matrices": ["wait"]}, "problem.matrices: got 'wait'; expected one of 'weight' (did you mean"),
    ],
)
def test_one_line(given, line):
    fields = {"make_model": linear, "train_set": DATA, "loss": mse, "batch_size": 2} | given
    with pytest.raises(SpecError) as caught:
        TorchProblem(**fields).build(Rows.whole_group(2))
    assert line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("evaluate", "line"),
    [
        (lambda output, target: output, "problem.evaluate: got 'Tensor'; expected a number for metric"),
        (lambda output, target: {"loss": 1.0}, "problem.evaluate: got 'loss'; expected metrics by name"),
    ],
)
def test_metrics_are_numbers_with_names_of_their_own(evaluate, line):
    task = TorchProblem(linear, DATA, mse, evaluate, batch_size=2).build(Rows.whole_group(1))
    with pytest.raises(SpecError) as caught:
        task.evaluate({name: p.detach() for name, p in task.params.items()})
    assert str(caught.value).startswith(line)


def test_workers_that_leave_cannot_have_buffers():
    comm = SimulatedCommunicator(2, membership=Membership(2, [Absence(1, 1, 2)]))
    task = TorchProblem(Convolutional, images(), nn.functional.cross_entropy, batch_size=4).build(rows_of(comm, (0,)))
    method = DDP(parameter_groups(task), 0.1, sgdm(), comm=comm, worker_axis=True)
    with pytest.raises(SpecError, match=r"faults\.absences: .* expected none, as the module has buffers"):
        train(task, method, (0,), 3)


def test_matrices_are_hidden_weights():
    def matrices(make, data, **options):
        return TorchProblem(make, data, token_loss, batch_size=4, **options).build(Rows.whole_group(1)).matrices

    assert matrices(Convolutional, images()) == ("0.weight", "4.weight")
    assert matrices(TiedFrozen, sentences()) == ()
    assert matrices(Thawed, sentences()) == ("fixed.weight",)
    assert matrices(Recurrent, sentences()) == ("lstm.weight_ih_l0", "lstm.weight_hh_l0")
    assert matrices(Convolutional, images(), matrices=["4.weight"]) == ("4.weight",)


def test_operations_are_counted():
    task = TorchProblem(linear, DATA, mse, batch_size=2, accumulate=3).build(Rows.whole_group(1))
    assert task.flops_per_step == 3 * (2 * 2 * 3 * 2)  # of the input there is no gradient
    assert TorchProblem(Elementwise, DATA, mse, batch_size=2).build(Rows.whole_group(1)).flops_per_step is None
    recurrent = TorchProblem(Recurrent, sentences(), token_loss, batch_size=4).build(Rows.whole_group(1))
    assert recurrent.flops_per_step > 3 * 2 * 4 * 5 * 4 * 6 * (5 + 6) * 0.8
