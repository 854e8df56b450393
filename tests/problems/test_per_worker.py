from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from syncline.errors import SpecError
from syncline.problems import Digits, Rows, TeacherStudent, TextGPT
from syncline.problems.network import MANY_ROWS, FunctionalModule, PerWorkerGradients

ROWS = Rows.whole_group(3, seeds=(0, 1))


def quadratic(weights, inputs, targets):
    return ((inputs @ weights["w"] - targets) ** 2).sum()


def linear_rows(rows):
    source = torch.Generator().manual_seed(0)
    draw = [torch.randn(size, generator=source, dtype=torch.float64) for size in ((rows, 2), (rows, 5, 2), (rows, 5))]
    return {"w": torch.nn.Parameter(draw[0])}, draw[1], draw[2]


@pytest.mark.parametrize("how", ["auto", "loop", "vmap"])
@pytest.mark.parametrize("rows", [1, 3, MANY_ROWS])
def test_each_row_gets_the_gradient_of_its_own_loss(how, rows):
    params, inputs, targets = linear_rows(rows)
    losses = PerWorkerGradients(quadratic, how)(params, inputs, targets)
    residuals = torch.einsum("rbi,ri->rb", inputs, params["w"].detach()) - targets
    assert_close(losses, (residuals**2).sum(1))
    assert_close(params["w"].grad, 2 * torch.einsum("rbi,rb->ri", inputs, residuals))


def test_a_gradient_replaces_the_last_one():
    params, inputs, targets = linear_rows(2)
    for _ in range(2):
        PerWorkerGradients(quadratic, "loop")(params, inputs, targets)
    first = params["w"].grad
    PerWorkerGradients(quadratic, "vmap")(params, inputs, targets)
    assert_close(params["w"].grad, first)


@pytest.mark.parametrize(
    "problem",
    [
        Digits(hidden=8),
        TeacherStudent(inputs=4, hidden=8),
        TextGPT(width=16, layers=2, heads=2, context=16, batch_size=2),
    ],
    ids=lambda p: p.name,
)
def test_loop_and_vmap_agree(problem):
    loop, vmap = (problem.build(ROWS, dtype=torch.float64, execution=how) for how in ("loop", "vmap"))
    assert_close(loop.step_gradients(0), vmap.step_gradients(0), rtol=1e-12, atol=0)
    for key, param in loop.params.items():
        assert_close(param.grad, vmap.params[key].grad, rtol=1e-9, atol=1e-13)


def test_an_unknown_way_is_refused():
    params, inputs, targets = linear_rows(1)
    with pytest.raises(SpecError, match=r"problem\.how: got 'vmp'; expected one of .* \(did you mean 'vmap'\?\)"):
        PerWorkerGradients(quadratic, "vmp")(params, inputs, targets)


def test_a_module_with_other_weights_is_a_functional_call() -> None:
    """Also where weights are tied; its own are back afterwards."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    module[2].weight = module[0].weight
    before = dict(module.named_parameters())
    weights = {name: torch.randn(p.shape, generator=torch.Generator().manual_seed(0)) for name, p in before.items()}
    x = torch.ones(2, 4)
    assert torch.equal(FunctionalModule(module)(weights, x), torch.func.functional_call(module, weights, (x,)))
    assert all(p is before[name] for name, p in module.named_parameters())
