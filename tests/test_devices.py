"""Everything of a training is where it was asked for: on the meta device, which refuses tensors from elsewhere."""

from __future__ import annotations

import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.problems import PROBLEMS, Digits, Rows
from syncline.training import parameter_groups
from tests.methods.table import METHODS

META = torch.device("meta")
TRIGGERED = ("curvadion", "selsync")
"""Methods with a trigger, which needs values; tensors of this device have none."""


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("name", list(PROBLEMS))
def test_a_problem_is_on_its_device(name: str, seeds: tuple[int, ...]) -> None:
    task = PROBLEMS[name]().build(Rows.whole_group(3, seeds), device=META)
    found = {"losses": task.step_gradients(0), **task.trace()}
    found |= {f"gradient of {key}": p.grad for key, p in task.params.items()}
    found |= task.evaluate({key: p.detach()[: len(seeds)] for key, p in task.params.items()})
    assert {key: x.device.type for key, x in found.items()} == dict.fromkeys(found, "meta")


@pytest.mark.parametrize("name", [name for name in METHODS if not name.startswith(TRIGGERED)])
def test_what_a_method_keeps_is_where_its_parameters_are(name: str) -> None:
    task = Digits(hidden=8).build(Rows.whole_group(2), device=META)
    method = METHODS[name].spec.build(parameter_groups(task), SimulatedCommunicator(2))
    for p in task.params.values():
        p.grad = torch.empty_like(p)
    for _ in range(3):
        method.step()
    kept = {(i, key): x for i, state in enumerate(method.state.values()) for key, x in state.items()}
    assert {where: x.device.type for where, x in kept.items() if x.device != META} == {}
    assert all(p.device == META and p.grad.device == META for p in task.params.values())
