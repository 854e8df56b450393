"""Quantisers, which map tensors ``(R, *s)`` to small integers with one scale per row, and their random numbers.

Quantisers compute in single precision at least and return integers in the dtype of the tensor.

The random number at position i of a worker is the i-th output of the generator SplitMix64, whose initial state is a
function of names and of the worker. The numbers therefore do not depend on how workers are distributed over processes
and devices. Source: Steele, Lea & Flood, "Fast splittable pseudorandom number generators" (2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syncline.errors import SpecError
from syncline.optim.largest import compiled_loops
from syncline.seeds import seed64

_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
"""SplitMix64's increment of the state, and the shift and the multiplier of each round that mixes the bits of a state.
The constants are signed integers of 64 bits."""


def uniform(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Return random numbers ``(R, count)`` in [0, 1), float64 multiples of ``2**-53``, independent between workers.

    Args:
        workers: number of each row's worker.
        *names: names of the random stream, and the number of the step.
    """
    # A float64 has 53 bits in its mantissa, so that 11 of the 64 random bits are dropped.
    if device.type == "cpu":
        return torch.from_numpy(_shifted_bits(workers, count, names, drop=11, dtype=np.dtype(np.float64)))
    return _shift_right(_random_bits(workers, count, device, *names), 11).double() * 2.0**-53


def random_bools(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Return random booleans ``(R, count)``, true with probability 1/2; the arguments are those of ``uniform``."""
    if device.type == "cpu":
        return torch.from_numpy(_shifted_bits(workers, count, names, drop=63, dtype=np.dtype(np.bool_)))
    return _random_bits(workers, count, device, *names) < 0  # the highest of the 64 bits is the sign


def generator_states(workers: Sequence[int], *names: str | int) -> NDArray[np.uint64]:
    """Return the initial state of each worker's random generator, ``(R,)``, for a stream with these names."""
    x = np.array(workers, np.uint64) * np.uint64(_GAMMA % 2**64) + np.uint64(seed64(0, *names))
    for shift, multiplier in _MIX_ROUNDS:
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(multiplier % 2**64)
    return x ^ (x >> np.uint64(31))


def _random_bits(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Return 64 random bits of SplitMix64 per worker and position, ``(R, count)`` int64; see ``uniform``."""
    start = torch.from_numpy(generator_states(workers, *names).view(np.int64)).to(device).unsqueeze(1)
    x = start + torch.arange(1, count + 1, device=device) * _GAMMA
    for shift, multiplier in _MIX_ROUNDS:
        x = (x ^ _shift_right(x, shift)) * multiplier
    return x ^ _shift_right(x, 31)


CHUNK = 2**13
"""Number of random numbers that a CPU computes at once, so that they stay in its first cache."""


def _shifted_bits(
    workers: Sequence[int], count: int, names: tuple[str | int, ...], drop: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return the random bits of ``_random_bits`` without the lowest ``drop`` bits, ``(R, count)``, computed on the CPU.

    With the dtype float64 they are numbers in [0, 1); with bool they are false where all remaining bits are 0. The bits
    are computed in place, chunk by chunk.
    """
    numbers = np.empty((len(workers), count), dtype)
    mixed_bits, shifted_bits = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    increments = np.arange(1, CHUNK + 1, dtype=np.uint64) * np.uint64(_GAMMA % 2**64)
    for row, start in enumerate(generator_states(workers, *names).tolist()):
        for first in range(0, count, CHUNK):
            size = min(CHUNK, count - first)
            x, y = mixed_bits[:size], shifted_bits[:size]
            np.add(increments[:size], np.uint64((start + first * _GAMMA) % 2**64), out=x)
            for shift, multiplier in _MIX_ROUNDS:
                np.bitwise_xor(x, np.right_shift(x, np.uint64(shift), out=y), out=x)
                np.multiply(x, np.uint64(multiplier % 2**64), out=x)
            np.bitwise_xor(x, np.right_shift(x, np.uint64(31), out=y), out=x)
            np.right_shift(x, np.uint64(drop), out=x)
            part = numbers[row, first : first + size]
            if dtype == np.float64:
                np.multiply(x.view(np.int64), 2.0 ** (drop - 64), out=part)  # bit 63 is 0; signed converts faster
            else:
                np.not_equal(x, 0, out=part)
    return numbers


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Return int64 numbers shifted right by ``bits``, with zeros from the left; torch's shift copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def power_mean(x: Tensor, p: float) -> Tensor:
    """Return the power mean of the magnitudes of each row's entries: ``M_p = (mean |x|^p)^(1/p)``.

    ``p = inf`` is the maximum. ``p = 0`` is the geometric mean of the nonzero entries only, because a single zero would
    make it zero; for all other p zeros count.

    Args:
        x: tensors of the rows, ``(R, *s)``.
        p: the exponent, from 0 to ``math.inf``.

    Returns:
        The means ``(R, 1, .., 1)``; 0 for a row of zeros.

    Raises:
        SpecError: p is negative, or not a number.
    """
    return power_means([x], p)[:, 0].reshape(-1, *[1] * (x.ndim - 1))


def power_means(xs: Sequence[Tensor], p: float) -> Tensor:
    """Return the power means of several tensors ``(R, *s)`` as columns ``(R, len(xs))``, see ``power_mean``."""
    if not p >= 0:
        raise SpecError("p", p, "a number >= 0; inf for the maximum")
    xs_float = [at_least_fp32(x).reshape(x.shape[0], -1) for x in xs]
    if p == 2:
        return torch.stack([_root_mean_square(x) for x in xs_float], 1)
    magnitudes = [x.abs() for x in xs_float]
    if p == 0:
        return torch.stack([_geometric_mean(x) for x in magnitudes], 1)
    largest = torch.stack([x.amax(1) for x in magnitudes], 1)
    if p == math.inf:
        return largest
    # Logarithms of magnitudes over the largest one, so that no power overflows.
    logs_of_largest = torch.where(largest > 0, largest, 1.0).log().split(1, 1)
    logs = [x.log_().sub_(log) for x, log in zip(magnitudes, logs_of_largest, strict=True)]
    return largest * (_log_mean_exp(logs, p) / p).exp()


def _geometric_mean(x: Tensor) -> Tensor:
    """Return the geometric mean ``(R,)`` of the nonzero entries of each row of magnitudes ``(R, n)``."""
    is_nonzero = x > 0
    logs = torch.where(is_nonzero, x, torch.ones_like(x)).log().sum(1)
    return torch.where(is_nonzero.any(1), (logs / is_nonzero.sum(1).clamp(min=1)).exp(), 0.0)


SMALLEST_SAFE_NORM, LARGEST_SAFE_NORM = 1e-12, 1e18
"""Range of norms in which the squares of all relevant entries neither underflow nor overflow in single precision."""


def _root_mean_square(x: Tensor) -> Tensor:
    """Return the root mean square ``(R,)`` of each row ``(R, n)``, also where squares would overflow or underflow."""
    norm = torch.linalg.vector_norm(x, dim=1)
    in_range = (norm >= SMALLEST_SAFE_NORM) & (norm <= LARGEST_SAFE_NORM)
    # A GPU computes both norms, because reading ``in_range`` would make the host wait.
    if not (x.device.type == "cpu" and in_range.all()):
        largest = x.abs().amax(1)
        largest = torch.where(largest > 0, largest, 1.0)  # any divisor suits a row of zeros
        safe_norm = largest * torch.linalg.vector_norm(x / largest.unsqueeze(1), dim=1)
        norm = torch.where(in_range, norm, safe_norm)
    return norm / math.sqrt(max(1, x.shape[1]))


SMALL_P = 0.1
"""Power below which ``_log_mean_exp`` subtracts 1 from powers, because all are near 1 and would lose digits."""


def _log_mean_exp(logs: Sequence[Tensor], p: float) -> Tensor:
    """Return ``log(mean(exp(p x)))`` of each row of each tensor x, one column per tensor, ``(R, len(logs))``.

    The mean is over the n elements of a row. A row of ``-inf`` gives a finite number. The tensors are overwritten.

    Args:
        logs: tensors ``(R, n)`` of logarithms; the largest of a row must be 0.
        p: the power.
    """
    if p != 1:
        logs = [x.mul_(p) for x in logs]
    # For a small p the mean is close to 1, so that its difference from 1 has more correct digits.
    if p >= SMALL_P:
        mean = torch.stack([x.exp_().mean(1) for x in logs], 1)
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()
    difference = torch.stack([x.expm1_().mean(1) for x in logs], 1)
    return torch.log1p(difference.clamp(min=torch.finfo(difference.dtype).eps - 1))


def quantise_lp(x: Tensor, levels: int, p: float) -> Tensor:
    """Return the Lp quantisation ``clamp(round(x s / (2 M_p(x))), -s, s)``, which maps the mean magnitude to s / 2.

    M_p is ``power_mean``. Entries above twice the mean are cut off, so that outliers do not change the scale of the
    others. For infinite p no entry is cut off, and half of the range stays unused.

    Args:
        x: tensors of the rows, ``(R, *s)``.
        levels: s, the largest integer.
        p: exponent of the power mean, see ``power_mean``.

    Raises:
        SpecError: ``p`` is negative, or ``levels`` is below 1 or too large for the dtype of ``x``.

    Source: Lion Cub, equation 1.
    """
    scaled = at_least_fp32(x) / power_mean(x, p) * (checked_levels(levels, x) / 2)
    return keep_zeros(scaled, x).round().clamp(-levels, levels).to(x.dtype)


def quantise_max(x: Tensor, levels: int, uniform: Tensor) -> Tensor:
    """Return ``floor(x s / max|x| + u)``: stochastic rounding over the whole range, with expectation ``x s / max|x|``.

    Args:
        x: tensors of the R rows, ``(R, ...)``.
        levels: s, the largest integer.
        uniform: random numbers u in [0, 1), with the shape of x; with 1/2, numbers are rounded to the nearest integer.

    Raises:
        SpecError: ``levels`` is below 1 or too large for the dtype of ``x``.

    Source: Lion Cub, section 2 (Q_inf).
    """
    scaled = at_least_fp32(x) / power_mean(x, p=math.inf) * checked_levels(levels, x)
    return _round_stochastically(keep_zeros(scaled, x), uniform).to(x.dtype)


def qsgd(x: Tensor, levels: int, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return QSGD's integers ``floor(x s / |x|_2 + u)``, a stochastic rounding, and the Euclidean norms ``|x|_2``.

    ``integers * norm / s`` has the expectation x.

    Args:
        x: tensors of the rows, ``(R, *s)``.
        levels: s, the largest integer.
        uniform: random numbers u in [0, 1), with the shape of x.

    Returns:
        The integers ``(R, *s)`` and the norms ``(R, 1, .., 1)``, in the dtype of x.

    Raises:
        SpecError: ``levels`` is below 1 or too large for the dtype of ``x``.

    Source: Alistarh et al., QSGD (2017), section 3.1.
    """
    norm = euclidean_norm(x)
    scaled = (at_least_fp32(x) / nonzero_norm(norm)).mul_(checked_levels(levels, x))
    q = _round_stochastically(scaled, uniform).clamp_(-levels, levels)
    return q.to(x.dtype), norm.to(x.dtype)


def euclidean_norm(x: Tensor) -> Tensor:
    """Return the Euclidean norm of each row of ``x (R, *s)``, ``(R, 1, .., 1)``, in single precision at least."""
    return power_mean(x, p=2.0) * math.sqrt(max(1, x[0].numel()))


def nonzero_norm(norm: Tensor) -> Tensor:
    """Return norms with zeros replaced by 1, so that zero tensors can be divided by their norm."""
    return torch.where(norm == 0, 1.0, norm)


class Agreement(NamedTuple):
    """Shares of entries with the right sign (``match``), with the opposite sign (``flip``), and of 0 (``zero``)."""

    match: Tensor
    flip: Tensor
    zero: Tensor


def sign_agreement(quantised_sum: Tensor, exact_sum: Tensor) -> Agreement:
    """Return the shares of entries whose quantised sum has the same, the opposite or no sign as the exact sum.

    Only entries with a nonzero exact sum count; the shares are NaN if there are none.

    Args:
        quantised_sum: sums over workers of quantised tensors, ``(..., n)``.

    Returns:
        Shares of shape ``(...)``, whose sum is 1.

    Source: Lion Cub, Figure 4 and Table 3.
    """
    product, is_nonzero = quantised_sum.sign() * exact_sum.sign(), exact_sum != 0
    total = is_nonzero.sum(-1, dtype=torch.float64)
    return Agreement(
        match=(product > 0).sum(-1, dtype=torch.float64) / total,
        flip=(product < 0).sum(-1, dtype=torch.float64) / total,
        zero=((product == 0) & is_nonzero).sum(-1, dtype=torch.float64) / total,
    )


def most_levels(dtype: torch.dtype) -> int:
    """Return the largest integer n such that a floating-point type represents all integers up to n exactly."""
    return int(2 / torch.finfo(dtype).eps)


def at_least_fp32(x: Tensor) -> Tensor:
    """Return ``x`` in fp32 if it has half precision, which has too few digits to round to the nearest integer."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def keep_zeros(scaled: Tensor, x: Tensor) -> Tensor:
    """Return ``scaled`` with zeros where ``x`` is zero, because 0 over a zero scale is NaN."""
    return torch.where(x == 0, 0.0, scaled)


def _round_stochastically(scaled: Tensor, uniform: Tensor) -> Tensor:
    """Return ``floor(scaled + uniform)``, but not from the sum, which may be rounded up to the next integer."""
    lower = scaled.floor()
    one_minus_fraction = (scaled - lower).neg_().add_(1)
    return lower.add_(uniform >= one_minus_fraction)


def checked_levels(levels: int, x: Tensor) -> int:
    """Return ``levels``, after a check that the dtype of ``x`` can represent these integers."""
    limit = most_levels(x.dtype)
    if not 1 <= levels <= limit:
        raise SpecError("levels", levels, f"a number from 1 to {limit}, to which {x.dtype} can count")
    return levels


MOST_LEVELS_IN_A_BYTE = 127
"""Largest number of levels s for which integers from 0 to 2 s fit into a byte."""

MOST_ADDED_IN_ORDER = 16
"""Number of workers up to which numbers are added one after another; torch adds more numbers in another order."""


def qsgd_levels(x: Tensor, levels: int, workers: Sequence[int], *names: str | int) -> tuple[Tensor, Tensor]:
    """Return QSGD's integers, shifted by ``levels`` so that none is negative, and the norms; see ``qsgd``.

    Args:
        x: tensors ``(R, n)``.
        levels: s, number of levels on one side of zero.
        workers: number of each row's worker.
        *names: names of the random stream, and the number of the step.

    Returns:
        Integers ``(R, n)`` from 0 to ``2 levels``, in one byte if they fit, and norms ``(R, 1)`` in the dtype of x.
    """
    fits_in_byte = levels <= MOST_LEVELS_IN_A_BYTE
    loops = compiled_loops(x) if fits_in_byte else None
    if loops:
        norm, integers = euclidean_norm(x), torch.empty(x.shape, dtype=torch.uint8, device="cpu")
        loops.draw_levels(
            x.detach().contiguous().numpy(),
            norms=nonzero_norm(norm).view(-1).numpy(),
            levels=np.float32(levels),
            starts=generator_states(workers, *names),
            out=integers.numpy(),
        )
        return integers, norm
    q, norm = qsgd(x, levels, uniform(workers, x.shape[1], x.device, *names))
    integers = q.add_(levels).to(torch.uint8) if fits_in_byte else q.long().add_(levels)
    return integers, norm


def mean_of_levels(integers: Tensor, units: Tensor, levels: int) -> Tensor:
    """Return the mean over M workers of ``(integers - levels) units``, ``(S, n)``.

    Args:
        integers: integers of ``qsgd_levels``, ``(S, M, n)``.
        units: value of one level, ``(S, M, 1)``, in the dtype of the result.
        levels: s, number of levels on one side of zero.
    """
    workers = integers.shape[1]
    adds_in_order = workers <= MOST_ADDED_IN_ORDER  # so that the compiled loop gives the same bits
    loops = compiled_loops(units) if integers.dtype == torch.uint8 and adds_in_order else None
    if loops:
        means = units.new_empty(len(integers), integers.shape[2])
        numbers, flat_units = integers.contiguous().numpy(), units.reshape(units.shape[:2]).numpy()
        loops.mean_of_levels(numbers, flat_units, levels=np.float32(levels), out=means.numpy())
        return means
    float_integers = integers.to(torch.promote_types(units.dtype, torch.float32))
    parts = float_integers.sub_(levels).to(units.dtype).mul_(units)
    if not adds_in_order:
        return parts.mean(1)
    total, *other_parts = parts.unbind(1)
    for part in other_parts:
        total += part
    return total / workers
