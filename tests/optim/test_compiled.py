"""Compiled loops return what tensor operations return, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from syncline.acceleration import Kernels
from syncline.comm import SimulatedCommunicator, SparsePairs
from syncline.optim import QSGD, TopK
from syncline.optim import largest as loops
from syncline.optim.demo import Basis, Coefficients, MeanOver, loop_adds_like_products
from syncline.optim.largest import largest_indices
from syncline.optim.quantisers import mean_of_levels, qsgd_levels
from syncline.problems.random_draws import torch_generator

pytest.importorskip("syncline.optim.compiled")
LOADED, NEVER = (Kernels("syncline.optim.compiled", break_even_units=worth) for worth in (0, 2**62))


def both(of: Callable[[], object]) -> tuple[object, object]:
    """What it returns with compiled loops, and without."""
    out = []
    for kernels in (LOADED, NEVER):
        with patch.object(loops, "KERNELS", kernels):
            out.append(of())
    return out[0], out[1]


def normal(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch_generator(seed, "x")) * scale


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 99),
    n=st.integers(1, 3000),
    levels=st.sampled_from([1, 7, 127]),
    scale=st.sampled_from([1e-30, 1.0, 1e30]),
)
def test_levels_are_drawn_alike(seed: int, n: int, levels: int, scale: float) -> None:
    x = normal(3, n, seed=seed, scale=scale)
    x[1] = 0.0
    x[2, ::2] = 0.0
    (one, norm), (other, same) = both(lambda: qsgd_levels(x, levels, (0, 1, 5), "test", seed))  # type: ignore[misc]
    assert one.dtype == other.dtype and torch.equal(one, other) and torch.equal(norm, same)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(1, 500), workers=st.integers(1, 20), replicas=st.integers(1, 3))
def test_levels_are_averaged_alike(seed: int, n: int, workers: int, replicas: int) -> None:
    source = torch_generator(seed, "levels")
    integers = torch.randint(0, 15, (replicas, workers, n), generator=source, dtype=torch.uint8)
    units = torch.rand((replicas, workers, 1), generator=source)
    one, other = both(lambda: mean_of_levels(integers, units, 7))
    assert torch.equal(one, other)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(1, 5000), share=st.floats(0, 1), kinds=st.sampled_from([3, 50, 10**6]))
def test_the_largest_are_found_alike(seed: int, n: int, share: float, kinds: int) -> None:
    """Where entries are equal, too; what is not a number, and infinity, are larger than all."""
    x = torch.randint(-kinds, kinds + 1, (4, n), generator=torch_generator(seed, "entries")).float()
    x[1], x[2, 0], x[3, n // 2] = 0.0, torch.nan, -torch.inf
    one, other = both(lambda: largest_indices(x, max(1, int(share * n))))
    assert torch.equal(one, other)  # type: ignore[arg-type]


@pytest.mark.parametrize("compressor", [QSGD(), QSGD(8), TopK(0.1)], ids=repr)
def test_compressors_are_the_same(compressor: QSGD | TopK) -> None:
    xs = [normal(4, 7, 90, seed=1).mT, normal(4, 11, seed=2), normal(4, seed=3)]
    arrived = both(lambda: compressor.mean(xs, ["a", "b", "c"], SimulatedCommunicator(4), 3, "x"))
    for one, other in zip(*((*a.means, *a.sent) for a in arrived), strict=True):  # type: ignore[attr-defined]
        assert torch.equal(one, other)


@pytest.mark.parametrize("average", ["senders", "all"])
@pytest.mark.parametrize("basis", ["dct", "random", "identity"])
@pytest.mark.parametrize(
    ("shape", "k"),
    [
        ((64, 64), 32),
        ((128, 96), 32),
        ((10, 192), 5),
        ((192, 10), 32),
        ((7, 13), 200),
        ((3, 3), 1),
        ((64,), 4),
        ((2, 32, 32), 9),
    ],
)
@pytest.mark.parametrize("workers", [1, 4])
def test_coefficients_are_decoded_alike(
    basis: Basis, average: MeanOver, shape: tuple[int, ...], k: int, workers: int
) -> None:
    """Also of blocks with equal entries, of zeros and of what is not finite, and of both of two replicas."""
    x = normal(2 * workers, *shape, seed=1)
    x[0, ..., 0], x[-1, ..., -1] = 0.0, 1.0
    coefficients = Coefficients(k, 64, basis, SparsePairs(64, "fp32"))

    def decoded() -> tuple[Tensor, Tensor]:
        message, decode = coefficients.encode(x, 3)
        return decode(), coefficients.decode_mean(message.unflatten(0, (2, workers)), x, 3, average)

    for by_loops, by_products in zip(*both(decoded), strict=True):  # type: ignore[call-overload]
        assert torch.equal(by_loops, by_products)
    x[0], x[-1].view(-1)[0] = 0.0, torch.inf
    for by_loops, by_products in zip(*both(decoded), strict=True):  # type: ignore[call-overload]
        assert torch.equal(by_loops.isfinite(), by_products.isfinite())
        assert torch.equal(by_loops.nan_to_num(0, 0, 0), by_products.nan_to_num(0, 0, 0))


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="another library may add in another order")
def test_large_blocks_are_transformed_by_the_loop() -> None:
    assert loop_adds_like_products(64, (64, 64))


def test_they_are_for_single_precision_on_a_cpu() -> None:
    with patch.object(loops, "KERNELS", LOADED):
        assert loops.compiled_loops(torch.zeros(3)) is not None
        assert loops.compiled_loops(torch.zeros(3).double()) is None
        assert loops.compiled_loops(torch.zeros(3, device="meta")) is None
        assert loops.compiled_loops(torch.zeros(0)) is None
    with patch.object(loops, "KERNELS", NEVER):
        assert loops.compiled_loops(torch.zeros(3)) is None
