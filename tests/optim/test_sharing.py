"""Workers that are alike are one copy, until something differs, and train as if they were not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from syncline.comm import SimulatedCommunicator, rows_share_memory
from syncline.methods import method_of
from syncline.optim import Method
from syncline.optim.rules import fused_adam
from syncline.problems import Digits
from syncline.problems.network import NetworkTask
from syncline.problems.random_draws import torch_generator
from syncline.training import parameter_groups, rows_of
from tests.methods.table import METHODS

SMALL = Digits(hidden=6, batch_size=4)
LARGE = Digits(hidden=300, batch_size=4)
"""Enough numbers for a kernel of its own."""


def built(spec: Any, problem: Digits = SMALL, workers: int = 4) -> tuple[NetworkTask, Method]:
    comm = SimulatedCommunicator(workers)
    task = problem.build(rows_of(comm, (0,)))
    return task, method_of(spec).build(parameter_groups(task), comm)


def train(task: NetworkTask, method: Method, steps: int = 12) -> list[Tensor]:
    for _ in range(steps):
        task.step_gradients(method.steps_done)
        method.step()
    return [p.detach().clone() for p in task.params.values()]


ALIKE = ("ddp-sgd", "ddp-sgdm", "ddp-adam", "ddp-adamw", "ddp-adam-clipped", "ddp-adopt", "ddp-lion", "ddp-ada-sgd",
         "demo", "powersgd", "ddp-top-k", "ddp-qsgd")  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_one_copy_has_the_bits_of_all_copies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, method = built(METHODS[name].fields)
    got = train(task, method)
    assert all(rows_share_memory(p) for p in task.params.values())
    monkeypatch.setattr(Method, "keeps_workers_equal", False)
    task, method = built(METHODS[name].fields)
    expected = train(task, method)
    assert not any(rows_share_memory(p) for p in task.params.values())
    assert all(map(torch.equal, got, expected))


def test_what_is_of_each_worker_has_rows_of_its_own() -> None:
    task, method = built(METHODS["ddp-top-k"].fields)
    train(task, method, 2)
    for p in task.params.values():
        assert {name: rows_share_memory(state) for name, state in method.state[p].items()} == {
            "momentum_1": True,
            "error": False,
        }


@pytest.mark.parametrize("name", ["local-adam", "diloco", "mt-dao", "dion-scheduled", "sign-sgd", "ddp-torch-nadam"])
def test_workers_that_part_have_memory_of_their_own(name: str) -> None:
    task, method = built(METHODS[name].fields)
    train(task, method, 2)
    assert not any(rows_share_memory(p) for p in task.params.values())


def test_workers_that_begin_apart_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def apart() -> list[Tensor]:
        task, method = built(METHODS["ddp-adam"].fields)
        with torch.no_grad():
            task.params["0.bias"][2] += 1.0
        return train(task, method)

    got = apart()
    monkeypatch.setattr(Method, "keeps_workers_equal", False)
    assert all(map(torch.equal, got, apart()))


def test_a_loaded_state_is_one_copy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was saved by workers with copies of their own."""
    with monkeypatch.context() as before:
        before.setattr(Method, "keeps_workers_equal", False)
        task, method = built(METHODS["ddp-adam"].fields)
        then = train(task, method, 5)
        saved = copy.deepcopy(method.state_dict())
        expected = train(task, method, 5)
    task, method = built(METHODS["ddp-adam"].fields)
    method.load_state_dict(saved)
    with torch.no_grad():
        for p, value in zip(task.params.values(), then, strict=True):
            p.copy_(value)
    assert all(map(torch.equal, train(task, method, 5), expected))
    assert all(rows_share_memory(state) for p in task.params.values() for state in method.state[p].values())


class Replacing:
    """A rule that puts new tensors in the place of its states."""

    states = ("m",)

    def hyperparameters(self) -> dict[str, Any]:
        return {}

    def split_group(self, group: dict[str, Any], worker_axes: int) -> list[Any]:
        return [(self, group)]

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        return {"m": torch.zeros_like(x)}

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Any, t: int) -> Tensor:
        state["m"] = 0.5 * state["m"] + g
        return state["m"]


def test_a_rule_may_replace_its_states(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"kind": "ddp", "lr": 0.1, "rule": Replacing()}
    got = train(*built(spec))
    monkeypatch.setattr(Method, "keeps_workers_equal", False)
    assert all(map(torch.equal, got, train(*built(spec))))


def test_a_kernel_gives_a_worker_the_same_bits_beside_others() -> None:
    """Ends of tensors are rounded otherwise than their inside: here of 37, 1 and 700 numbers."""

    def drawn(name: str) -> list[Tensor]:
        return [torch.rand(3, n, generator=torch_generator(0, name, n)) for n in (37, 1, 700)]

    both = [drawn(name) for name in ("x", "g", "u", "v")]
    alone = [[x[1:2].clone() for x in xs] for xs in both]
    for xs, *moments in (both, alone):
        fused_adam(xs, *moments, lr=0.1, betas=(0.9, 0.99), eps=1e-8, t=4)
    for of_all, of_one in zip(both, alone, strict=True):
        assert all(torch.equal(x[1:2], y) for x, y in zip(of_all, of_one, strict=True))


@pytest.mark.parametrize("kind", ["ddp", "local"])
def test_the_kernel_is_adam(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"kind": kind, "lr": 0.003, "rule": "adam", **({"period": 4} if kind == "local" else {})}
    got = train(*built(spec, LARGE))
    monkeypatch.setattr("syncline.optim.rules.is_worth_fusing", lambda xs: False)
    expected = train(*built(spec, LARGE))
    for x, y in zip(got, expected, strict=True):
        assert float((x - y).abs().max()) <= 1e-6 * float(y.abs().max())
