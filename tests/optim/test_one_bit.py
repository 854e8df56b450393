"""The two-sided mean of signs against a literal derivation, its invariants and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.comm import SimulatedCommunicator
from syncline.errors import SpecError
from syncline.optim import OneBitMean
from syncline.optim.one_bit_adam import OWNER_ERROR, WORKER_ERROR
from tests.optim.given import gaussian

SCALES = ["rms", "mean"]


def scale_of(y: np.ndarray, scale: str) -> float:
    if not y.size:
        return 0.0
    return float(np.sqrt(np.mean(y**2)) if scale == "rms" else np.mean(np.abs(y)))


class LiteralMean:
    """One tensor, with loops over workers and owners of chunks."""

    def __init__(self, count: int, workers: int, scale: str) -> None:
        self.scale, self.workers, self.chunk = scale, workers, math.ceil(count / workers)
        self.errors = [np.zeros(count) for _ in range(workers)]
        self.owners = [np.zeros(len(self.part(np.zeros(count), owner))) for owner in range(workers)]

    def part(self, x: np.ndarray, owner: int) -> np.ndarray:
        return x[owner * self.chunk : (owner + 1) * self.chunk]

    def compress(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q = scale_of(y, self.scale) * np.where(y >= 0, 1.0, -1.0)
        return q, y - q

    def mean(self, xs: list[np.ndarray]) -> np.ndarray:
        sent = []
        for worker, x in enumerate(xs):
            q, self.errors[worker] = self.compress(x + self.errors[worker])
            sent.append(q)
        whole = []
        for owner in range(self.workers):
            z = sum(self.part(q, owner) for q in sent) / self.workers + self.owners[owner]
            q, self.owners[owner] = self.compress(z)
            whole.append(q)
        return np.concatenate(whole)


def started(one_bit: OneBitMean, xs: list[torch.Tensor], workers: int) -> list[dict[str, torch.Tensor]]:
    return [one_bit.init(x, workers) for x in xs]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("workers", [1, 3, 4])
def test_the_mean_from_its_formula(scale: str, workers: int) -> None:
    """Tensors of several shapes in one call, over several rounds: results and all errors."""
    shapes = [(7,), (3, 5), (), (2,), (4, 3, 2)]
    one_bit, comm = OneBitMean(scale), SimulatedCommunicator(workers)
    literal = [LiteralMean(math.prod(shape), workers, scale) for shape in shapes]
    states = None
    for t in range(5):
        xs = [gaussian(workers, *shape, seed=10 * t + i) for i, shape in enumerate(shapes)]
        states = states or started(one_bit, xs, workers)
        for x, mean, state, plain in zip(xs, one_bit.mean(xs, states, comm), states, literal, strict=True):
            expected = plain.mean(list(x.reshape(workers, -1).numpy()))
            for row in mean.reshape(workers, -1).numpy():
                np.testing.assert_allclose(row, expected, atol=1e-12)
            np.testing.assert_allclose(state[WORKER_ERROR].reshape(workers, -1).numpy(), plain.errors, atol=1e-12)
            for owner, error in enumerate(plain.owners):
                held = state[OWNER_ERROR][owner].numpy()
                np.testing.assert_allclose(held[: len(error)], error, atol=1e-12)
                assert not held[len(error) :].any()  # what pads a chunk is never owed


@given(
    st.sampled_from(SCALES), st.integers(1, 6), st.integers(1, 3), st.lists(st.integers(0, 20), min_size=1, max_size=3)
)
def test_nothing_is_lost_only_late(scale: str, workers: int, replicas: int, counts: list[int]) -> None:
    """All that was received and all that is owed add up to the means of all that was given."""
    one_bit, comm = OneBitMean(scale), SimulatedCommunicator(workers, replicas=replicas)
    rows, counts = workers * replicas, [count + 1 for count in counts]
    rounds = [[gaussian(rows, count, seed=7 * t + count) for count in counts] for t in range(4)]
    states = started(one_bit, rounds[0], workers)
    received = [sum(parts) for parts in zip(*(one_bit.mean(xs, states, comm) for xs in rounds), strict=True)]
    for number, count in enumerate(counts):
        given_ = sum(xs[number] for xs in rounds).unflatten(0, (replicas, workers)).mean(1)
        owed = states[number][WORKER_ERROR].unflatten(0, (replicas, workers)).mean(1)
        owed = owed + states[number][OWNER_ERROR].view(replicas, -1)[:, :count]
        for worker in range(workers):
            own = received[number].unflatten(0, (replicas, workers))[:, worker]
            torch.testing.assert_close(own + owed, given_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_what_two_values_can_say_is_exact(scale: str) -> None:
    """Numbers on their own, and vectors of one size: the mean itself, and no error."""
    comm, one_bit = SimulatedCommunicator(4), OneBitMean(scale)
    alone = gaussian(4)
    signs = 3.0 * gaussian(1, 11).sign().expand(4, 11)
    states = started(one_bit, [alone, signs], 4)
    for _ in range(2):
        means = one_bit.mean([alone, signs], states, comm)
        torch.testing.assert_close(means[0], alone.mean().expand(4), rtol=0, atol=1e-15)
        torch.testing.assert_close(means[1], signs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("count", [100, 70_000])  # float16 has no number as large as the latter
def test_small_numbers_survive_half_precision(count: int, scale: str, dtype: torch.dtype) -> None:
    x = torch.tensor([1e-4, -1e-4], dtype=dtype).repeat(2, count // 2)
    mean = OneBitMean(scale)
    state = mean.init(x, 2)
    (got,) = mean.mean([x], [state], SimulatedCommunicator(2))
    assert torch.equal(got, x)
    assert not state[WORKER_ERROR].any()


def test_zero_counts_as_plus() -> None:
    one_bit, x = OneBitMean("mean"), torch.tensor([[0.0, 0.0, -2.0, 0.0]])
    (mean,) = one_bit.mean([x], started(one_bit, [x], 1), SimulatedCommunicator(1))
    assert mean.tolist() == [[0.5, 0.5, -0.5, 0.5]]


def left_over(x: torch.Tensor, scale: str) -> float:
    """What one worker's compression leaves of a vector, relative to its length."""
    one_bit = OneBitMean(scale)
    states = started(one_bit, [x], 1)
    one_bit.mean([x], states, SimulatedCommunicator(1))
    return float(states[0][WORKER_ERROR].norm() / x.norm())


@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 1000))
def test_scales_leave_what_their_formulas_say(count: int, power: int, seed: int) -> None:
    """With ``a = ||y||_1 / (sqrt(n) ||y||_2)``: ``mean`` leaves ``sqrt(1 - a^2)``, ``rms`` ``sqrt(2 (1 - a))``.

    So ``rms`` leaves more than there was where a few numbers are large (a < 1/2), ``mean`` never does.
    """
    x = gaussian(1, count, seed=seed) ** (2 * power + 1)
    a = float(x.abs().sum() / (math.sqrt(count) * x.norm()))
    assert left_over(x, "mean") == pytest.approx(math.sqrt(max(0.0, 1 - a * a)), abs=1e-6)
    assert left_over(x, "rms") == pytest.approx(math.sqrt(max(0.0, 2 - 2 * a)), abs=1e-6)


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
def test_bytes_are_signs_and_scales_of_whole_chunks(workers: int) -> None:
    counts, one_bit, comm = [1, 9, 100], OneBitMean(), SimulatedCommunicator(workers)
    xs = [gaussian(workers, count).float() for count in counts]
    one_bit.mean(xs, started(one_bit, xs, workers), comm)
    owned = sum(math.ceil(math.ceil(count / workers) / 8) + 4 for count in counts)
    assert [(r.collective, r.payload_bytes) for r in comm.ledger.records] == [
        ("all_to_all", workers * owned),
        ("all_gather", owned),
    ]


def test_an_unknown_scale_is_refused(unchecked) -> None:
    with pytest.raises(SpecError, match="scale: got 'max'; expected 'rms' or 'mean'"):
        OneBitMean("max")
