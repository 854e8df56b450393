"""Scion against a literal derivation, its limits, and the balls that its constrained form stays in."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from syncline.errors import SpecError
from syncline.methods import DDP, Local, method_of
from syncline.optim import DionRule, MatrixSplit, muon, scion, sgdm
from tests.optim.given import assert_same, gaussian, gradients, run

M, LR, RADIUS, TABLE_RADIUS = 3, 0.1, 2.0, 30.0
MATRIX, TABLE, VECTOR = (6, 4), (5, 8), (7,)


def tables_apart(params, **options):
    """The second parameter is a table, like an embedding or a head."""
    groups = [{"params": [params[0]]}, {"params": [params[1]], "matrix": False}, {"params": params[2:]}]
    return DDP(groups, **options)


def quintic(x: Tensor) -> Tensor:
    """Five Newton-Schulz steps as a polynomial of the singular values."""
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ vh


def farthest(d: Tensor, number: int, tables: str) -> Tensor:
    """Where each kind of parameter goes, written out."""
    if number == 0:
        return RADIUS * (d.shape[0] / d.shape[1]) ** 0.5 * quintic(d)
    if number == 1 and tables == "sign":
        return TABLE_RADIUS / d.shape[1] * d.sign()
    if number == 1:
        return torch.stack([TABLE_RADIUS * row * len(row) ** 0.5 / row.norm() for row in d])
    return RADIUS * d * len(d) ** 0.5 / d.norm()


@pytest.mark.parametrize("weight_decay", [0.0, 1.0])
@pytest.mark.parametrize("tables", ["sign", "rows"])
def test_scion_from_its_formula(tables: str, weight_decay: float) -> None:
    alpha, given = 0.25, gradients(5, M, MATRIX, TABLE, VECTOR)
    rule = scion(1 - alpha, radius=RADIUS, table_radius=TABLE_RADIUS, tables=tables)
    got = run(partial(tables_apart, lr=LR, rule=rule, weight_decay=weight_decay), given)
    for number, shape in enumerate((MATRIX, TABLE, VECTOR)):
        x, d = torch.zeros(shape).double(), torch.zeros(shape).double()
        for t, step in enumerate(given):
            d = (1 - alpha) * d + alpha * step[number].mean(0)
            x = (1 - LR * weight_decay) * x - LR * farthest(d, number, tables)
            for worker in got.path[t][number]:
                torch.testing.assert_close(worker, x, rtol=1e-6, atol=1e-7)


def test_matrices_are_muons_without_nesterov() -> None:
    given = gradients(5, M, (6, 4), (4, 6))
    ours = run(partial(DDP, lr=LR, rule=scion(0.95, radius=3.0)), given)
    theirs = run(partial(DDP, lr=3 * LR, rule=muon(0.95, nesterov=False, adjust_lr="spectral")), given)
    assert_same(ours, theirs)


def test_without_momentum_and_scale_a_table_is_sign_sgds() -> None:
    given = gradients(4, M, TABLE)
    rule = scion(0.0, table_radius=float(TABLE[1]))
    ours = run(lambda params, **rest: DDP([{"params": params, "matrix": False}], lr=LR, rule=rule, **rest), given)
    x = torch.zeros(TABLE).double()
    for t, (g,) in enumerate(given):
        x = x - LR * g.mean(0).sign()
        torch.testing.assert_close(ours.path[t][0][0], x)
    assert not ours.method.state[ours.params[0]]


def test_without_momentum_a_vector_is_normalised_sgds() -> None:
    given = gradients(4, 1, VECTOR)
    ours = run(partial(DDP, lr=LR, rule=scion(0.0, radius=1.0)), given)
    unit = [[g * (g.numel() ** 0.5 / g.norm()) for g in step] for step in given]
    assert_same(ours, run(partial(DDP, lr=LR, rule=sgdm()), unit))


def test_only_the_direction_of_gradients_counts() -> None:
    given = gradients(5, M, MATRIX, TABLE, VECTOR)
    build = partial(tables_apart, lr=LR, rule=scion())
    larger = run(build, [[1000.0 * g for g in step] for step in given])
    for one, other in zip(run(build, given).path, larger.path, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


def test_a_parameter_without_gradient_information_stays() -> None:
    zeros = [[torch.zeros(M, *s).double() for s in (MATRIX, TABLE, VECTOR)]] * 3
    for tables in ("sign", "rows"):
        got = run(partial(tables_apart, lr=LR, rule=scion(tables=tables)), zeros)
        assert all(not p.any() for p in got.params)


@settings(max_examples=20, deadline=None)
@given(lr=st.floats(0.01, 1.0), momentum=st.floats(0.0, 0.99), seed=st.integers(0, 1000))
def test_the_constrained_form_stays_in_its_balls(lr: float, momentum: float, seed: int) -> None:
    """From a point inside: the polar factor's singular values are 1 within the iteration's 0.3."""
    steps = [[gaussian(1, *s, seed=seed + 10 * t + i) for i, s in enumerate((MATRIX, TABLE, VECTOR))] for t in range(8)]
    rule = scion(momentum, radius=RADIUS, table_radius=TABLE_RADIUS)
    got = run(partial(tables_apart, lr=lr, rule=rule, weight_decay=1.0), steps)
    for matrix, table, vector in got.path:
        assert torch.linalg.matrix_norm(matrix[0], 2) <= 1.3 * RADIUS * (MATRIX[0] / MATRIX[1]) ** 0.5
        assert table.abs().max() <= TABLE_RADIUS / TABLE[1] * (1 + 1e-9)
        assert vector.square().mean().sqrt() <= RADIUS * (1 + 1e-9)


def test_a_group_can_have_radii_of_its_own() -> None:
    given = gradients(3, M, MATRIX, TABLE, VECTOR)
    twice = [{"radius": 2.0}, {"matrix": False, "table_radius": 60.0}, {"radius": 2.0}]

    def build(params, **rest):
        groups = [{"params": [p], **one} for p, one in zip(params, twice, strict=True)]
        return DDP(groups, lr=LR, rule=scion(radius=1.0, table_radius=30.0), **rest)

    assert_same(
        run(build, given), run(partial(tables_apart, lr=2 * LR, rule=scion(radius=1.0, table_radius=30.0)), given)
    )


def test_averaged_every_so_often_its_momenta_are_too() -> None:
    got = run(partial(Local, lr=LR, rule=scion(), period=2), gradients(4, M, MATRIX, VECTOR))
    assert {r.label for r in got.records} == {"params+momentum_1"}
    assert [r.step for r in got.records] == [1, 3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["scion", "dion"])
def test_half_precision_divides_by_norms_in_single(kind: str, dtype: torch.dtype) -> None:
    """In fp16 the square of 1e-4 is 0, and so are 1e-12 and 1e-8: a row of zeros stays zero, others get their size."""
    x = torch.nn.Parameter(torch.zeros(4, 8, dtype=dtype))
    x.grad = torch.full_like(x, 1e-4)
    x.grad[:, 2:] = 0  # a row of zeros of the table, a column of zeros of the matrix
    x.grad[0] = 0
    if kind == "scion":
        DDP([{"params": [x], "matrix": False}], LR, scion(0.0, table_radius=1.0, tables="rows")).step()
        sizes = torch.tensor([0.0, *[LR] * 3])
        torch.testing.assert_close(x.detach().float().square().mean(1).sqrt(), sizes, rtol=0.01, atol=0.0)
    else:
        method = DDP([x], LR, MatrixSplit(DionRule(rank_fraction=1.0), sgdm()))
        method.step()
        x.grad.zero_()
        method.step()
        assert x.isfinite().all()
        assert all(state.isfinite().all() for state in method.state[x].values())


def test_named_forms() -> None:
    constrained, free = method_of("ddp-scion"), method_of("ddp-uscion")
    assert (constrained.weight_decay, free.weight_decay) == (1.0, 0.0)
    assert constrained.rule == free.rule
    assert scion().other_rule.scaling.table_radius == 3000.0
    assert scion(tables="rows").other_rule.scaling.table_radius == 50.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: scion(1.0), r"momentum: got 1.0; expected a number in \[0, 1\)"),
        (lambda: scion(radius=0.0), "radius: got 0.0; expected a number > 0"),
        (lambda: scion(table_radius=-1.0), "table_radius: got -1.0; expected a number > 0"),
        (lambda: scion(tables="odd"), "tables: got 'odd'; expected 'sign' or 'rows'"),
    ],
)
def test_misuse_is_one_helpful_line(build, message: str, unchecked) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
