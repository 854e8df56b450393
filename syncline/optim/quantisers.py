"""Quantisers: from real tensors to small integers, whose sum over the workers says where to go.

Pure functions over tensors ``(R, *s)``: a scale for each of the R rows, so for each worker and tensor, and nothing that
depends on another row. They compute in single precision at least and return integers in the dtype that they were given.
The stochastic ones take their uniform numbers as an argument, so that who draws them is for the caller to say.

Random numbers that are the same in every world: a function of names, the worker and the place.

Numbered coins instead of a stream: place i of worker w under a key is the i-th output of a generator whose start is
made from the key and w, so all workers' numbers come from the same few tensor operations, on any device.

Source: Steele, Lea & Flood, "Fast splittable pseudorandom number generators" (2014), its SplitMix64.

The levels of QSGD: drawn from each worker's stream, and their mean. In one pass each once loops are compiled.
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
_MULTIPLIERS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def uniform(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Draw numbers ``(R, count)`` in [0, 1), float64 multiples of ``2**-53``, independent over workers and names.

    Args:
        workers: number of each row's worker.
        count: number of random numbers per worker.
        device: device of the result.
        *names: names of the random stream, and the number of the step.
    """
    # The top 53 bits, as in a double's mantissa.
    if device.type == "cpu":
        return torch.from_numpy(_in_pieces(workers, count, names, 11, np.dtype(np.float64)))
    return _shift(_bits(workers, count, device, *names), 11).double() * 2.0**-53


def coins(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Draw fair coins ``(R, count)`` as booleans; the arguments are those of ``uniform``."""
    if device.type == "cpu":
        return torch.from_numpy(_in_pieces(workers, count, names, 63, np.dtype(np.bool_)))
    return _bits(workers, count, device, *names) < 0


def starts(workers: Sequence[int], *names: str | int) -> NDArray[np.uint64]:
    """Return the start state of each worker's generator, ``(R,)``."""
    x = np.array(workers, np.uint64) * np.uint64(_GAMMA % 2**64) + np.uint64(seed64(0, *names))
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(multiplier % 2**64)
    return x ^ (x >> np.uint64(31))


def _bits(workers: Sequence[int], count: int, device: torch.device, *names: str | int) -> Tensor:
    """Return 64 random bits per worker and place, as int64."""
    start = torch.from_numpy(starts(workers, *names).view(np.int64)).to(device).unsqueeze(1)
    return _mixed(start + torch.arange(1, count + 1, device=device) * _GAMMA)


PIECE = 2**13
"""Places that a CPU makes at once: they stay in its first cache."""


def _in_pieces(
    workers: Sequence[int], count: int, names: tuple[str | int, ...], drop: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return the same bits without the lowest ``drop``, ``(R, count)``, as fractions in [0, 1) of type ``dtype``."""
    out = np.empty((len(workers), count), dtype)
    mixed, shifted = np.empty(PIECE, np.uint64), np.empty(PIECE, np.uint64)
    steps = np.arange(1, PIECE + 1, dtype=np.uint64) * np.uint64(_GAMMA % 2**64)
    for row, start in enumerate(starts(workers, *names).tolist()):
        for first in range(0, count, PIECE):
            size = min(PIECE, count - first)
            x, y = mixed[:size], shifted[:size]
            np.add(steps[:size], np.uint64((start + first * _GAMMA) % 2**64), out=x)
            for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
                np.bitwise_xor(x, np.right_shift(x, np.uint64(shift), out=y), out=x)
                np.multiply(x, np.uint64(multiplier % 2**64), out=x)
            np.bitwise_xor(x, np.right_shift(x, np.uint64(31), out=y), out=x)
            np.right_shift(x, np.uint64(drop), out=x)
            part = out[row, first : first + size]
            if dtype == np.float64:
                np.multiply(x.view(np.int64), 2.0 ** (drop - 64), out=part)
            else:
                np.not_equal(x, 0, out=part)
    return out


def _mixed(x: Tensor) -> Tensor:
    """Apply SplitMix64's finaliser; products wrap around."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x = (x ^ _shift(x, shift)) * multiplier
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Return ``x >> by`` with zeros from the left: int64's own shift copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def power_mean(x: Tensor, p: float) -> Tensor:
    """Return the size of a row's entries: ``M_p = (mean |x|^p)^(1/p)``, from the geometric mean to the maximum.

    ``p = 0`` is the geometric mean **of the entries that are not zero**: one dead coordinate would make it zero and the
    quantiser a vote of signs. Zeros count for every other p, which tends to the geometric mean only without them.

    Args:
        x: ``(R, *s)``.
        p: the exponent, from 0 to ``math.inf``.

    Returns:
        ``(R, 1, .., 1)``; zero for a row of zeros.

    Raises:
        SpecError: a negative p, or none.
    """
    return power_means([x], p)[:, 0].reshape(-1, *[1] * (x.ndim - 1))


def power_means(xs: Sequence[Tensor], p: float) -> Tensor:
    """Return ``power_mean`` of each of several tensors ``(R, *s)``, as ``(R, len(xs))``, with the same errors."""
    if not p >= 0:
        raise SpecError("p", p, "a number >= 0; inf for the maximum")
    wide = [_wide(x).reshape(x.shape[0], -1) for x in xs]
    if p == 2:
        return torch.stack([_root_mean_square(x) for x in wide], 1)
    flats = [x.abs() for x in wide]
    if p == 0:
        return torch.stack([_geometric_mean(x) for x in flats], 1)
    top = torch.stack([x.amax(1) for x in flats], 1)
    if p == math.inf:
        return top
    units = torch.where(top > 0, top, 1.0).log().split(1, 1)
    logs = [x.log_().sub_(unit) for x, unit in zip(flats, units, strict=True)]
    return top * (_log_mean_exp(logs, p) / p).exp()


def _geometric_mean(x: Tensor) -> Tensor:
    """Return the geometric mean, ``(R,)``, of the nonzero entries of ``(R, n)``."""
    is_nonzero = x > 0
    logs = torch.where(is_nonzero, x, torch.ones_like(x)).log().sum(1)
    return torch.where(is_nonzero.any(1), (logs / is_nonzero.sum(1).clamp(min=1)).exp(), 0.0)


SQUARED = (1e-12, 1e18)
"""Norms whose squares, and those of all entries that matter to them, single precision holds."""


def _root_mean_square(x: Tensor) -> Tensor:
    """Return each row's RMS, ``(R, n)`` to ``(R,)``; rescale where squares would overflow or vanish."""
    norm = torch.linalg.vector_norm(x, dim=1)
    in_range = (norm >= SQUARED[0]) & (norm <= SQUARED[1])
    if not (x.device.type == "cpu" and in_range.all()):
        top = x.abs().amax(1)
        safe = torch.where(top > 0, top, 1.0)
        norm = torch.where(in_range, norm, safe * torch.linalg.vector_norm(x / safe.unsqueeze(1), dim=1))
    return norm / math.sqrt(max(1, x.shape[1]))


def _log_mean_exp(logs: Sequence[Tensor], p: float) -> Tensor:
    """Return ``log(mean(exp(p x)))`` of each row of each tensor x, one column per tensor, ``(R, len(logs))``.

    The mean is over the n elements of a row. A row of ``-inf`` gives a finite number. The tensors are overwritten.

    Args:
        logs: tensors ``(R, n)`` of logarithms; the largest of a row must be 0.
        p: the power.
    """
    if p != 1:
        logs = [x.mul_(p) for x in logs]
    if p >= SMALL_P:
        mean = torch.stack([x.exp_().mean(1) for x in logs], 1)
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()
    # All powers are near 1: their difference from it has the digits.
    difference = torch.stack([x.expm1_().mean(1) for x in logs], 1)
    return torch.log1p(difference.clamp(min=torch.finfo(difference.dtype).eps - 1))


SMALL_P = 0.1


def quantise_lp(x: Tensor, levels: int, p: float) -> Tensor:
    """Return ``clamp(round(x s / (2 M_p(x))), -s, s)``: Lp quantisation, which maps the mean magnitude to s / 2.

    Entries above twice the mean are cut off, so that outliers do not change the scale of the others. For infinite p no
    entry is cut off, and half of the range stays unused.

    Args:
        x: tensors of the rows, ``(R, *s)``.
        levels: s, the largest integer.
        p: exponent of the power mean, see ``power_mean``.

    Raises:
        SpecError: ``p`` is negative, or ``levels`` is below 1 or too large for the dtype of ``x``.

    Source: Lion Cub, equation 1.
    """
    scaled = _wide(x) / power_mean(x, p) * (_checked(levels, x) / 2)
    return _zeros_kept(scaled, x).round().clamp(-levels, levels).to(x.dtype)


def quantise_max(x: Tensor, levels: int, uniform: Tensor) -> Tensor:
    """Return ``floor(x s / max|x| + u)``: stochastic rounding over the whole range, with expectation ``x s / max|x|``.

    Args:
        x: tensors of the rows, ``(R, *s)``.
        levels: s, the largest integer.
        uniform: random numbers u in [0, 1), with the shape of x; with 1/2, numbers are rounded to the nearest integer.

    Raises:
        SpecError: ``levels`` is below 1 or too large for the dtype of ``x``.

    Source: Lion Cub, section 2 (Q_inf).
    """
    scaled = _wide(x) / power_mean(x, math.inf) * _checked(levels, x)
    return _stochastic(_zeros_kept(scaled, x), uniform).to(x.dtype)


def without_zeros(quantised: Tensor, x: Tensor) -> Tensor:
    """Return the same integers, but plus or minus one where they are zero and ``x`` is not.

    Source: Lion Cub, Figure 4 ("w/o zero").
    """
    return torch.where(quantised == 0, x.sign().to(quantised.dtype), quantised)


def log_quantise(x: Tensor, levels: int) -> Tensor:
    """Return octaves: ``sign(x) max(0, s + round(log2(|x| / max|x|)))``; the maximum becomes ``s``.

    What is smaller than ``2^-(s - 1/2)`` of the maximum becomes zero. See ``log_restore``.

    Args:
        x: ``(R, *s)``.
        levels: s.

    Raises:
        SpecError: a number of levels that cannot be.

    Source: the idea is in Lion Cub's Figure 4, which does not say with which base.
    """
    octaves = (_wide(x).abs() / power_mean(x, math.inf)).log2().round()
    return (x.sign() * _zeros_kept(octaves + _checked(levels, x), x).clamp(min=0)).to(x.dtype)


def log_restore(quantised: Tensor, levels: int) -> Tensor:
    """Decode ``log_quantise``'s integers ``q`` in units of the maximum: ``sign(q) 2^(|q| - s)``."""
    return quantised.sign() * torch.exp2(quantised.abs() - levels)


def qsgd(x: Tensor, levels: int, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``floor(x s / |x|_2 + u)``, stochastic rounding relative to the Euclidean norm, and the norm.

    ``integers * norm / s`` has the expectation x.

    Args:
        x: ``(R, *s)``.
        levels: s.
        uniform: numbers from [0, 1), of the shape of x.

    Returns:
        The integers ``(R, *s)`` and the norms ``(R, 1, .., 1)``, in the dtype of x.

    Raises:
        SpecError: a number of levels that cannot be.

    Source: Alistarh et al., QSGD, section 3.1.
    """
    norm = euclidean(x)
    q = _stochastic((_wide(x) / divisor(norm)).mul_(_checked(levels, x)), uniform).clamp_(-levels, levels)
    return q.to(x.dtype), norm.to(x.dtype)


def euclidean(x: Tensor) -> Tensor:
    """Return the norm of each row, ``(R, *s)`` to ``(R, 1, .., 1)``, in single precision at least."""
    return power_mean(x, 2.0) * math.sqrt(max(1, x[0].numel()))


def divisor(norm: Tensor) -> Tensor:
    """Return the norm, or 1 where it is zero, so that a division by it changes nothing there."""
    return torch.where(norm == 0, 1.0, norm)


def ternary_sign(x: Tensor) -> Tensor:
    """Return plus one, zero or minus one: a vote that can abstain."""
    return x.sign()


class Agreement(NamedTuple):
    """Shares of entries: the same sign, the opposite sign, none."""

    match: Tensor
    flip: Tensor
    zero: Tensor


def sign_agreement(quantised_sum: Tensor, exact_sum: Tensor) -> Agreement:
    """Return how often the quantised sum has the sign of the exact sum.

    The three rates add up to 1 over the entries whose exact sum is not zero; they are nan where there is none.

    Args:
        quantised_sum: ``(..., n)``.
        exact_sum: the same shape.

    Returns:
        Rates of shape ``(...)``.

    Source: Lion Cub, Figure 4 and Table 3.
    """
    product, meant = quantised_sum.sign() * exact_sum.sign(), exact_sum != 0
    counts = [mask.sum(-1, dtype=torch.float64) for mask in (product > 0, product < 0, (product == 0) & meant, meant)]
    return Agreement(*(count / counts[-1] for count in counts[:-1]))


def most_levels(dtype: torch.dtype) -> int:
    """Return the integer up to which a type holds each; above, rounding to it could pass the range."""
    return int(2 / torch.finfo(dtype).eps)


def _wide(x: Tensor) -> Tensor:
    """Return ``x`` in fp32 if it has half precision, whose digits are too few to round to the nearest integer."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _zeros_kept(scaled: Tensor, x: Tensor) -> Tensor:
    """Keep zeros as zeros, for any divisor."""
    return torch.where(x == 0, 0.0, scaled)


def _stochastic(scaled: Tensor, uniform: Tensor) -> Tensor:
    """Return ``floor(scaled + uniform)``, but for the rounding of that sum, which could pass the next integer."""
    below = scaled.floor()
    return below.add_(uniform >= (scaled - below).neg_().add_(1))


def _checked(levels: int, x: Tensor) -> int:
    """Return ``levels``, after a check that the dtype of ``x`` can represent these integers."""
    limit = most_levels(x.dtype)
    if not 1 <= levels <= limit:
        raise SpecError("levels", levels, f"a number from 1 to {limit}, to which {x.dtype} can count")
    return levels


MOST_IN_A_BYTE = 127
"""Levels whose integers, from none to twice as many, fit into a byte."""

IN_ORDER = 16
"""Workers up to which their numbers are added one after the other; torch adds more in an order of its own."""


def drawn(x: Tensor, levels: int, workers: Sequence[int], *names: str | int) -> tuple[Tensor, Tensor]:
    """Return ``qsgd``'s integers plus ``levels`` and the norms, with the numbers of ``uniform``.

    Args:
        x: ``(R, n)``.
        levels: s, number of levels on one side of zero.
        workers: number of each row's worker.
        *names: names of the random stream, and the number of the step.

    Returns:
        Integers ``(R, n)``, in one byte where they fit, and norms ``(R, 1)`` in the type of x.
    """
    narrow = levels <= MOST_IN_A_BYTE
    loops = compiled_loops(x) if narrow else None
    if loops is None:
        q, norm = qsgd(x, levels, uniform(workers, x.shape[1], x.device, *names))
        return (q if narrow else q.long()).add_(levels).to(torch.uint8 if narrow else torch.int64), norm
    norm, out = euclidean(x), torch.empty(x.shape, dtype=torch.uint8)
    numbers = x.detach().contiguous().numpy()
    begin = starts(workers, *names)
    loops.draw_levels(numbers, divisor(norm).view(-1).numpy(), np.float32(levels), begin, out.numpy())
    return out, norm


def mean_of(integers: Tensor, units: Tensor, levels: int) -> Tensor:
    """Return the mean over M of ``(integers - levels) units``.

    Args:
        integers: ``(S, M, n)``.
        units: value of one level, ``(S, M, 1)``, in the dtype of the result.
        levels: s, number of levels on one side of zero.

    Returns:
        ``(S, n)``.
    """
    workers = integers.shape[1]
    loops = compiled_loops(units) if integers.dtype == torch.uint8 and workers <= IN_ORDER else None
    if loops is None:
        wide = integers.to(torch.promote_types(units.dtype, torch.float32))
        parts = wide.sub_(levels).to(units.dtype).mul_(units)
        if workers > IN_ORDER:
            return parts.mean(1)
        first, *others = parts.unbind(1)
        for part in others:
            first += part
        return first / workers
    out = torch.empty(len(integers), integers.shape[2])
    numbers = integers.contiguous().numpy()
    loops.mean_of_levels(numbers, units.reshape(units.shape[:2]).numpy(), np.float32(levels), out.numpy())
    return out
