"""Parameter groups: what a group may say, what both rules of a shared one read, and gradients that cannot be taken."""

from __future__ import annotations

import copy
import re

import pytest
import torch

from syncline.errors import SpecError
from syncline.methods import DDP, MTDAO, Dion, LionCub, Local
from syncline.optim import adam, lion, muon, sgdm
from tests.methods.table import METHODS
from tests.methods.test_table import assert_sent
from tests.optim.test_shapes import CONV_NET, M, stepped


def parameter(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(shape))


@pytest.mark.parametrize(
    ("build", "betas", "expected"),
    [
        (lambda p: DDP(p, 0.1, adam()), (0.9, 0.999), "one decay rate in [0, 1), as betas=(0.9,), and beta2=0.999 for"),
        (
            lambda p: MTDAO(p, 0.1, betas=(0.9, 0.99), omegas=(0.3, 0.6)),
            (0.9,),
            "2 decay rates in [0, 1), as betas=(0",
        ),
        (lambda p: Local(p, 0.1, sgdm(0.9), period=2), 0.9, "one decay rate in [0, 1), as betas=(0.9,)"),
        (lambda p: DDP(p, 0.1, adam()), (1.5,), "one decay rate in [0, 1), as betas=(0.9,)"),
        (lambda p: DDP(p, 0.1, sgdm(0.0)), (0.9, 0.999), "none in a group of a rule without momentum"),
        (lambda p: Dion(p, 0.1), (0.9, 0.999), "one decay rate in [0, 1), as betas=(0.95,)"),
        (lambda p: LionCub(p, 0.1), (0.9,), "2 decay rates in [0, 1), as betas=(0.9, 0.99)"),
    ],
)
def test_rates_that_do_not_fit_the_rule_are_refused_when_the_group_is_added(build, betas, expected: str) -> None:
    with pytest.raises(SpecError, match=re.escape(f"betas: got {betas}; expected {expected}")):
        build([{"params": [parameter(4, 3)], "betas": betas}])


def test_lions_betas_are_torch_styled() -> None:
    p = parameter(4)
    method = DDP([{"params": [p], "betas": (0.5, 0.75)}], 0.1, lion())
    p.grad = torch.ones(4)
    method.step()
    assert method.state[p]["momentum_1"].tolist() == [[0.25] * 4]


@pytest.mark.parametrize("knob", [{"momentum": 0.9}, {"nesterov": True}, {"maximize": True}, {"amsgrad": True}])
def test_torchs_knobs_that_nobody_would_read_are_refused(knob: dict[str, object]) -> None:
    (name,) = knob
    with pytest.raises(SpecError, match=f"{name}: got .*; expected none in a group: decay rates are its betas"):
        DDP([{"params": [parameter(3)], **knob}], 0.1, adam())


@pytest.mark.parametrize(("named", "field"), [(True, "table"), (False, "parameter 1")])
def test_a_sparse_gradient_is_refused_by_the_parameters_name(named: bool, field: str) -> None:
    table = torch.nn.Embedding(5, 3, sparse=True)
    params = [("first", parameter(2)), ("table", table.weight)] if named else [parameter(2), table.weight]
    method = DDP(params, 0.1, adam())
    table(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(SpecError, match=rf"gradient of {field}: got .*torch.sparse_coo.*; expected a dense one"):
        method.step()


def test_a_gradient_of_integers_is_refused_by_the_parameters_name() -> None:
    count = torch.nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)
    method = DDP([("weight", parameter(2)), ("count", count)], 0.1, adam())
    method.step()  # as in torch, a parameter that has no gradient takes no part
    count.grad = torch.ones_like(count)
    with pytest.raises(SpecError, match=r"gradient of count: got 'torch.int64'; expected floating-point numbers"):
        method.step()


@pytest.mark.parametrize(("named", "field"), [(True, "table"), (False, "1")])
def test_a_complex_parameter_is_refused_when_its_group_is_added(named: bool, field: str) -> None:
    method = DDP([("first", parameter(2)) if named else parameter(2)], 0.1, adam())
    table = torch.nn.Parameter(torch.ones(2, dtype=torch.complex128))
    expected = rf"parameter {field}: got 'torch.complex128'; expected real numbers: train torch.view_as_real of it"
    with pytest.raises(SpecError, match=expected):
        method.add_param_group({"params": [("table", table)] if named else [table]})


@pytest.mark.parametrize("name", METHODS)
def test_empty_parameters_take_no_part(name: str) -> None:
    """They send nothing and keep nothing, and the others step as without them."""
    tensors = [CONV_NET[2], CONV_NET[2]._replace(name="empty", shape=(0, 3)), CONV_NET[4]]
    tensors.append(tensors[2]._replace(name="empty.bias", shape=(0,)))
    method, params = stepped(name, tensors, 12)
    assert all(p.isfinite().all() for p in params)
    assert not method.state[params[1]]
    assert_sent(method.comm.ledger, METHODS[name].spec, tensors, M, 12)


def shared() -> tuple[DDP, torch.nn.Parameter, torch.nn.Parameter]:
    matrix, vector = parameter(4, 3), parameter(5)
    return DDP([vector, matrix], 0.02, muon(), other_lr=0.003), matrix, vector


def moved(method: DDP, matrix: torch.nn.Parameter, vector: torch.nn.Parameter) -> tuple[float, float]:
    before = [matrix.detach().clone(), vector.detach().clone()]
    matrix.grad, vector.grad = torch.eye(4, 3), torch.ones(5)
    method.step()
    return float((matrix.detach() - before[0]).norm()), float((vector.detach() - before[1]).norm())


def test_a_shared_group_is_one_of_torchs() -> None:
    """Matrices first; a factor on its learning rate is one on both rates."""
    one, *parts = shared()
    assert [[p.shape for p in group["params"]] for group in one.param_groups] == [[(4, 3), (5,)]]
    half, *others = shared()
    half.param_groups[0]["lr"] /= 2
    for got, whole in zip(moved(half, *others), moved(one, *parts), strict=True):
        assert got == pytest.approx(whole / 2)


def test_a_shared_groups_knobs_survive_a_round_trip() -> None:
    one, *parts = shared()
    moved(one, *parts)
    one.param_groups[0]["lr"] = 0.01
    two, *others = shared()
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    assert moved(two, *others) == pytest.approx(moved(one, *parts))


def test_other_knobs_that_are_set_anew_hold_for_both_rules() -> None:
    one, matrix, vector = shared()
    one.param_groups[0]["weight_decay"] = 1.0
    with torch.no_grad():
        matrix.fill_(1.0)
        vector.fill_(1.0)
    matrix.grad, vector.grad = torch.zeros(4, 3), torch.zeros(5)
    one.step()
    torch.testing.assert_close(matrix.detach(), torch.full((4, 3), 1 - 0.02))
    torch.testing.assert_close(vector.detach(), torch.full((5,), 1 - 0.003))
