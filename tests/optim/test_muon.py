"""Muon against a literal derivation, torch's own and its limits."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from syncline.errors import SpecError
from syncline.methods import DDP, MTDAO, Local
from syncline.optim import adam, muon, sgdm
from syncline.optim.matrices import shape_factor
from tests.optim.given import assert_same, gaussian, gradients, run

M, LR, MU = 3, 0.1, 0.95


def quintic(x: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz steps as a polynomial of the singular values."""
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    s = s / (s.norm() + 1e-7)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ vh


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_muon_from_its_formula(nesterov: bool, shape: tuple[int, int]) -> None:
    given = gradients(5, M, shape)
    got = run(partial(DDP, lr=LR, rule=muon(MU, nesterov=nesterov)), given)
    x, u = torch.zeros(shape).double(), torch.zeros(shape).double()
    for t, (g,) in enumerate(given):
        mean = g.mean(0)
        u = MU * u + (1 - MU) * mean
        mixture = (1 - MU) * mean + MU * u if nesterov else u
        x = x - LR * max(1, shape[0] / shape[1]) ** 0.5 * quintic(mixture)
        for worker in got.path[t][0]:
            torch.testing.assert_close(worker, x, rtol=1e-9, atol=1e-10)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
@pytest.mark.parametrize("adjust_lr", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_is_torchs_within_its_bfloat16(adjust_lr: str, nesterov: bool) -> None:
    """Torch iterates in bfloat16, of 8 bits: its direction is within a few hundredths of ours."""
    given = [[g.float() for g in step] for step in gradients(6, 1, (12, 8), (8, 12))]
    got = run(partial(DDP, lr=1.0, rule=muon(MU, nesterov=nesterov, adjust_lr=adjust_lr)), given)
    params = [torch.nn.Parameter(torch.zeros_like(g[0])) for g in given[0]]
    theirs = torch.optim.Muon(params, lr=1.0, weight_decay=0.0, momentum=MU, nesterov=nesterov, adjust_lr_fn=adjust_lr)
    for t, step in enumerate(given):
        before = [p.detach().clone() for p in params]
        for p, g in zip(params, step, strict=True):
            p.grad = g[0].clone()
        theirs.step()
        for number, p in enumerate(params):
            moved = got.path[t][number][0] - (got.path[t - 1][number][0] if t else 0)
            torch_moved = p.detach() - before[number]
            assert float((moved - torch_moved).norm() / torch_moved.norm()) < 0.05


def test_scales_of_a_shape() -> None:
    assert shape_factor(8, 2, "original") == 2.0
    assert shape_factor(2, 8, "original") == 1.0
    assert shape_factor(2, 8, "spectral") == 0.5
    assert shape_factor(100, 4, "match_rms_adamw") == pytest.approx(2.0)
    assert shape_factor(3, 9, "none") == 1.0


def test_what_is_no_matrix_is_adams() -> None:
    given = gradients(4, M, (6, 4), (5,), ())
    together = run(partial(DDP, lr=0.3, other_lr=LR, rule=muon()), given)
    others = run(partial(DDP, lr=LR, rule=adam()), [step[1:] for step in given])
    for one, other in zip(together.path, others.path, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one[1:], other, strict=True))


def test_the_other_rule_can_be_chosen() -> None:
    given = gradients(3, M, (5,))
    assert_same(
        run(partial(DDP, lr=LR, rule=muon(other_rule=sgdm())), given), run(partial(DDP, lr=LR, rule=sgdm()), given)
    )


def test_a_scaled_orthogonal_gradient_moves_by_the_quintics_fixed_value() -> None:
    """All singular values of an orthogonal matrix are equal, and go where the quintic sends ``1 / sqrt(n)``."""
    q, _ = torch.linalg.qr(gaussian(4, 4))
    value = 1 / math.sqrt(4)
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    got = run(partial(DDP, lr=1.0, rule=muon(0.0)), [[(9.0 * q).unsqueeze(0)]])
    torch.testing.assert_close(got.params[0][0].detach(), -value * q, rtol=1e-5, atol=1e-6)


def test_mt_dao_muon_with_its_own_mixture_is_local_muon() -> None:
    """Nesterov's mixture is ``omega = mu`` of momenta that are not corrected for their start."""
    given = gradients(9, M, (6, 4), (5,))
    options = {"betas": (MU,), "omegas": (MU,), "period": 4}
    mixed = run(partial(MTDAO, lr=LR, base="muon", bias_correction=False, **options), given)
    local = run(partial(Local, lr=LR, rule=muon(MU), period=4), given)
    for one, other in zip(mixed.path, local.path, strict=True):
        torch.testing.assert_close(one[0], other[0])
    assert {r.step for r in mixed.records} == {3, 7}
    assert "second_moment" not in mixed.method.state[mixed.params[0]]


def test_misuse_is_one_helpful_line(unchecked) -> None:
    with pytest.raises(SpecError, match=r"betas.0: got 1.0; expected a number in \[0, 1\)"):
        muon(1.0)
    with pytest.raises(SpecError, match="adjust_lr: got 'odd'; expected 'original', 'match_rms_adamw', ") as caught:
        run(partial(DDP, lr=LR, rule=muon(adjust_lr="odd")), gradients(1, 1, (2, 2)))
    assert "\n" not in str(caught.value)
