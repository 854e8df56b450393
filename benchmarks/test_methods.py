"""Steps of each method, 4 workers on the digits MLP, beside DDP-Adam in the same run; gradients are not timed.

A ratio of 2 means half of DDP-Adam's steps per second. What is slower than that has a reason: Muon and DeMo over Muon
iterate on matrix products (Newton-Schulz), Dion and PowerSGD decompose (QR), DeMo transforms and sorts blocks and
packs bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.conftest import Compare
from syncline.comm import SimulatedCommunicator
from syncline.methods import METHODS, method_of
from syncline.problems import Digits
from syncline.training import parameter_groups, rows_of

STEPS = 100


def stepper(name: str) -> Callable[[], None]:
    """Steps on gradients that stay as they are."""
    comm = SimulatedCommunicator(4)
    task = Digits().build(rows_of(comm, (0,)))
    method = method_of(METHODS[name]).build(parameter_groups(task), comm)
    task.step_gradients(0)

    def work() -> None:
        for _ in range(STEPS):
            method.step()

    return work


@pytest.mark.parametrize("name", [name for name in METHODS if name != "ddp-adam"])
def test_step(against: Compare, name: str) -> None:
    against(f"{name} step", stepper(name), "ddp-adam", stepper("ddp-adam"), scale=1e3 / STEPS, rounds=5)
