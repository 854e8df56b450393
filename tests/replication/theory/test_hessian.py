"""(1,1)-norms and swings against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from replication.theory.hessian import (
    angle_to_axes_deg,
    dominant_eigenvector,
    least_norm_11,
    misalignment,
    norm_11,
    oscillation,
)
from syncline.errors import SpecError

seeds = st.integers(0, 2**31 - 1)


def symmetric(seed, d):
    x = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x + x.T


def orthogonal(seed, d):
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).Q


@settings(max_examples=60, deadline=None)
@given(seeds, seeds, st.integers(1, 6))
def test_the_least_norm_is_below_that_of_every_rotation_and_reached_in_the_eigenbasis(seed, turn, d):
    """Indefinite matrices included."""
    h = symmetric(seed, d)
    least, q, basis = least_norm_11(h), orthogonal(turn, d), torch.linalg.eigh(h).eigenvectors
    assert norm_11(q.T @ h @ q) >= least * (1 - 1e-12)
    assert norm_11(basis.T @ h @ basis).item() == pytest.approx(least.item())
    assert 1 - 1e-12 <= misalignment(h) <= d + 1e-12


@pytest.mark.parametrize("angle", [0.0, 10.0, 22.5, 30.0, 45.0])
def test_misalignment_of_two_eigenvalues_in_closed_form(angle):
    """diag(a, b) turned by phi has a trace of a + b and ``(a - b) sin(2 phi) / 2`` twice beside it."""
    a, b, phi = 20.0, 1.0, math.radians(angle)
    q = torch.tensor([[math.cos(phi), -math.sin(phi)], [math.sin(phi), math.cos(phi)]], dtype=torch.float64)
    h = (q * torch.tensor([a, b], dtype=torch.float64)) @ q.T
    assert misalignment(h).item() == pytest.approx(1 + (a - b) * math.sin(2 * phi) / (a + b))
    assert angle_to_axes_deg(h).item() == pytest.approx(angle, abs=1e-5)


def test_a_rank_one_matrix_of_equal_entries_is_as_misaligned_as_can_be():
    z = torch.full((5,), 5**-0.5, dtype=torch.float64)
    assert misalignment(torch.outer(z, z)).item() == pytest.approx(5.0)


def test_the_dominant_eigenvector_is_that_of_the_largest_magnitude_in_batches():
    q = orthogonal(3, 4)
    h = torch.stack(
        [(q * torch.tensor(values, dtype=torch.float64)) @ q.T for values in ([-9.0, 5, 1, 0], [1.0, 2, 3, 0])]
    )
    vectors = dominant_eigenvector(h)
    for vector, column in zip(vectors, (q[:, 0], q[:, 2]), strict=True):
        assert abs(vector @ column).item() == pytest.approx(1.0)
        assert vector[vector.abs().argmax()] > 0


@given(st.integers(2, 20), st.floats(0.1, 10))
def test_straight_steps_undo_nothing_and_steps_to_and_fro_nearly_all(steps, size):
    along = torch.tensor([0.0, size], dtype=torch.float64)
    straight = oscillation(along.repeat(steps, 1), torch.tensor([0.0, 3.0], dtype=torch.float64))
    assert straight.undone.item() == pytest.approx(0.0, abs=1e-12)
    assert straight.reversals.item() == 0
    assert straight.rms.item() == pytest.approx(size)
    signs = (-1.0) ** torch.arange(steps, dtype=torch.float64)[:, None]
    swinging = oscillation(along * signs, along)
    assert swinging.undone.item() == pytest.approx(1 - (steps % 2) / steps)
    assert swinging.reversals.item() == 1


def test_no_way_at_all_is_no_swing():
    still = oscillation(torch.zeros(3, 2), torch.tensor([1.0, 0.0]))
    assert [x.item() for x in still] == [0, 0, 0]


def test_one_update_tells_no_swing():
    with pytest.raises(SpecError, match="updates: got"):
        oscillation(torch.ones(1, 2), torch.ones(2))
