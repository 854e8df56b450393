"""Adam in a rotated basis: literal derivations, and the limits in which it is another optimizer."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given as given_by
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from syncline.comm import SimulatedCommunicator
from syncline.costmodel.compute.update_work import rotation_work
from syncline.errors import SpecError
from syncline.methods import DDP, method_of
from syncline.optim import (
    RotatedAdam,
    adam,
    basis_rotation,
    full_rotation,
    rotation,
)
from syncline.optim.rotation import (
    exact_basis,
    off_diagonal_share,
    power_basis,
    rayleigh_order,
    reordered,
    rotate,
    rotate_back,
)
from tests.optim.given import Given, assert_same, gaussian, gradients, run

M, LR = 3, 0.1
EPS = 1e-4
"""Above what rounding leaves where a rotated gradient is zero: in its own singular vectors, off the diagonal."""
DESIGNS = [(source, geometry) for source in ("1st", "2nd") for geometry in ("unilateral", "bilateral")]
designs = pytest.mark.parametrize(("source", "geometry"), DESIGNS)


def eigenvectors(c: Tensor) -> Tensor:
    return torch.linalg.eigh(c)[1].flip(-1)


def iterated(c: Tensor, basis: Tensor, v: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """One power iteration from the sorted columns of a basis, and the second moment in the same order."""
    order = torch.argsort(torch.diag(basis.T @ c @ basis), descending=True)
    return torch.linalg.qr(c @ basis[:, order])[0], v.index_select(dim, order)


def rule_of(kind: str, frequency: int | None, **rates: float | None) -> Any:
    """The update rule of a kind of method, by its spec."""
    return method_of({"kind": kind, "lr": LR, "frequency": frequency, "eps": EPS} | rates)._rule()


def close_to(got: Given, literal: list[Tensor]) -> None:
    for step, expected in zip(got.path, literal, strict=True):
        for worker in step[0]:
            torch.testing.assert_close(worker, expected, rtol=1e-8, atol=1e-9)


def basis_rotation_by_hand(gs: list[Tensor], source: str, sides: str, every: int, b1: float, b2: float) -> list[Tensor]:
    """Algorithms 1 and 2 on one matrix, the bases refreshed before the moments."""
    m, n = gs[0].shape
    x, u, v = torch.zeros(m, n).double(), torch.zeros(m, n).double(), torch.zeros(m, n).double()
    left, right = torch.zeros(m, m).double(), torch.zeros(n, n).double()
    p, q = torch.eye(m).double(), torch.eye(n).double()
    out = []
    for t, g in enumerate(gs, start=1):
        left, right = b2 * left + (1 - b2) * g @ g.T, b2 * right + (1 - b2) * g.T @ g
        u = b1 * u + (1 - b1) * g
        c, d = (left, right) if source == "2nd" else (u @ u.T, u.T @ u)
        if t == 1:
            p = eigenvectors(c) if "l" in sides else p
            q = eigenvectors(d) if "r" in sides else q
        elif t % every == 0:
            if "l" in sides:
                p, v = iterated(c, p, v, 0)
            if "r" in sides:
                q, v = iterated(d, q, v, 1)
        v = b2 * v + (1 - b2) * (p.T @ g @ q) ** 2
        direction = (p.T @ u @ q) / (1 - b1**t) / ((v / (1 - b2**t)).sqrt() + EPS)
        x = x - LR * p @ direction @ q.T
        out.append(x)
    return out


@pytest.mark.parametrize("source", ["1st", "2nd"])
@pytest.mark.parametrize(("shape", "sides"), [((5, 5), "lr"), ((5, 5), "r"), ((6, 4), "r"), ((4, 6), "l")])
def test_basis_rotation_from_its_algorithms(source: str, shape: tuple[int, int], sides: str) -> None:
    """Bilateral on a square alone: elsewhere the first gradient leaves the longer side's eigenvectors open."""
    geometry = "bilateral" if sides == "lr" else "unilateral"
    given = gradients(13, M, shape)
    rule = basis_rotation(source, geometry, 4, beta1=0.8, beta2=0.9, eps=EPS)
    got = run(partial(DDP, lr=LR, rule=rule), given)
    close_to(got, basis_rotation_by_hand([g.mean(0) for (g,) in given], source, sides, 4, 0.8, 0.9))


def test_soap_from_its_algorithm() -> None:
    """The first gradient only finds the bases; afterwards they are refreshed at the end of every 3rd step."""
    b1, b2, every = 0.8, 0.9, 3
    given = gradients(14, M, (5, 5))
    x = u = v = torch.zeros(5, 5).double()
    left = right = torch.zeros(5, 5).double()
    p = q = torch.eye(5).double()
    literal = []
    for step, g in enumerate(g.mean(0) for (g,) in given):
        if step:
            rotated = p.T @ g @ q
            u, v = b1 * u + (1 - b1) * rotated, b2 * v + (1 - b2) * rotated**2
            direction = u / (1 - b1**step) / ((v / (1 - b2**step)).sqrt() + EPS)
            x = x - LR * p @ direction @ q.T
        u = p @ u @ q.T
        left, right = b2 * left + (1 - b2) * g @ g.T, b2 * right + (1 - b2) * g.T @ g
        if step == 0:
            p, q = eigenvectors(left), eigenvectors(right)
        elif step % every == 0:
            p, v = iterated(left, p, v, 0)
            q, v = iterated(right, q, v, 1)
        u = p.T @ u @ q
        literal.append(x)
    close_to(run(partial(DDP, lr=LR, rule=rule_of("soap", every, beta1=b1, beta2=b2)), given), literal)


@pytest.mark.parametrize("tolerance", [None, 0.0, 0.25, 1.0])
def test_eshampoo_from_its_algorithm(tolerance: float | None) -> None:
    """Momentum in original coordinates, eigenvalues averaged on whatever the basis is, bases by decomposition alone."""
    b1, b2, every, renewed = 0.8, 0.9, 2, 0
    given = gradients(14, M, (5, 5))
    x = u = v = left = right = torch.zeros(5, 5).double()
    p = q = torch.eye(5).double()
    literal = []
    for step, g in enumerate((g.mean(0) for (g,) in given), start=1):
        left, right = b2 * left + (1 - b2) * g @ g.T, b2 * right + (1 - b2) * g.T @ g
        if step == 1 or step % every == 0:
            fresh = []
            for c, basis in ((left, p), (right, q)):
                b = basis.T @ c @ basis
                stays = tolerance is not None and (b - b.diag().diag()).norm() <= tolerance * b.norm()
                fresh.append(basis if stays and step > 1 else eigenvectors(c))
                renewed += not stays
            p, q = fresh
        u, v = b1 * u + (1 - b1) * g, b2 * v + (1 - b2) * (p.T @ g @ q) ** 2
        x = x - LR * p @ ((p.T @ u @ q) / (1 - b1**step) / ((v / (1 - b2**step)).sqrt() + EPS)) @ q.T
        literal.append(x)
    rule = rule_of("eshampoo", every, tolerance=tolerance, beta1=b1, beta2=b2)
    close_to(run(partial(DDP, lr=LR, rule=rule), given), literal)
    assert tolerance != 0.25 or 2 < renewed < 16  # of the first two and two in each of seven steps


def test_eshampoo_that_never_renews_is_basis_rotation() -> None:
    """No renewal, so no second moment to carry over; a tolerance of 1 is never exceeded."""
    given = gradients(9, M, (5, 5))
    frozen = run(partial(DDP, lr=LR, rule=basis_rotation(frequency=None, eps=EPS)), given)
    for rule in (rule_of("eshampoo", None), rule_of("eshampoo", 2, tolerance=1.0)):
        assert_same(run(partial(DDP, lr=LR, rule=rule), given), frozen)


def test_off_diagonal_share_is_the_error_of_taking_a_matrix_for_diagonal() -> None:
    b = gaussian(2, 4, 4)
    share = off_diagonal_share(torch.cat([b + b.mT, torch.zeros(1, 4, 4).double(), torch.eye(4).double()[None]]))
    for one, got in zip(b + b.mT, share, strict=False):
        torch.testing.assert_close(got, ((one - one.diag().diag()).norm() / one.norm()).view(1, 1))
    assert share[2:].flatten().tolist() == [0.0, 0.0]


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_galore_from_its_algorithm(shape: tuple[int, int]) -> None:
    """Without a momentum, which would also depend on the signs of singular vectors."""
    given, every, b2 = gradients(11, M, shape), 4, 0.9
    x, v = torch.zeros(shape).double(), torch.zeros(shape).double()
    literal = []
    for t, g in enumerate((g.mean(0) for (g,) in given), start=1):
        if t == 1 or t % every == 0:
            u, _, vh = torch.linalg.svd(g, full_matrices=False)
        rotated = u.T @ g if shape[0] < shape[1] else g @ vh.T
        v = b2 * v + (1 - b2) * rotated**2
        direction = rotated / ((v / (1 - b2**t)).sqrt() + EPS)
        x = x - LR * (u @ direction if shape[0] < shape[1] else direction @ vh)
        literal.append(x)
    close_to(run(partial(DDP, lr=LR, rule=rule_of("galore", every, beta1=0.0, beta2=b2)), given), literal)


# SOAP and Basis Rotation


BETAS = {"beta1": 0.8, "beta2": 0.9, "eps": EPS}


def test_soap_is_basis_rotation_with_both_switches() -> None:
    given = gradients(15, M, (6, 4), (5,))
    switched = basis_rotation("2nd", "bilateral", 3, refresh="after", momentum="rotated", **BETAS)
    one, other = (run(partial(DDP, lr=LR, rule=rule), given) for rule in (switched, rule_of("soap", 3, **BETAS)))
    assert_same(one, other, exact=True)


def test_where_the_momentum_is_kept_is_rounding_alone() -> None:
    """A momentum that is turned along with its basis is the same momentum: only its refresh sets SOAP apart."""
    given = gradients(15, M, (5, 5), (6, 4))
    for refresh in ("before", "after"):
        rules = [
            basis_rotation("2nd", "bilateral", 3, refresh=refresh, momentum=momentum, **BETAS)
            for momentum in ("original", "rotated")
        ]
        assert_same(*(run(partial(DDP, lr=LR, rule=rule), given) for rule in rules))


def test_when_the_basis_is_refreshed_is_another_path() -> None:
    given = gradients(15, M, (5, 5))
    before, after = (
        run(partial(DDP, lr=LR, rule=basis_rotation("2nd", "bilateral", 3, refresh=refresh, **BETAS)), given)
        for refresh in ("before", "after")
    )
    assert float((before.path[0][0]).abs().min()) > 0 and torch.equal(after.path[0][0], torch.zeros(M, 5, 5).double())
    assert float((before.path[-1][0] - after.path[-1][0]).abs().max()) > LR


# Limits


def diagonals(steps: int, *scales: tuple[float, ...]) -> list[list[Tensor]]:
    """Diagonal gradients of one worker; scales change from the first to the last at half time."""
    out = []
    for t in range(steps):
        scale = torch.tensor(scales[0] if t < steps // 2 else scales[-1]).double()
        out.append([torch.diag(scale * (1 + 0.3 * gaussian(len(scale), seed=t).abs())).unsqueeze(0)])
    return out


@pytest.mark.parametrize("source", ["1st", "2nd"])
@pytest.mark.parametrize("geometry", ["unilateral", "bilateral"])
def test_the_standard_basis_is_adam_bit_for_bit(source: str, geometry: str) -> None:
    """A diagonal first gradient has signed unit vectors as eigenvectors, and they stay."""
    given = [*diagonals(1, (3.0, 1.0, 2.0)), *gradients(20, 1, (3, 3))]
    rotated = run(partial(DDP, lr=LR, rule=basis_rotation(source, geometry, None)), given)
    assert_same(rotated, run(partial(DDP, lr=LR, rule=adam()), given), exact=True)


def test_the_standard_basis_of_all_coordinates_is_adam_bit_for_bit() -> None:
    given = gradients(20, M, (2, 3))
    hessian = torch.diag(torch.arange(6, 0, -1).double()).expand(M, 6, 6)
    rotated = run(partial(DDP, lr=LR, rule=full_rotation(lambda t: hessian)), given)
    assert_same(rotated, run(partial(DDP, lr=LR, rule=adam()), given), exact=True)


@pytest.mark.parametrize("estimate", ["power", "exact"])
def test_second_moments_follow_their_columns(estimate: str) -> None:
    """Where gradients stay diagonal but their order changes, bases are permuted, and with v in step that is Adam."""
    given = diagonals(30, (3.0, 1.0, 2.0), (0.1, 1.0, 2.0))
    options = {"estimate": estimate, "covariance_beta": 0.3, "beta2": 0.99, "eps": EPS}
    expected = run(partial(DDP, lr=LR, rule=adam(0.9, 0.99, EPS)), given)
    left_behind = run(partial(DDP, lr=LR, rule=basis_rotation(frequency=2, carry=False, **options)), given)
    got = run(partial(DDP, lr=LR, rule=basis_rotation(frequency=2, **options)), given)
    assert_same(got, expected)
    assert not torch.equal(got.state(0, "left_basis"), run_first(given).state(0, "left_basis"))
    assert float((left_behind.path[-1][0] - expected.path[-1][0]).abs().max()) > 0.1 * LR


def run_first(given: list[list[Tensor]]) -> Given:
    return run(partial(DDP, lr=LR, rule=basis_rotation()), given[:1])


@pytest.mark.parametrize("delay", [0, 2])
def test_exact_eigenvectors_are_adam_on_the_aligned_problem(delay: int) -> None:
    """20 of 20 starts around the same one take, turned, the path of Adam where the Hessian is diagonal."""
    eigenvalues = torch.tensor([20.0, 1.0]).double()
    start = torch.tensor([-20.0, 30.0]).double() + 4 * (torch.rand(20, 2, generator=seeded(1)).double() - 0.5)
    for degrees in (10, 22.5, 45):
        c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        turn = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
        hessian = turn @ torch.diag(eigenvalues) @ turn.T
        aligned = descend(adam(0.0, 0.1), torch.diag(eigenvalues), start, delay)
        exact = full_rotation(lambda t, h=hessian: h.expand(20, 2, 2), beta1=0.0, beta2=0.1)
        rotated = descend(exact, hessian, start @ turn.T, delay)
        misaligned = descend(adam(0.0, 0.1), hessian, start @ turn.T, delay)
        apart = (rotated @ turn - aligned).norm(dim=-1).amax(0)
        assert int((apart < 1e-9).sum()) == 20
        assert int(((misaligned @ turn - aligned).norm(dim=-1).amax(0) > 1).sum()) == 20


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def descend(rule: Any, hessian: Tensor, start: Tensor, delay: int, steps: int = 60) -> Tensor:
    """Positions ``(T, R, d)`` on a quadratic, each row by itself, by gradients that are late."""
    x = torch.nn.Parameter(start.clone())
    method = DDP([x], 1.0, rule, comm=SimulatedCommunicator(1, replicas=len(start)), worker_axis=True)
    path = [start]
    for t in range(steps):
        x.grad = path[max(t - delay, 0)] @ hessian
        method.step()
        path.append(x.detach().clone())
    return torch.stack(path)


@designs
def test_without_a_frequency_the_first_basis_stays(source: str, geometry: str) -> None:
    given = gradients(9, M, (6, 4))
    trained = Given(partial(DDP, lr=LR, rule=basis_rotation(source, geometry, None)), given)
    trained.run(last=1)
    first = {k: v.clone() for k, v in trained.method.state[trained.params[0]].items() if "basis" in k}
    trained.run(first=1)
    assert first and all(torch.equal(trained.state(0, name), basis) for name, basis in first.items())


def test_bases_are_renewed_at_their_own_groups_steps() -> None:
    params = [torch.nn.Parameter(torch.zeros(1, 4, 4).double()) for _ in range(3)]
    groups = [
        {"params": params[:1]},
        {"params": params[1:2], "frequency": 3},
        {"params": params[2:], "frequency": None},
    ]
    method = DDP(groups, LR, basis_rotation(frequency=2), comm=SimulatedCommunicator(1), worker_axis=True)
    renewed: list[list[int]] = [[], [], []]
    for t in range(9):
        before = [method.state[p]["right_basis"].clone() if t else None for p in params]
        for p in params:
            p.grad = gaussian(1, 4, 4, seed=t)
        method.step()
        for number, (p, old) in enumerate(zip(params, before, strict=True)):
            if old is None or not torch.equal(method.state[p]["right_basis"], old):
                renewed[number].append(t)
    assert renewed == [[0, 1, 3, 5, 7], [0, 2, 5, 8], [0]]


def test_a_parameter_that_comes_late_is_adams_until_the_next_renewal() -> None:
    p = torch.nn.Parameter(torch.zeros(1, 3, 3))
    q = torch.nn.Parameter(torch.zeros(1, 3, 3))
    method = DDP([p, q], LR, basis_rotation(frequency=10), comm=SimulatedCommunicator(1), worker_axis=True)
    for t in range(4):
        p.grad, q.grad = gaussian(1, 3, 3, seed=t).float(), gaussian(1, 3, 3, seed=t).float() if t else None
        method.step()
    assert torch.equal(method.state[q]["left_basis"], torch.eye(3).expand(1, 3, 3))
    assert not torch.equal(method.state[p]["left_basis"], torch.eye(3).expand(1, 3, 3))


@designs
def test_turning_the_problem_turns_the_path(source: str, geometry: str) -> None:
    """What Adam is not, and a bilateral rotation is: blind to the coordinates of a matrix, on the sides that rotate."""
    given = gradients(12, 1, (4, 4))
    a, b = torch.linalg.qr(gaussian(4, 4, seed=7))[0], torch.linalg.qr(gaussian(4, 4, seed=8))[0]
    a = a if geometry == "bilateral" else torch.eye(4).double()
    turned = [[a @ g @ b] for (g,) in given]
    plain, other = (
        run(partial(DDP, lr=LR, rule=basis_rotation(source, geometry, 3, eps=EPS)), gs) for gs in (given, turned)
    )
    for one, two in zip(plain.path, other.path, strict=True):
        torch.testing.assert_close(a @ one[0] @ b, two[0], rtol=1e-7, atol=1e-8)


# Rows, shapes, work


RULES = {
    **{f"{source} {geometry}": RotatedAdam(source, geometry, 2) for source, geometry in DESIGNS},
    "exact": RotatedAdam("1st", "bilateral", 2, "exact"),
    "soap": RotatedAdam("2nd", "bilateral", 2, refresh="after", momentum="rotated"),
    "momentum after": RotatedAdam("1st", "bilateral", 2, refresh="after", momentum="rotated"),
    "galore": RotatedAdam("gradient", "unilateral", 2, "exact", momentum="rotated", carry=False),
    "all coordinates": full_rotation(frequency=2, estimate="power", covariance_beta=0.5),
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@rules
def test_rows_are_separate_runs(rule: RotatedAdam) -> None:
    x = gaussian(M, 2, 2)
    together, alone = rule.init(x, 0), [rule.init(x[i : i + 1], 0) for i in range(M)]
    h = rule.hyperparameters()
    for t in range(7):
        g = gaussian(M, 2, 2, seed=t)
        d = rule.direction(g.clone(), together, h, t)
        for i, state in enumerate(alone):
            one = rule.direction(g[i : i + 1].clone(), state, h, t)
            if d is None or one is None:
                assert d is one and t == 0
            else:
                torch.testing.assert_close(d[i : i + 1], one, rtol=1e-7, atol=1e-7)


@rules
def test_bases_found_together_are_those_found_alone(rule: RotatedAdam, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sides of one length in one call, in a method whose groups renew at steps of their own."""
    given = gradients(9, M, (3, 3), (3, 3), (3, 3))

    def trained() -> Given:
        def build(params: list[torch.nn.Parameter], **options: Any) -> DDP:
            return DDP([{"params": params[:2]}, {"params": params[2:], "frequency": 3}], LR, rule, **options)

        return run(build, given)

    alone = trained()
    monkeypatch.setitem(rotation.LONGEST_STACKED, "cpu", 3)
    sizes = []
    monkeypatch.setattr(rotation, "exact_basis", lambda c: sizes.append(len(c)) or exact_basis(c))
    monkeypatch.setattr(rotation, "power_basis", lambda c, b: sizes.append(len(c)) or power_basis(c, b))
    together = trained()
    for one, other in zip(alone.path, together.path, strict=True):
        for x, y in zip(one, other, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)
    if rule.geometry != "full":
        sides = 2 if rule.geometry == "bilateral" else 1
        # Workers that are alike have their bases once.
        assert sizes[0] == 3 * sides and set(sizes) == {n * sides for n in (1, 2, 3)}


@rules
def test_shapes_alone_are_enough(rule: RotatedAdam) -> None:
    x = torch.empty(2, 5, 4, device="meta")
    state = rule.init(x, 0)
    for t in range(3):
        d = rule.direction(torch.empty_like(x), state, rule.hyperparameters(), t)
    assert d is not None and d.shape == x.shape


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("momentum", ["original", "rotated"])
@pytest.mark.parametrize("estimate", ["power", "exact"])
@designs
def test_products_are_those_of_the_cost_model(
    source: str, geometry: str, estimate: str, momentum: str, shape: tuple[int, int]
) -> None:
    rule = RotatedAdam(source, geometry, 2, estimate, momentum=momentum)
    x, h = torch.zeros(1, *shape), rule.hyperparameters()
    state, counted = rule.init(x, 0), []
    for t in range(4):
        with FlopCounterMode(display=False) as counter:
            rule.direction(gaussian(1, *shape, seed=t).float(), state, h, t)
        counted.append(counter.get_total_flops())
    work = rotation_work(*shape, source, geometry, estimate=estimate, momentum=momentum)
    assert counted[2] == work.flops(None)
    assert counted[3] == pytest.approx(work.flops(1, math.inf))


def test_a_groups_frequency_is_in_the_state_dict() -> None:
    given = gradients(12, M, (5, 4), (4,))
    build = partial(DDP, lr=LR, rule=basis_rotation(frequency=3))
    whole, half, rest = Given(build, given).run(), Given(build, given).run(last=5), Given(build, given)
    rest.method.load_state_dict(copy.deepcopy(half.method.state_dict()))
    with torch.no_grad():
        for p, q in zip(rest.params, half.params, strict=True):
            p.copy_(q)
    assert half.method.state_dict()["param_groups"][0]["frequency"] == 3
    rest.run(first=5)
    for one, other in zip(whole.path[5:], rest.path, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def test_only_matrices_of_chosen_names_rotate() -> None:
    names = ["0.attention.qkv", "0.mlp.up", "0.norm", "head"]
    shapes = [(6, 4), (4, 6), (4,), (8, 4)]
    params = {name: torch.nn.Parameter(torch.zeros(1, *shape)) for name, shape in zip(names, shapes, strict=True)}
    groups = [
        {"params": list(params.items())[:3], "matrix": True},
        {"params": list(params.items())[3:], "matrix": False},
    ]
    for layers, turning in (((), names[:2]), (("*.mlp.*",), names[1:2])):
        comm = SimulatedCommunicator(1)
        method = DDP(copy.copy(groups), LR, basis_rotation(layers=layers), comm=comm, worker_axis=True)
        for p in params.values():
            p.grad = torch.ones_like(p)
        method.step()
        assert [name for name, p in params.items() if "left_basis" in method.state[p]] == turning
    with pytest.raises(SpecError, match=r"layers: got .*; expected none, or parameters with names"):
        DDP(list(params.values()), LR, basis_rotation(layers=("*.mlp.*",)))


def test_what_does_not_rotate_is_adams() -> None:
    given = gradients(6, M, (6, 4), (5,), ())
    together = run(partial(DDP, lr=LR, rule=basis_rotation(beta1=0.8, beta2=0.9)), given)
    others = run(partial(DDP, lr=LR, rule=adam(0.8, 0.9)), [step[1:] for step in given])
    for one, other in zip(together.path, others.path, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one[1:], other, strict=True))


# Bases


@given_by(st.integers(1, 6), st.integers(0, 6), st.integers(0, 1000), st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=40, deadline=None)
def test_bases_are_orthonormal_whatever_the_rank(d: int, rank: int, seed: int, dtype: torch.dtype) -> None:
    factor = gaussian(2, d, min(rank, d), seed=seed).to(dtype)
    c, start = factor @ factor.mT, exact_basis(gaussian(2, d, d, seed=seed + 1).to(dtype) @ torch.eye(d, dtype=dtype))
    identity = torch.eye(d, dtype=dtype).expand(2, d, d)
    for basis in (exact_basis(c), power_basis(c, reordered(start, rayleigh_order(c, start), -1))):
        torch.testing.assert_close(basis.mT @ basis, identity, rtol=0, atol=2e-5)
    x = gaussian(2, d, 3, seed=seed + 2).to(dtype)
    torch.testing.assert_close(rotate_back(rotate(x, start, None), start, None), x, rtol=0, atol=2e-5)


def test_power_iterations_reach_the_eigenvectors() -> None:
    turn = torch.linalg.qr(gaussian(4, 4))[0]
    c = turn @ torch.diag(torch.tensor([1.0, 8.0, 2.0, 4.0]).double()) @ turn.T
    basis = torch.eye(4).double()
    for _ in range(60):
        basis = power_basis(c, reordered(basis, rayleigh_order(c, basis), -1))
    torch.testing.assert_close((exact_basis(c).T @ basis).abs(), torch.eye(4).double(), atol=1e-9, rtol=0)
    assert rayleigh_order(c, basis).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_without_curvature_stay(dtype: torch.dtype) -> None:
    """All but one direction has none; without the shift rounding would turn the rest about."""
    turn = exact_basis(gaussian(5, 5).to(dtype) @ torch.eye(5, dtype=dtype))
    turn = torch.linalg.qr(turn)[0]
    c = turn[:, :1] @ turn[:, :1].T
    got = power_basis(c, turn)
    assert float((got.T @ turn).diagonal().abs().min()) > 0.9


def test_orders_of_rows_and_columns() -> None:
    x = torch.arange(6.0).view(1, 2, 3)
    assert reordered(x, torch.tensor([[1, 0]]), -2).tolist() == [[[3, 4, 5], [0, 1, 2]]]
    assert reordered(x, torch.tensor([[2, 0, 1]]), -1).tolist() == [[[2, 0, 1], [5, 3, 4]]]


# Specs


def test_stages_share_out_renewals_by_the_delays_of_their_groups() -> None:
    def frequencies(allocation: str, groups: list[dict[str, Any]]) -> list[int | None]:
        method = method_of({"kind": "basis-rotation", "lr": 0.1, "frequency": 10, "allocation": allocation})
        params = [{**group, "params": [torch.nn.Parameter(torch.zeros(1, 3, 3))]} for group in groups]
        return [group["frequency"] for group in method.build(params, SimulatedCommunicator(1)).param_groups]

    whole = [{"delay": delay} for delay in (3, 2, 1, 0)]
    assert frequencies("uniform", whole) == [10, 10, 10, 10]
    assert frequencies("stage-aware", whole) == [5, 6, 20, None]
    assert frequencies("reversed", whole) == [None, 20, 6, 5]
    assert frequencies("stage-aware", [{"delay": 2, "delays": (3, 2, 1, 0)}]) == [6]
    assert frequencies("stage-aware", [{}]) == [10]


def test_names_tell_what_differs() -> None:
    def name(**fields: Any) -> str:
        return method_of({"lr": 0.1, **fields}).name

    assert name(kind="basis-rotation") == "basis-rotation-2nd-bi"
    assert name(kind="basis-rotation", basis_source="1st", frequency=5) == "basis-rotation-1st-bi-every-5"
    assert name(kind="soap", frequency=None) == "soap-frozen"
    assert name(kind="galore", allocation="reversed") == "galore-reversed"


def test_misuse_is_one_helpful_line(unchecked) -> None:
    cases = [
        ({"source": "3rd"}, "source: got '3rd'; expected '1st', '2nd' or 'gradient'"),
        ({"source": lambda t: t}, "source: got .*; expected '1st', '2nd' or 'gradient' of a matrix"),
        ({"geometry": "odd"}, "geometry: got 'odd'; expected 'unilateral' or 'bilateral' or 'full'"),
        ({"frequency": 0}, "frequency: got 0; expected steps, at least 1, or none"),
        ({"estimate": "svd"}, "estimate: got 'svd'; expected 'power' or 'exact'"),
        ({"refresh": "never"}, "refresh: got 'never'; expected 'before' or 'after'"),
        ({"momentum": "none"}, "momentum: got 'none'; expected 'original' or 'rotated'"),
        ({"beta1": 1.0}, r"beta1: got 1.0; expected a number in \[0, 1\)"),
        ({"covariance_beta": -1}, r"covariance_beta: got -1; expected a number in \[0, 1\)"),
    ]
    for options, message in cases:
        with pytest.raises(SpecError, match=message) as caught:
            RotatedAdam(**options)
        assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match="source: got 'hessian'; expected 'gradient-covariance' or a function"):
        full_rotation("hessian")
