"""Blocks and bases: round trips for any shape, bases against SciPy and the identity, what top-k leaves out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.optim.demo import (
    block_shape,
    change_basis,
    dct_matrix,
    dct_matrix_on,
    from_blocks,
    largest_divisor,
    random_matrix,
    to_blocks,
)

lengths = st.sampled_from([1, 2, 3, 4, 6, 7, 11, 12, 13, 16, 18])
shapes = st.lists(lengths, min_size=0, max_size=3).map(tuple)
sizes = pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 64])


@given(st.integers(1, 500), st.integers(1, 100))
def test_largest_divisor(length: int, at_most: int) -> None:
    assert largest_divisor(length, at_most) == max(d for d in range(1, at_most + 1) if length % d == 0)


@given(shapes, st.integers(1, 8), st.integers(1, 3))
def test_blocks_hold_every_entry_once(shape: tuple[int, ...], at_most: int, rows: int) -> None:
    x = torch.arange(rows * math.prod(shape)).view(rows, *shape)
    sizes = block_shape(shape, at_most)
    blocks = to_blocks(x, sizes)
    assert blocks.shape == (rows, math.prod(shape) // math.prod(sizes), *sizes)
    assert torch.equal(from_blocks(blocks, shape), x)
    assert torch.equal(blocks[0].flatten().sort().values, x[0].flatten())


def test_a_block_is_a_rectangle() -> None:
    x = torch.arange(24).view(1, 4, 6)
    assert to_blocks(x, (2, 3))[0, 3].tolist() == [[15, 16, 17], [21, 22, 23]]


@sizes
def test_dct_is_scipys_orthonormal_type_two(n: int) -> None:
    x = np.random.default_rng(0).standard_normal((5, n))
    expected = scipy.fft.dct(x, type=2, norm="ortho", axis=-1)
    np.testing.assert_allclose(x @ dct_matrix(n).numpy().T, expected, atol=1e-12)


def test_dct_is_rounded_once_and_stays_where_it_is() -> None:
    cpu = torch.device("cpu")
    rounded = dct_matrix_on(8, torch.float32, cpu)
    assert torch.equal(rounded, dct_matrix(8).float()) and dct_matrix_on(8, torch.float32, cpu) is rounded
    meta = dct_matrix_on(8, torch.bfloat16, torch.device("meta"))
    assert (meta.dtype, meta.device.type) == (torch.bfloat16, "meta")


def test_transform_is_scipys_over_all_axes() -> None:
    x = torch.randn(2, 3, 4, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    got = change_basis(x, [dct_matrix(4), dct_matrix(6), dct_matrix(5)])
    np.testing.assert_allclose(got.numpy(), scipy.fft.dctn(x.numpy(), axes=(2, 3, 4), norm="ortho"), atol=1e-12)


@sizes
@pytest.mark.parametrize("basis", ["dct", "random"])
def test_bases_are_orthonormal(n: int, basis: str) -> None:
    c = dct_matrix(n) if basis == "dct" else random_matrix(n, 3)
    torch.testing.assert_close(c @ c.mT, torch.eye(n, dtype=torch.float64), rtol=0, atol=1e-12)


def test_random_bases_are_of_their_step() -> None:
    """Drawn by every worker for itself, so the same on each call, whatever else was drawn; new in each step."""
    first = random_matrix(5, 3)
    torch.manual_seed(1)
    assert torch.equal(random_matrix(5, 3), first)
    assert not torch.allclose(random_matrix(5, 4), first)


@given(shapes, st.integers(1, 8), st.sampled_from(["dct", "random"]))
def test_transform_then_its_inverse_is_the_identity(shape: tuple[int, ...], at_most: int, basis: str) -> None:
    x = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sizes = block_shape(shape, at_most)
    matrices = [dct_matrix(n) if basis == "dct" else random_matrix(n, 0) for n in sizes]
    there = change_basis(to_blocks(x, sizes), matrices)
    back = from_blocks(change_basis(there, [c.mT for c in matrices]), shape)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-12)
    torch.testing.assert_close(there.norm(), x.norm())


def left_out(x: torch.Tensor, k: int) -> float:
    """``||x - topk(x)||``, with the largest by magnitude kept."""
    kept = torch.zeros_like(x).scatter_(-1, x.abs().topk(k).indices, 1.0)
    return float((x * (1 - kept)).norm())


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.data())
def test_top_k_leaves_out_at_most_its_share(values: list[float], data: st.DataObject) -> None:
    """DeMo, Lemma 8.1: ``||x - topk(x)|| <= sqrt(1 - k/d) ||x||``."""
    x = torch.tensor(values, dtype=torch.float64)
    k = data.draw(st.integers(1, len(values)))
    assert left_out(x, k) <= math.sqrt(1 - k / len(values)) * float(x.norm()) * (1 + 1e-12)


@given(st.lists(st.sampled_from([-2.0, 2.0]), min_size=1, max_size=30), st.data())
def test_the_bound_is_sharp_for_equal_magnitudes(values: list[float], data: st.DataObject) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    k = data.draw(st.integers(1, len(values)))
    assert left_out(x, k) == pytest.approx(math.sqrt(1 - k / len(values)) * float(x.norm()), abs=1e-12)
