"""Every method on parameters of every shape: a number alone, vectors, matrices, convolutions, nothing at all."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch

from syncline.comm import SimulatedCommunicator
from syncline.costmodel import TensorShape
from syncline.methods import DDP, Dion
from syncline.optim import (
    EveryStep,
    FactorMean,
    Method,
    basis_rotation,
    muon,
    scion,
    sgdm,
)
from syncline.optim.matrices import MatrixSplit
from syncline.planner.projection.memory_plan import memory_of
from tests.methods.table import METHODS
from tests.methods.test_table import assert_sent
from tests.optim.given import Given, gradients, run

rows = pytest.mark.parametrize("name", METHODS)

M = 4
CONV_NET = [
    TensorShape("conv2d.weight", (6, 3, 3, 3), is_matrix=True),
    TensorShape("conv1d.weight", (4, 6, 5), is_matrix=True),
    TensorShape("linear.weight", (12, 8), is_matrix=True),
    TensorShape("scale", ()),
    TensorShape("conv2d.bias", (6,)),
    TensorShape("head.weight", (10, 8)),
]


drawn_gradients = cache(gradients)


def stepped(name: str, tensors: list[TensorShape], steps: int) -> tuple[Method, list[torch.nn.Parameter]]:
    params = [torch.nn.Parameter(torch.zeros(M, *t.shape)) for t in tensors]
    named = [(t.name, p) for t, p in zip(tensors, params, strict=True)]
    groups = [
        {"params": [one for one, t in zip(named, tensors, strict=True) if t.is_matrix == matrix], "matrix": matrix}
        for matrix in (True, False)
    ]
    method = METHODS[name].spec.build([group for group in groups if group["params"]], SimulatedCommunicator(M))
    for step in drawn_gradients(steps, M, *(t.shape for t in tensors)):
        for p, g in zip(params, step, strict=True):
            p.grad = g.float()
        method.step()
    return method, params


@rows
def test_a_small_convolutional_net(name: str) -> None:
    """It trains, sends what the closed form says, and keeps what the memory model says."""
    method, params = stepped(name, CONV_NET, 24)
    for t, p in zip(CONV_NET, params, strict=True):
        assert p.isfinite().all(), t.name
        assert p.any(), t.name
    spec = METHODS[name].spec
    assert_sent(method.comm.ledger, spec, CONV_NET, M, 24)
    kept = {True: 0, False: 0}
    for state in method.state.values():
        for key, tensor in state.items():
            kept["error" in key] += tensor.numel() * tensor.element_size() // M
    memory = memory_of(spec, CONV_NET, M)
    assert (memory.optimizer_state_bytes, memory.error_feedback_bytes) == (kept[False], kept[True])


def ddp(rule, **options):
    return lambda params, **more: Method(params, 0.1, rule, EveryStep(), **options, **more)


CONV = (8, 6, 5)


@pytest.mark.parametrize(
    "build",
    [
        ddp(muon()),
        ddp(scion()),
        ddp(basis_rotation(refresh="after", momentum="rotated")),
        ddp(sgdm(), reducer=FactorMean(2)),
        lambda params, **more: Dion(params, 0.1, **more),
        lambda params, **more: Dion(params, 0.1, exchange="compressed", **more),
    ],
    ids=["muon", "scion", "soap", "powersgd", "dion", "dion-compressed"],
)
@pytest.mark.parametrize("shape", [CONV, (4, 3, 3, 3)])
def test_a_convolution_moves_as_the_matrix_of_its_outputs(build, shape: tuple[int, ...]) -> None:
    given = gradients(4, 3, shape)
    flat = [[g.flatten(2) for g in step] for step in given]
    conv, matrix = run(build, given), run(build, flat)
    for got, expected in zip(conv.path, matrix.path, strict=True):
        assert torch.equal(got[0].flatten(2), expected[0])
    assert conv.records == matrix.records


def test_a_convolution_is_no_output_head_to_scion() -> None:
    """Of a ball of radius 50 it moves by at most ``50 sqrt(8 / 30)`` in norm, not by 3000 / 30 in every entry."""
    got = run(ddp(scion()), gradients(1, 1, CONV))
    largest = torch.linalg.matrix_norm(got.path[0][0].flatten(2), 2) / 0.1
    assert 0.6 < float(largest) / (50 * math.sqrt(8 / 30)) < 1.25


def test_what_scion_takes_for_a_vector() -> None:
    """Whatever is neither a matrix nor a table of two dimensions, a number alone too: its RMS is the radius."""
    given = gradients(1, 1, (), (7,), CONV)
    params = [torch.nn.Parameter(torch.zeros_like(g)) for g in given[0]]
    got = Given(lambda p, **more: DDP([{"params": p, "matrix": False}], 0.1, scion(), **more), given, params).run()
    for x in got.path[0]:
        assert float(x.square().mean().sqrt()) == pytest.approx(0.1 * 50)


@pytest.mark.parametrize("shape", [(), (3,), (0, 3)])
def test_what_is_no_matrix(shape: tuple[int, ...]) -> None:
    split = MatrixSplit(sgdm(), sgdm(0.0))
    p = torch.nn.Parameter(torch.zeros(shape))
    ((rule, group),) = split.split_group({"params": [p], "other_lr": None}, 0)
    assert rule is split.other_rule
    assert not group["matrix"]
