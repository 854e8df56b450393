"""A torch module as shapes, against model shapes in closed form and work counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from syncline.costmodel import MODELS, ModelShape
from syncline.errors import SpecError
from syncline.problems.gpt import GPT
from syncline.problems.network import shape_only
from syncline.problems.torch_flops import module_shape

SHAPE = MODELS["text-gpt"]


def gpt() -> GPT:
    return GPT(SHAPE.vocabulary, SHAPE.sequence, SHAPE.width, SHAPE.layers, SHAPE.heads, tied=True)


def test_a_transformer_s_module_has_the_tensors_of_its_shape() -> None:
    made = module_shape(shape_only(gpt), "mine")
    assert sorted(one.shape for one in made.tensors) == sorted(one.shape for one in SHAPE.tensors)
    # The output head is the table, by hand: the last matrix of a block is taken for it.
    left_out = {one.name for one in made.tensors if one.elements > 4 * SHAPE.width and not one.is_matrix}
    assert left_out == {"token.weight", "position.weight", "blocks.2.down.weight"}
    assert (made.parameters, made.parameter_bytes()) == (SHAPE.parameters, SHAPE.parameter_bytes())
    assert {one.name for one in made.tensors} == {name for name, _ in gpt().named_parameters()}


def test_without_an_input_the_work_is_that_of_the_weights_alone() -> None:
    made = module_shape(shape_only(gpt), "mine")
    # What the weights do not tell: attention over the sequence, and a head that multiplies with the table by hand.
    attention, head = 12 * SHAPE.layers * SHAPE.width * SHAPE.sequence, 6 * SHAPE.vocabulary * SHAPE.width
    assert made.flops_per_token == SHAPE.flops_per_token - attention - head
    assert made.sequence == 1


def test_a_head_that_shares_the_weight_of_a_table_is_work() -> None:
    table, head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
    head.weight = table.weight
    net = nn.Sequential(table, nn.Linear(4, 4), head)
    assert module_shape(net, "mine").flops_per_token == 6 * (4 * 4 + 9 * 4)
    assert [one.name for one in module_shape(net, "mine").tensors if one.is_matrix] == ["1.weight"]


def test_frozen_weights_have_no_gradient_to_compute() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2, bias=False))
    assert module_shape(net, "mine").flops_per_token == 6 * 4 * 4 + 4 * 4 * 4 + 6 * 4 * 2
    # Operations count the gradient of the inputs for all layers but the first, whose inputs are no activations.
    assert module_shape((net, torch.zeros(2, 4)), "mine").flops_per_token == 4 * 4 * 4 + 4 * 4 * 4 + 6 * 4 * 2


def test_with_an_input_the_work_is_counted_by_operation() -> None:
    made = module_shape(shape_only(lambda: (gpt(), torch.zeros(2, SHAPE.sequence, dtype=torch.long))), "mine")
    assert made.flops_per_token == SHAPE.flops_per_token
    assert made.sequence == SHAPE.sequence


def test_of_images_a_token_is_a_sample() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4 * 4, 10))
    made = module_shape((net, (torch.zeros(5, 3, 6, 6),)), "mine")
    convolution, linear = 8 * 16 * 27, 8 * 16 * 10
    # Twice for each: forward, and the gradient of the weights; that of the inputs for the second layer alone.
    assert (made.flops_per_token, made.sequence) == (2 * (2 * convolution + 3 * linear), 1)
    assert [one.name for one in made.tensors if one.is_matrix] == ["0.weight"]


def test_models_that_return_an_object_are_counted_by_its_loss_or_logits() -> None:
    class Output:
        def __init__(self, logits: torch.Tensor) -> None:
            self.logits, self.loss = logits, None

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 3, bias=False)

        def forward(self, x: torch.Tensor) -> Output:
            return Output(self.net(x))

    assert module_shape((Model(), torch.zeros(2, 4)), "mine").flops_per_token == 2 * 2 * 12


def test_what_is_frozen_is_left_out() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    made = module_shape(net, "mine")
    assert [one.shape for one in made.tensors] == [(2, 4), (2,)]


class Broken(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not\ntoday")


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (nn.LSTM(4, 4), r"^m: got 'mine'; expected an example input with the module, .* of a LSTM do not determine"),
        (nn.ReLU(), "expected a module that has parameters to learn"),
        (3, r"expected a callable that returns a torch module, or \(module, inputs\), not int"),
        ((nn.Linear(2, 2), 3), "expected inputs that begin with a tensor"),
        ((nn.Linear(2, 2), torch.zeros(1, 3)), "computes on torch's meta device; it says: RuntimeError"),
        ((Broken(2, 2), torch.zeros(1, 2)), "computes on torch's meta device; it says: ValueError: not today$"),
        ((nn.Embedding(2, 2).requires_grad_(False), torch.zeros(1)), "expected a module that has parameters"),
    ],
)
def test_what_cannot_be_counted_is_told_in_one_line(made: object, line: str) -> None:
    with pytest.raises(SpecError, match=line) as error:
        module_shape(made, "mine", "m")
    assert "\n" not in str(error.value)


def test_a_module_that_somebody_holds_stays_as_it_is() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    module_shape((net, torch.ones(3, 4)), "mine")
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_shapes_of_one_size_are_one_whoever_made_them() -> None:
    assert isinstance(SHAPE, ModelShape)
    assert module_shape(shape_only(gpt), "a") == module_shape(gpt(), "a")
