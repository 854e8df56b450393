"""Compressors: what arrives, of whom, in how many bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from syncline.comm import ShapesCommunicator, SimulatedCommunicator, SparsePairs
from syncline.costmodel import TensorShape
from syncline.costmodel.traffic.packing import kept_entries
from syncline.errors import SpecError
from syncline.methods.parts.compressors import (
    BlockTopKCompressor,
    CompressorBase,
    LpCompressor,
    OneBitCompressor,
    QSGDCompressor,
    TopKCompressor,
)
from syncline.optim import (
    QSGD,
    BlockTopK,
    CoefficientMean,
    CompressedMean,
    Compressor,
    EveryStep,
    LpMean,
    Method,
    OneBit,
    TopK,
    demo_rule,
    power_mean,
    quantisers,
)
from syncline.optim.compressors import CompressedMeans
from tests.optim.given import assert_same, gaussian, gradients, run

EXACT = SparsePairs(32, "fp64")
COMPRESSORS = [
    TopK(0.1), TopK(0.3, SparsePairs(0, "bf16")), LpMean(), LpMean(5, math.inf), QSGD(), QSGD(3), BlockTopK(3, 4),
    BlockTopK(2, 7, "random", SparsePairs(0, "bf16")), BlockTopK(4, 8, "identity"), OneBit(),
]  # fmt: skip
SHAPES = ((7, 5), (11,), ())


def mean_of(compressor: Compressor, xs: list[Tensor], *, replicas: int = 1, t: int = 0) -> CompressedMeans:
    comm = SimulatedCommunicator(xs[0].shape[0] // replicas, replicas)
    return compressor.mean(xs, [str(i) for i in range(len(xs))], comm, t, "x")


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
def test_the_mean_is_of_what_arrives_of_each(compressor: Compressor) -> None:
    xs = [gaussian(4, *shape, seed=i) for i, shape in enumerate(SHAPES)]
    means, own = mean_of(compressor, xs)
    for x, mean, arrived in zip(xs, means, own, strict=True):
        assert mean.shape == arrived.shape == x.shape
        torch.testing.assert_close(mean, arrived.mean(0, keepdim=True).expand_as(x), rtol=1e-12, atol=1e-14)
        assert torch.equal(mean, mean[:1].expand_as(mean))


def sent_bytes(compressor: Compressor, shape: tuple[int, ...]) -> int:
    """Return the bytes that one of two workers sends for a tensor of this shape, as the ledger records them."""
    comm = ShapesCommunicator(2)
    compressor.mean([torch.empty(1, *shape, device="meta")], ["a"], comm, 0, "x")
    return comm.ledger.payload_bytes()


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
def test_bytes_are_as_said_in_all_worlds(compressor: Compressor) -> None:
    xs = [gaussian(4, *shape).float() for shape in SHAPES]
    expected = sum(sent_bytes(compressor, shape) for shape in SHAPES)
    meta = [torch.empty(1, *shape, device="meta") for shape in SHAPES]
    for comm, tensors in ((SimulatedCommunicator(4), xs), (ShapesCommunicator(4), meta)):
        compressor.mean(tensors, ["a", "b", "c"], comm, 0, "x")
        assert comm.ledger.payload_bytes() == expected
        assert {r.label for r in comm.ledger.records} == {"x", "scales"} if isinstance(compressor, LpMean) else {"x"}


@pytest.mark.parametrize("spec", [
    TopKCompressor(), TopKCompressor(fraction=0.3, index_bits=0, value_format="bf16"),
    TopKCompressor(fraction=1, index_bits=16, value_format="fp16"),
    *(LpCompressor(bits=bits) for bits in (5, 8, 12)),
    *(QSGDCompressor(bits=bits) for bits in (2, 3, 8)), OneBitCompressor(),
    BlockTopKCompressor(k=3, chunk=8), BlockTopKCompressor(index_bits=0, value_format="bf16"),
], ids=lambda spec: f"{spec.kind} {spec.model_dump(exclude={'kind', 'error_feedback'})}")  # fmt: skip
def test_the_spec_counts_as_the_compressor_does(spec: CompressorBase) -> None:
    for shape in ((1,), (2,), (7,), (100,), (4096,), (12, 20), (3, 64, 10)):
        assert sum(nbytes for *_, nbytes in spec.calls(TensorShape("", shape), 2)) == sent_bytes(spec.build(), shape)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
def test_replicas_and_batches_change_nothing(compressor: Compressor) -> None:
    one, two = gaussian(4, 6, 3, seed=1), gaussian(4, 6, 3, seed=2)
    both = mean_of(compressor, [torch.cat([one, two])], replicas=2)
    for number, x in enumerate((one, two)):
        alone = mean_of(compressor, [x])
        rows = slice(4 * number, 4 * number + 4)
        torch.testing.assert_close(both.means[0][rows], alone.means[0], rtol=1e-12, atol=0)
        torch.testing.assert_close(both.sent[0][rows], alone.sent[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
def test_nothing_stays_nothing(compressor: Compressor) -> None:
    (mean,), (own,) = mean_of(compressor, [torch.zeros(3, 8)])
    assert torch.equal(mean, torch.zeros(3, 8)) and torch.equal(own, torch.zeros(3, 8))


# Top-k.


@given(n=st.integers(1, 60), fraction=st.floats(0.01, 1), seed=st.integers(0, 9))
def test_top_k_keeps_the_largest_as_they_are(n: int, fraction: float, seed: int) -> None:
    x = gaussian(2, n, seed=seed)
    compressor = TopK(fraction, EXACT)
    (own,) = mean_of(compressor, [x]).sent
    kept = own != 0
    assert kept.sum(1).tolist() == [kept_entries(fraction, n)] * 2
    assert torch.equal(own[kept], x[kept])
    for row, on in zip(x.abs(), kept, strict=True):
        assert n == kept_entries(fraction, n) or row[on].min() >= row[~on].max()


@pytest.mark.parametrize(
    ("fraction", "count", "kept"), [(0.07, 100, 7), (0.01, 3, 1), (0.5, 3, 2), (1.0, 9, 9), (0.1, 30, 3)]
)
def test_how_many_are_kept(fraction: float, count: int, kept: int) -> None:
    assert kept_entries(fraction, count) == kept


def test_a_sender_alone_counts_as_one_of_all() -> None:
    x = torch.tensor([[8.0, 1.0], [1.0, 2.0], [0.5, 4.0], [1.0, 6.0]])
    (mean,) = mean_of(TopK(0.5), [x]).means
    assert mean[0].tolist() == [8 / 4, (2 + 4 + 6) / 4]


# L_p.


def test_lp_mean_by_hand() -> None:
    """4 workers and 4 bits: one level, so -1, 0 or 1 in units of twice the largest mean magnitude."""
    x = torch.tensor([[1.0, -3.0], [0.5, 0.5], [4.0, 0.0], [-1.0, 2.0]])  # mean magnitudes 2, 0.5, 2, 1.5
    (mean,), (own,) = mean_of(LpMean(4), [x])
    assert own.tolist() == [[0.0, -4.0], [0.0, 0.0], [4.0, 0.0], [0.0, 0.0]]  # 0.25, -0.75, 0.125, 1, 0.5 to even
    assert mean[0].tolist() == [1.0, -1.0]


@given(bits=st.integers(4, 14), p=st.sampled_from([0.5, 1.0, 2.0, math.inf]), seed=st.integers(0, 9))
def test_lp_rounds_to_the_nearest_below_the_cut_and_never_enlarges_an_error(bits: int, p: float, seed: int) -> None:
    x = gaussian(3, 20, seed=seed).float()
    (own,) = mean_of(LpMean(bits, p), [x]).sent
    scale = float(power_mean(x, p).max())
    unit = 2 * scale / ((2**bits - 1) // 6)
    below = x.abs() <= 2 * scale
    assert (x - own)[below].abs().max() <= unit / 2 + 1e-6 * scale
    assert bool(((x - own).abs() <= x.abs() + 1e-6 * scale).all())  # why its error feedback cannot grow by itself


def test_more_bits_come_near_the_mean() -> None:
    x = gaussian(4, 50)
    errors = [float((mean_of(LpMean(b, math.inf), [x]).means[0] - x.mean(0)).abs().max()) for b in (4, 8, 16, 24)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [8, 16, 20, 31])
@pytest.mark.parametrize("workers", [1, 3, 127])
def test_what_all_workers_cut_off_does_not_overflow_in_any_type(workers: int, bits: int, dtype: torch.dtype) -> None:
    x = torch.tensor([100.0, -100.0] + [0.0] * 8, dtype=dtype).expand(workers, -1)
    (mean,), (own,) = mean_of(LpMean(bits), [x])
    for arrived in (mean, own):
        torch.testing.assert_close(arrived, x * 0.4, rtol=0.01, atol=0.0)  # twice the mean of 20


def test_too_many_workers_for_the_width_are_told_which_would_do() -> None:
    for workers, bits in ((8, 4), (200, 8), (128, 8)):
        with pytest.raises(SpecError, match="bits") as caught:
            LpMean(bits).check(workers)
        needed = int(caught.value.expected.split()[2])
        LpMean(needed).check(workers)
        with pytest.raises(SpecError):
            LpMean(needed - 1).check(workers)


# QSGD.


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_qsgd_has_the_exact_expectation(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over evenly spread noise is exact to the spacing: rounding up happens for the right share of it."""
    x, draws = gaussian(1, 12).float(), 4096
    spread = ((torch.arange(draws) + 0.5) / draws).double()
    total = torch.zeros_like(x)
    monkeypatch.setattr(quantisers, "compiled_loops", lambda _: None)
    for u in spread[:: draws // 256]:
        monkeypatch.setattr(quantisers, "uniform", lambda *_, u=u: torch.full((1, 12), float(u)))
        total += mean_of(QSGD(bits), [x]).means[0]
    step = float(x.norm()) / (2 ** (bits - 1) - 1)
    assert float((total / 256 - x).abs().max()) <= step / 256 * 1.01


def test_qsgd_s_noise_averages_out_and_its_variance_is_bounded() -> None:
    x, n, draws, bits = gaussian(1, 64), 64, 2000, 4
    arrived = mean_of(QSGD(bits), [x.expand(draws, n)]).sent[0]  # each worker draws its own
    s = 2 ** (bits - 1) - 1
    bound = min(n / s**2, math.sqrt(n) / s) * float(x.square().sum())
    assert float((arrived - x).square().sum(1).mean()) <= bound
    assert float((arrived.mean(0) - x).abs().max()) <= 5 * float(x.norm()) / s / 2 / math.sqrt(draws)


def test_qsgd_s_noise_differs_between_workers_tensors_and_steps_and_is_the_same_again() -> None:
    x = gaussian(1, 100).expand(3, 100)
    same, again, later = (mean_of(QSGD(), [x, x], t=t).sent for t in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(same, again, strict=True))
    flat = [*same[0], *same[1], *later[0]]
    assert all(not torch.equal(a, b) for i, a in enumerate(flat) for b in flat[:i])


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: TopK(0.0), "fraction"),
        (lambda: TopK(1.5), "fraction"),
        (lambda: LpMean(1), "bits"),
        (lambda: LpMean(8, 0.0), "p"),
        (lambda: QSGD(1), "bits"),
        (lambda: QSGD(17), "bits"),
        (lambda: mean_of(TopK(0.5, SparsePairs(16)), [torch.zeros(1, 70_000)]), "index_bits"),
    ],
)
def test_refusals(build, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        build()
    assert caught.value.path == field


# Coefficients of blocks, and signs.


def test_coefficients_are_those_of_a_library() -> None:
    """One block of a matrix by SciPy's transform: what arrives is the inverse of its largest coefficients."""
    x = gaussian(2, 8, 6)
    (own,) = mean_of(BlockTopK(5, 8, pairs=EXACT), [x]).sent
    for row, arrived in zip(x.numpy(), own.numpy(), strict=True):
        c = scipy.fft.dctn(row, norm="ortho")
        c[np.abs(c) < np.sort(np.abs(c).ravel())[-5]] = 0
        np.testing.assert_allclose(arrived, scipy.fft.idctn(c, norm="ortho"), atol=1e-12)


@pytest.mark.parametrize("basis", ["dct", "random", "identity"])
def test_all_coefficients_are_everything(basis: Any) -> None:
    x = gaussian(3, 8, 12)
    (mean,), (own,) = mean_of(BlockTopK(16, 4, basis, EXACT), [x])
    torch.testing.assert_close(own, x, rtol=0, atol=1e-12)
    torch.testing.assert_close(mean[0], x.mean(0), rtol=0, atol=1e-12)


def test_with_feedback_it_is_what_demo_sends_of_a_momentum_that_forgets_nothing() -> None:
    """Gradients through it, by SGD: DeMo without decay, whose sent part is taken out in full."""
    steps = gradients(12, 3, (8, 6), (5,))
    demo = CoefficientMean(3, 4, 1 - 1e-15, 1.0, average="all", pairs=EXACT)
    fed_back = CompressedMean(BlockTopK(3, 4, pairs=EXACT))
    assert_same(
        run(lambda p, **o: Method(p, 0.1, demo_rule("sgd"), EveryStep(), reducer=demo, **o), steps),
        run(lambda p, **o: Method(p, 0.1, demo_rule("sgd"), EveryStep(), reducer=fed_back, **o), steps),
    )


def test_one_bit_by_hand_and_what_is_left_is_shorter() -> None:
    x = torch.tensor([[3.0, -1.0, 0.0, 0.0], [-2.0, -2.0, -2.0, 2.0]]).double()
    (mean,), (own,) = mean_of(OneBit(), [x])
    assert own.tolist() == [[1.0, -1.0, 1.0, 1.0], [-2.0, -2.0, -2.0, 2.0]]
    assert mean[0].tolist() == [-0.5, -1.5, -0.5, 1.5]
    wide = gaussian(4, 50)
    (arrived,) = mean_of(OneBit(), [wide]).sent
    # ||x - C(x)||^2 = ||x||^2 - ||x||_1^2 / n
    left = wide.square().sum(1) - wide.abs().sum(1).square() / 50
    torch.testing.assert_close((wide - arrived).square().sum(1), left, rtol=1e-6, atol=0)
