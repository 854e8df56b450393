"""Lion Cub's theory: the outcome of votes, the error of quantisers, and when packing costs more than fewer bits save.

The time of a vote follows Table 1, in `replication.theory.votes`. Entries of update vectors follow one
of two laws of unit scale: ``laplace`` has the density ``exp(-|x|) / 2``, ``gaussian`` the variance 1.
"""

from __future__ import annotations

from math import comb, lgamma
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import betainc, digamma, gammaln, ndtr, wofz

from syncline import SpecError
from syncline.analysis.curves import FloatArray
from syncline.costmodel.numerics.arrays import FloatOrArray, require
from syncline.errors import one_of

Law = Literal["laplace", "gaussian"]


class VoteShares(NamedTuple):
    """The shares of votes that are ``kept`` as they should be, ``flipped`` to the opposite sign, or ``tied``."""

    kept: FloatArray
    flipped: FloatArray
    tied: FloatArray


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise SpecError("workers", workers, "at least 1")


def _check_law(law: str) -> None:
    if law not in get_args(Law):
        raise SpecError("law", law, one_of(get_args(Law), law))


def vote_shares(workers: int, right: ArrayLike = 0.5) -> VoteShares:
    """Return the shares of outcomes of a majority of P independent votes, each right with probability p.

    ``P(k right) = C(P, k) p^k (1 - p)^(P - k)``: kept above P / 2, flipped below, tied at it.

    Args:
        workers: P, the number of workers.
        right: p, in [0, 1]; a half for votes at random.

    Raises:
        SpecError: no worker, or a p outside [0, 1].

    >>> round(float(vote_shares(4).tied), 4), round(float(vote_shares(8).tied), 4)
    (0.375, 0.2734)

    Source: Lion Cub, Appendix B.1 (ties); the binomial distribution.
    """
    _check_workers(workers)
    p = np.asarray(right, dtype=float)
    require((p >= 0) & (p <= 1), "right", p, "a probability in [0, 1]")
    combinations = np.array([comb(workers, k) for k in range(workers + 1)], dtype=float)
    k = np.arange(workers + 1)
    shares = combinations * p[..., None] ** k * (1 - p[..., None]) ** (workers - k)
    return VoteShares(*(shares[..., mask].sum(-1) for mask in (2 * k > workers, 2 * k < workers, 2 * k == workers)))


def vote_against_sum(workers: int, law: Law) -> VoteShares:
    """Return how often a majority of signs is the sign of the sum, for independent entries of a symmetric law.

    With k pluses, the sum is positive where k sizes outweigh P - k others. For Laplace, of exponential sizes, this has
    the probability ``I_(1/2)(P - k, k)``, a regularised incomplete beta function; for gaussian it is found by inverting
    the half-normal's characteristic function ``w(t / sqrt 2)`` (Gil-Pelaez).

    Args:
        workers: P, the number of workers.
        law: distribution of one entry.

    Raises:
        SpecError: no worker, or another law.

    >>> [round(float(share), 4) for share in vote_against_sum(4, "laplace")]
    [0.5625, 0.0625, 0.375]

    Source: the quantity in Lion Cub's Table 3, for workers with independent signs.
    """
    _check_workers(workers)
    _check_law(law)
    kept_share = flipped_share = 0.0
    for k in range(workers // 2 + 1, workers + 1):
        probability = 2 * comb(workers, k) / 2**workers
        outweigh = _outweigh(k, workers - k, law)
        kept_share, flipped_share = kept_share + probability * outweigh, flipped_share + probability * (1 - outweigh)
    return VoteShares(
        np.asarray(kept_share), np.asarray(flipped_share), np.asarray(max(0.0, 1 - kept_share - flipped_share))
    )


def _outweigh(many: int, few: int, law: Law) -> float:
    """Return the probability that ``many`` sizes of the law have a larger sum than ``few`` of them."""
    if few == 0:
        return 1.0
    if law == "laplace":
        return float(betainc(few, many, 0.5))

    def integrand(t: float) -> float:
        size = wofz(t / np.sqrt(2))
        return float((size**many * np.conj(size) ** few).imag / t)

    return float(0.5 + quad(integrand, 0, np.inf, epsabs=1e-11, epsrel=1e-11, limit=400)[0] / np.pi)


def mean_size(p: float, law: Law, entries: int = 1) -> float:
    """Return ``M_p = (E |x|^p)^(1/p)`` of a law of unit scale; 0 is the geometric mean, infinity the expected maximum.

    Laplace: ``Gamma(p + 1)^(1/p)``, ``exp(-gamma)``, and ``sum_(k <= n) 1 / k`` of n entries. Gaussian:
    ``sqrt 2 (Gamma((p + 1) / 2) / sqrt pi)^(1/p)``, ``exp(-(gamma + ln 2) / 2)``, and an integral.

    Args:
        p: order of the mean, at least 0, or infinite.
        law: distribution of one entry.
        entries: n, the number of entries; p = infinity takes their largest.

    Raises:
        SpecError: a negative p, another law, or no entry.

    >>> round(mean_size(1, "laplace"), 4), round(mean_size(2, "gaussian"), 4), round(mean_size(0, "laplace"), 4)
    (1.0, 1.0, 0.5615)

    Source: Lion Cub, equation (1), whose mean over a tensor becomes that over the law.
    """
    _check_law(law)
    if not p >= 0:
        raise SpecError("p", p, "at least 0, or infinity")
    if entries < 1:
        raise SpecError("entries", entries, "at least 1")
    if np.isinf(p):
        if law == "laplace":
            return float(digamma(entries + 1) + np.euler_gamma)
        return float(quad(lambda x: -np.expm1(entries * np.log1p(-2 * ndtr(-x))), 0, 40, limit=400)[0])
    if p == 0:
        return float(np.exp(-np.euler_gamma if law == "laplace" else -(np.euler_gamma + np.log(2)) / 2))
    if law == "laplace":
        return float(np.exp(lgamma(p + 1) / p))
    return float(np.sqrt(2) * np.exp((gammaln((p + 1) / 2) - 0.5 * np.log(np.pi)) / p))


class QuantiserError(NamedTuple):
    """The errors that rounding to levels causes in the entries of a law.

    Attributes:
        zero: share of the entries that become 0.
        clipped: share of the entries that are cut off, beyond half a step above the largest level.
        squared: mean squared error over the entries' mean square.
    """

    zero: FloatArray
    clipped: FloatArray
    squared: FloatArray


def quantiser_error(levels: int, step: ArrayLike, law: Law) -> QuantiserError:
    """Return the errors of ``step * clamp(round(x / step), -s, s)``, in closed form.

    Squared: ``2 sum_k int (x - k step)^2 density dx`` over the cells of the levels ``k = 0, ..., s``; the last
    cell is unbounded. With ``step = 2 M_p / s`` it is the paper's L_p quantiser, with ``step = M / s`` the usual one.

    Args:
        levels: s, the largest integer.
        step: distance between levels in units of the law's scale, above 0.
        law: distribution of the entries.

    Raises:
        SpecError: no level, a step that is not above 0, or another law.

    >>> [round(float(part), 3) for part in quantiser_error(15, 2 / 15, "laplace")]
    [0.064, 0.127, 0.136]

    Source: Lion Cub, equation (1).
    """
    _check_law(law)
    if levels < 1:
        raise SpecError("levels", levels, "at least 1")
    width = np.asarray(step, dtype=float)
    require(width > 0, "step", width, "above 0")
    level = width[..., None] * np.arange(levels + 1.0)
    first: FloatArray = np.maximum(level - width[..., None] / 2, 0.0)
    last: FloatArray = np.concatenate([first[..., 1:], np.full((*width.shape, 1), np.inf)], -1)
    beyond = (levels + 0.5) * width
    if law == "laplace":
        squared = (_exponential(first, level) - _exponential(last, level)).sum(-1) / 2
        return QuantiserError(-np.expm1(-width / 2), np.exp(-beyond), squared)
    squared = 2 * (_normal(first, level) - _normal(last, level)).sum(-1)
    return QuantiserError(1 - 2 * ndtr(-width / 2), 2 * ndtr(-beyond), squared)


def _exponential(start: FloatArray, level: FloatArray) -> FloatArray:
    """Return ``int_start^inf (x - level)^2 exp(-x) dx``."""
    finite = np.where(np.isinf(start), 0.0, start)
    return np.where(np.isinf(start), 0.0, np.exp(-finite) * ((finite - level) ** 2 + 2 * (finite - level) + 2))


def _normal(start: FloatArray, level: FloatArray) -> FloatArray:
    """Return ``int_start^inf (x - level)^2 phi(x) dx``."""
    finite = np.where(np.isinf(start), 0.0, start)
    density = np.exp(-(finite**2) / 2) / np.sqrt(2 * np.pi)
    integral = (1 + level**2) * ndtr(-finite) + (finite - 2 * level) * density
    return np.where(np.isinf(start), 0.0, integral)


def speedup_limit(communication_share: ArrayLike) -> FloatArray:
    """Return the largest speedup of a step if communication became free: ``1 / (1 - share)``.

    Args:
        communication_share: the part of a step that is communication, in [0, 1).

    Raises:
        SpecError: a share outside [0, 1).

    >>> round(float(speedup_limit(0.748)), 2)  # Lion, 32 bits, 1 Gbit/s
    3.97

    Source: Amdahl's law, which compares Lion Cub's section 6.1 with its Table 4.
    """
    share = np.asarray(communication_share, dtype=float)
    require((share >= 0) & (share < 1), "communication_share", share, "a part in [0, 1)")
    return np.asarray(1 / (1 - share))


def packed_vote_s(
    wire_bits: FloatOrArray, parameters: ArrayLike, bits_per_s: ArrayLike, packing_s: ArrayLike = 0.0
) -> FloatArray:
    """Return the seconds of a vote without its latency: ``N (w / B + h)``.

    Args:
        wire_bits: w, bits per parameter that pass a link, as `vote_bits_per_parameter`.
        parameters: N, the number of parameters.
        bits_per_s: B, the bandwidth of the link.
        packing_s: h, seconds per parameter to pack and unpack, on one worker.

    Raises:
        SpecError: a bandwidth that is not above 0.

    Source: Lion Cub, Table 1, and the packing that section 6.1 adds.
    """
    rate = np.asarray(bits_per_s, dtype=float)
    require(rate > 0, "bits_per_s", rate, "above 0")
    return np.asarray(np.asarray(parameters, dtype=float) * (np.asarray(wire_bits) / rate + np.asarray(packing_s)))


def packing_break_even(
    wire_bits: ArrayLike, fewer_bits: ArrayLike, packing_s: ArrayLike, more_packing_s: ArrayLike
) -> FloatArray:
    """Return the bandwidth in bit/s above which fewer bits are slower, because packing takes longer than they save.

    ``B* = (w - w') / (h' - h)``; infinite where fewer bits need no more packing.

    Args:
        wire_bits: w, bits per parameter that pass a link.
        fewer_bits: w', bits per parameter of the vote with fewer bits.
        packing_s: h, seconds per parameter.
        more_packing_s: h', seconds per parameter with fewer bits.

    >>> round(float(packing_break_even(56, 1.875, 0.0, 0.114e-9)) / 1e9)  # one bit against 32, in Gbit/s
    475

    Source: where two of `packed_vote_s` are equal.
    """
    saved = np.asarray(wire_bits, dtype=float) - fewer_bits
    paid = np.asarray(more_packing_s, dtype=float) - packing_s
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(paid <= 0, np.inf, np.maximum(saved, 0.0) / paid))
