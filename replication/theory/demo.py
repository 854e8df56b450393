"""DeMo's theory: the error of sending k coefficients of a momentum, its effect on a mean and on the convergence rate.

The paper's available text lacks its formulas. The formulas below follow from the steps of its proofs, with the
constants written out; where the text describes a formula in words (Remark 2), ``form="printed"`` follows the words.
"""

from __future__ import annotations

from math import comb
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct
from scipy.special import ndtr, ndtri

from syncline import SpecError
from syncline.analysis.curves import FloatArray
from syncline.costmodel.numerics.arrays import require
from syncline.errors import one_of

BiasForm = Literal["printed", "any", "symmetric"]


def top_k_error_bound(k: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Return the largest share of a vector's norm that its k largest entries can miss: ``sqrt(1 - k / d)``.

    Vectors whose entries are equally large reach it, in any orthonormal basis.

    >>> float(top_k_error_bound(48, 64))
    0.5

    Source: DeMo, Lemma 8.1 and Remark 4.
    """
    return np.asarray(np.sqrt(1 - np.divide(k, dimension)))


def top_k_error_bound_l1(k: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Return the bound of `top_k_error_bound` for the 1-norm: ``1 - k / d``.

    >>> float(top_k_error_bound_l1(48, 64))
    0.25

    Source: DeMo, Remark 3.
    """
    return np.asarray(1 - np.divide(k, dimension))


def kept_momentum_bound(
    beta: ArrayLike, k: ArrayLike, dimension: ArrayLike, gradient_norm: ArrayLike = 1.0, alpha: ArrayLike = 1.0
) -> FloatArray:
    """Return the largest norm of the momentum that a worker keeps back if it sends k of each d coefficients per step.

    ``R chi / (1 - beta chi)`` with ``chi^2 = 1 - alpha (2 - alpha) k / d``, for ``m <- D - alpha top_k(D)``,
    ``D = beta m + g`` and ``||g|| <= R``. At ``alpha = 1`` chi is that of `top_k_error_bound`; at 0 the
    momentum stays whole, and the bound is ``R / (1 - beta)``.

    Args:
        beta: decay of the momentum, in [0, 1).
        k: coefficients sent of each chunk.
        dimension: d, coefficients of a chunk.
        gradient_norm: R, the bound on the gradient's norm.
        alpha: share of the sent coefficients that the worker subtracts from its momentum, in [0, 1].

    Raises:
        SpecError: a decay or a share out of range.

    >>> [round(float(kept_momentum_bound(0.999, k, 4096)), 1) for k in (1, 32, 1024)]
    [891.2, 202.9, 6.4]

    Source: DeMo, Lemma 1, its geometric series; alpha from section 2.1.
    """
    decay, share = np.asarray(beta, dtype=float), np.asarray(alpha, dtype=float)
    require((decay >= 0) & (decay < 1), "beta", decay, "a decay in [0, 1)")
    require((share >= 0) & (share <= 1), "alpha", share, "a share in [0, 1]")
    chi = np.sqrt(1 - share * (2 - share) * np.divide(k, dimension))
    return np.asarray(np.asarray(gradient_norm, dtype=float) * chi / (1 - decay * chi))


def sparse_mean_bias_bound(
    workers: ArrayLike, k: ArrayLike, dimension: ArrayLike, largest: ArrayLike = 1.0, form: BiasForm = "any"
) -> FloatArray:
    """Return the bound on a coordinate's mean deviation of the average of sparse vectors from its true mean: Lemma 2.

    ``printed``: ``B (d - k) / d / sqrt(n)``, times a constant that the paper calls universal. It is not universal, see
    `equal_sizes_bias` and `coin_mean_bias`. Two bounds without a constant hold for a mean over all workers: for ``any``
    law, ``B (d - k) / d``, which no number of workers shrinks; for a ``symmetric`` law, ``B sqrt((d - k) / (d n))``.

    Args:
        workers: n vectors, independent and identically distributed.
        k: entries sent of each, the largest.
        dimension: d entries, independent and identically distributed.
        largest: B, the bound on the size of an entry.
        form: ``printed``, ``any`` or ``symmetric``.

    Raises:
        SpecError: another form.

    >>> [round(float(sparse_mean_bias_bound(16, 48, 64, form=form)), 4) for form in ("printed", "any", "symmetric")]
    [0.0625, 0.25, 0.125]

    Source: DeMo, Lemma 2 and Remark 2.
    """
    if form not in get_args(BiasForm):
        raise SpecError("form", form, one_of(get_args(BiasForm), form))
    unsent_share, n = 1 - np.divide(k, dimension), np.asarray(workers, dtype=float)
    shares = {
        "printed": unsent_share / np.sqrt(n),
        "any": unsent_share * np.ones_like(n),
        "symmetric": np.sqrt(unsent_share / n),
    }
    return np.asarray(np.asarray(largest, dtype=float) * shares[form])


def equal_sizes_bias(workers: int, k: int, dimension: int, average: Literal["senders", "all"] = "senders") -> float:
    """Return the exact root mean square of the bias in `sparse_mean_bias_bound` for entries of plus or minus 1.

    The sent entries are then random. Over ``all`` workers the bias is ``sqrt((1 - k/d) / n)``. Over the ``senders``,
    the mean square is ``1/j - 1/n`` with j senders, and ``1/n`` without a sender; j senders have the probability
    ``C(n, j) (k/d)^j (1 - k/d)^(n - j)``.

    Args:
        workers: n, the number of workers.
        k: entries sent of each vector.
        dimension: d, the number of entries of a vector.
        average: the workers over which the sent entries are averaged, ``senders`` or ``all``.

    Raises:
        SpecError: an unknown ``average``.

    >>> round(equal_sizes_bias(4, 1, 2, "senders"), 4), round(equal_sizes_bias(4, 1, 2, "all"), 4)
    (0.5637, 0.3536)

    Source: sampling without replacement, for DeMo's Algorithm 3 and its equation (5).
    """
    if average not in ("senders", "all"):
        raise SpecError("average", average, one_of(("senders", "all"), average))
    sent = k / dimension
    if average == "all":
        return float(np.sqrt((1 - sent) / workers))
    chance = [comb(workers, j) * sent**j * (1 - sent) ** (workers - j) for j in range(workers + 1)]
    square = chance[0] / workers + sum(chance[j] * (1 / j - 1 / workers) for j in range(1, workers + 1))
    return float(np.sqrt(max(square, 0.0)))


def coin_mean_bias(
    k: int, dimension: int, one_probability: float, average: Literal["senders", "all"] = "senders"
) -> float:
    """Return the bias that remains with any number of workers for entries that are 1 with probability p, else 0.

    A worker sends the ones first: with S ones it sends ``min(k, S)`` of them. So the senders' mean tends to ``E min(k,
    S) / k`` and that over all workers to ``E min(k, S) / d``, where the true mean is p.

    Args:
        k: entries sent of each vector, at least 1.
        dimension: d, the number of entries of a vector.
        one_probability: p, the probability that an entry is 1.
        average: the workers over which the sent entries are averaged, ``senders`` or ``all``.

    Raises:
        SpecError: an unknown ``average``.

    >>> round(coin_mean_bias(32, 64, 0.5), 4), round(coin_mean_bias(32, 64, 0.5, "all"), 4)
    (0.4503, -0.0248)

    Source: the binomial distribution, against DeMo's Lemma 2.
    """
    if average not in ("senders", "all"):
        raise SpecError("average", average, one_of(("senders", "all"), average))
    chance = [
        comb(dimension, s) * one_probability**s * (1 - one_probability) ** (dimension - s) for s in range(dimension + 1)
    ]
    sent = sum(chance[s] * min(k, s) for s in range(dimension + 1))
    return sent / (k if average == "senders" else dimension) - one_probability


class SignumBound(NamedTuple):
    """The parts of the bound on the mean 1-norm of the gradient.

    Attributes:
        descent: ``Delta / (eta T) + eta L d / 2``.
        noise: ``2 sqrt(d) sigma / sqrt(M)`` of the workers' mean gradient.
        left_out: ``2 sqrt(d) (1 + beta) R chi / (1 - beta chi)``, from the difference of sent components and gradient.
    """

    descent: FloatArray
    noise: FloatArray
    left_out: FloatArray

    @property
    def total(self) -> FloatArray:
        """Return the sum of the three parts."""
        return np.asarray(self.descent + self.noise + self.left_out)


def signum_step(steps: ArrayLike, gap: ArrayLike, smoothness: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """Return the step size that minimises the descent's part: ``sqrt(2 Delta / (L d T))``.

    Args:
        steps: T, the number of steps.
        gap: Delta = f(x_0) - f*.
        smoothness: L, the smoothness of the loss.
        dimension: d, parameters.

    >>> round(float(signum_step(100, 1.0, 2.0, 4)), 3)
    0.05

    Source: DeMo, Theorem 1 and Remark 1, whose choice of eta is of this order.
    """
    return np.asarray(np.sqrt(2 * np.divide(gap, np.multiply(smoothness, dimension) * np.asarray(steps, dtype=float))))


def signum_bound(
    eta: ArrayLike,
    steps: ArrayLike,
    *,
    gap: ArrayLike,
    smoothness: ArrayLike,
    dimension: ArrayLike,
    noise: ArrayLike,
    workers: ArrayLike,
    beta: ArrayLike,
    kept_momentum: ArrayLike,
) -> SignumBound:
    """Return the bound on the mean over T steps of ``E ||grad f||_1`` for DeMo with signs and means over all workers.

    From ``f(x - eta sign q) <= f(x) - eta <grad, sign q> + eta^2 L d / 2``, ``<grad, sign q> >= ||grad||_1 - 2 ||grad -
    q||_1`` and ``q - g = beta m - m'``, the momentum kept back before and after the step. Only the first part falls
    with T: the second needs larger batches, the third ``k = d``.

    Args:
        eta: step size.
        steps: T, the number of steps.
        gap: Delta = f(x_0) - f*.
        smoothness: L, of f's gradient in the 2-norm.
        dimension: d, parameters.
        noise: sigma, root mean square norm of a worker's gradient noise.
        workers: M, the number of workers.
        beta: decay of the momentum.
        kept_momentum: bound on the momentum kept back, `kept_momentum_bound`.

    >>> settings = {"gap": 1.0, "smoothness": 1.0, "dimension": 4, "noise": 1.0, "workers": 4, "beta": 0.9}
    >>> [float(part) for part in signum_bound(0.01, 10_000, **settings, kept_momentum=0.0)]
    [0.03, 2.0, 0.0]

    Source: DeMo, Theorems 1 and 2, by the steps of their proof at alpha = 1.
    """
    root = 2 * np.sqrt(np.asarray(dimension, dtype=float))
    rate = np.asarray(eta, dtype=float)
    descent = np.asarray(gap, dtype=float) / (rate * steps) + rate * np.multiply(smoothness, dimension) / 2
    left_out = root * (1 + np.asarray(beta, dtype=float)) * kept_momentum
    return SignumBound(np.asarray(descent), np.asarray(root * noise / np.sqrt(workers)), np.asarray(left_out))


def dct_variances(size: int, correlation: float) -> FloatArray:
    """Return the variances of a chunk's DCT-II coefficients for correlated neighbours: ``diag(C R C^T)``.

    ``R_ij = rho^|i - j|``, variance 1. In two dimensions, a coefficient's variance is the product of both sides'.

    Args:
        size: s, entries of the chunk.
        correlation: rho of neighbours, in (-1, 1).

    Raises:
        SpecError: a correlation of 1 or more.

    >>> dct_variances(4, 0.9).round(3).tolist()
    [3.525, 0.31, 0.105, 0.061]

    Source: N. Ahmed, T. Natarajan, K. R. Rao, "Discrete Cosine Transform" (1974): why a DCT compacts energy.
    """
    if not abs(correlation) < 1:
        raise SpecError("correlation", correlation, "between -1 and 1, without them")
    places = np.arange(size)
    chunk = np.power(float(correlation), np.abs(places[:, None] - places))
    return np.asarray(np.diag(dct(dct(chunk, axis=0, norm="ortho"), axis=1, norm="ortho")).copy())


def compaction_gain(variances: ArrayLike) -> float:
    """Return the arithmetic mean of the variances over their geometric mean: 1 where nothing is compacted.

    Source: N. Jayant, P. Noll, "Digital Coding of Waveforms" (1984), the gain of transform coding.

    >>> round(compaction_gain(dct_variances(64, 0.9)), 3)
    5.107
    """
    values = np.asarray(variances, dtype=float)
    return float(values.mean() / np.exp(np.log(values).mean()))


def gaussian_top_share(fraction: ArrayLike) -> FloatArray:
    """Return the share of the energy in the largest of many gaussian coefficients of equal variance.

    ``2 [t phi(t) + Q(t)]`` where a fraction ``2 Q(t)`` is beyond t. This is the case of a basis that compacts nothing.

    Args:
        fraction: k / d, in (0, 1].

    Raises:
        SpecError: a fraction out of range.

    >>> round(float(gaussian_top_share(32 / 4096)), 4)
    0.0695

    Source: the truncated second moment of the normal distribution.
    """
    share = np.asarray(fraction, dtype=float)
    require((share > 0) & (share <= 1), "fraction", share, "in (0, 1]")
    t = -ndtri(share / 2)
    return np.asarray(2 * (t * np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi) + ndtr(-t)))
