"""DeMo's theory: what k coefficients of a momentum leave out, what that does to a mean and to a rate.

The text at hand lost its formulas. Here they are as the steps of its proofs give them, with the constants written out;
where it describes a formula in words (Remark 2), ``form="printed"`` follows these.
"""

from __future__ import annotations

from math import comb
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct
from scipy.special import ndtr, ndtri

from syncline.analysis.statistics.curves import FloatArray
from syncline.costmodel.numerics.arrays import require
from syncline.errors import SpecError, one_of

BiasForm = Literal["printed", "any", "symmetric"]


def top_k_error_bound(k: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The largest share of a vector's norm that its k largest entries can miss: ``sqrt(1 - k / d)``.

    Reached by vectors whose entries are equally large, in any orthonormal basis.

    >>> float(top_k_error_bound(48, 64))
    0.5

    Source: DeMo, Lemma 8.1 and Remark 4.
    """
    return np.asarray(np.sqrt(1 - np.divide(k, dimension)))


def top_k_error_bound_l1(k: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The same for sums of sizes: ``1 - k / d``.

    >>> float(top_k_error_bound_l1(48, 64))
    0.25

    Source: DeMo, Remark 3.
    """
    return np.asarray(1 - np.divide(k, dimension))


def kept_momentum_bound(
    beta: ArrayLike, k: ArrayLike, dimension: ArrayLike, gradient_norm: ArrayLike = 1.0, alpha: ArrayLike = 1.0
) -> FloatArray:
    """The largest norm of the momentum that a worker can keep back, sending k of each d coefficients in every step.

    ``R chi / (1 - beta chi)`` with ``chi^2 = 1 - alpha (2 - alpha) k / d``, for ``m <- D - alpha top_k(D)``,
    ``D = beta m + g`` and ``||g|| <= R``. At ``alpha = 1`` chi is that of `top_k_error_bound`; at 0 nothing is taken
    out, and the bound is ``R / (1 - beta)``.

    Args:
        beta: decay of the momentum, in [0, 1).
        k: coefficients sent of each chunk.
        dimension: d, coefficients of a chunk.
        gradient_norm: R.
        alpha: share of what was sent that is taken out of the momentum, in [0, 1].

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
    """Bound on how far a coordinate's mean over sparse vectors is from its true mean, on average: Lemma 2.

    ``printed``: ``B (d - k) / d / sqrt(n)``, times a constant that is said to be universal. It is not, see
    `equal_sizes_bias` and `coin_mean_bias`. What holds with no constant for a mean over all workers: ``any`` law,
    ``B (d - k) / d``, which no number of workers shrinks; of a ``symmetric`` law, ``B sqrt((d - k) / (d n))``.

    Args:
        workers: n vectors, independent and alike.
        k: entries sent of each, the largest.
        dimension: d entries, independent and alike.
        largest: B, no entry is larger.
        form: ``printed``, ``any`` or ``symmetric``.

    Raises:
        SpecError: another form.

    >>> [round(float(sparse_mean_bias_bound(16, 48, 64, form=form)), 4) for form in ("printed", "any", "symmetric")]
    [0.0625, 0.25, 0.125]

    Source: DeMo, Lemma 2 and Remark 2.
    """
    if form not in get_args(BiasForm):
        raise SpecError("form", form, one_of(get_args(BiasForm), form))
    left, n = 1 - np.divide(k, dimension), np.asarray(workers, dtype=float)
    shares = {"printed": left / np.sqrt(n), "any": left * np.ones_like(n), "symmetric": np.sqrt(left / n)}
    return np.asarray(np.asarray(largest, dtype=float) * shares[form])


def equal_sizes_bias(workers: int, k: int, dimension: int, average: Literal["senders", "all"] = "senders") -> float:
    """Root mean square of that bias, exactly, for entries of plus or minus 1.

    Which are sent is then a matter of chance. Over ``all`` workers: ``sqrt((1 - k/d) / n)``. Over the ``senders``, of
    whom there are j with probability ``C(n, j) (k/d)^j (1 - k/d)^(n - j)``, the mean square is ``1/j - 1/n``, and
    ``1/n`` if nobody sends.

    Args:
        workers: n.
        k: entries sent of each vector.
        dimension: d.
        average: over whom the sent entries are averaged.

    Raises:
        SpecError: another average.

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


def coin_mean_bias(k: int, dimension: int, ones: float, average: Literal["senders", "all"] = "senders") -> float:
    """The bias that remains with any number of workers where entries are 1 with probability p and 0 otherwise.

    The largest are ones while there are any: of S ones ``min(k, S)`` are sent. So the senders' mean tends to ``E min(k,
    S) / k`` and that over all workers to ``E min(k, S) / d``, where the true mean is p.

    Args:
        k: entries sent of each vector, at least 1.
        dimension: d.
        ones: p.
        average: over whom the sent entries are averaged.

    Raises:
        SpecError: another average.

    >>> round(coin_mean_bias(32, 64, 0.5), 4), round(coin_mean_bias(32, 64, 0.5, "all"), 4)
    (0.4503, -0.0248)

    Source: the binomial distribution, against DeMo's Lemma 2.
    """
    if average not in ("senders", "all"):
        raise SpecError("average", average, one_of(("senders", "all"), average))
    chance = [comb(dimension, s) * ones**s * (1 - ones) ** (dimension - s) for s in range(dimension + 1)]
    sent = sum(chance[s] * min(k, s) for s in range(dimension + 1))
    return sent / (k if average == "senders" else dimension) - ones


class SignumBound(NamedTuple):
    """Parts of the bound on the mean 1-norm of the gradient.

    Attributes:
        descent: ``Delta / (eta T) + eta L d / 2``.
        noise: ``2 sqrt(d) sigma / sqrt(M)`` of the workers' mean gradient.
        left_out: ``2 sqrt(d) (1 + beta) R chi / (1 - beta chi)``, what the sent components differ by from the gradient.
    """

    descent: FloatArray
    noise: FloatArray
    left_out: FloatArray

    @property
    def whole(self) -> FloatArray:
        """Their sum."""
        return np.asarray(self.descent + self.noise + self.left_out)


def signum_step(steps: ArrayLike, gap: ArrayLike, smoothness: ArrayLike, dimension: ArrayLike) -> FloatArray:
    """The step size that minimises the descent's part: ``sqrt(2 Delta / (L d T))``.

    Args:
        steps: T.
        gap: Delta = f(x_0) - f*.
        smoothness: L.
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
    kept: ArrayLike,
) -> SignumBound:
    """Bound on the mean over T steps of ``E ||grad f||_1`` for DeMo with sign updates, averages over all workers.

    From ``f(x - eta sign q) <= f(x) - eta <grad, sign q> + eta^2 L d / 2``, ``<grad, sign q> >= ||grad||_1 - 2 ||grad -
    q||_1`` and ``q - g = beta m - m'``, the momentum kept back before and after the step. Only the first part falls
    with T: the second needs larger batches, the third ``k = d``.

    Args:
        eta: step size.
        steps: T.
        gap: Delta = f(x_0) - f*.
        smoothness: L, of f's gradient in the 2-norm.
        dimension: d, parameters.
        noise: sigma, root mean square norm of a worker's gradient noise.
        workers: M.
        beta: decay of the momentum.
        kept: bound on the momentum kept back, `kept_momentum_bound`.

    >>> told = {"gap": 1.0, "smoothness": 1.0, "dimension": 4, "noise": 1.0, "workers": 4, "beta": 0.9}
    >>> [float(part) for part in signum_bound(0.01, 10_000, **told, kept=0.0)]
    [0.03, 2.0, 0.0]

    Source: DeMo, Theorems 1 and 2, by the steps of their proof at alpha = 1.
    """
    root = 2 * np.sqrt(np.asarray(dimension, dtype=float))
    rate = np.asarray(eta, dtype=float)
    descent = np.asarray(gap, dtype=float) / (rate * steps) + rate * np.multiply(smoothness, dimension) / 2
    left_out = root * (1 + np.asarray(beta, dtype=float)) * kept
    return SignumBound(np.asarray(descent), np.asarray(root * noise / np.sqrt(workers)), np.asarray(left_out))


def dct_variances(size: int, correlation: float) -> FloatArray:
    """Variances of the DCT-II's coefficients of a chunk whose neighbours are correlated: ``diag(C R C^T)``.

    ``R_ij = rho^|i - j|``, variance 1. In two dimensions coefficients have the products of both sides' variances.

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
    """How uneven variances are, their arithmetic over their geometric mean: 1 where nothing is compacted.

    Source: N. Jayant, P. Noll, "Digital Coding of Waveforms" (1984), the gain of transform coding.

    >>> round(compaction_gain(dct_variances(64, 0.9)), 3)
    5.107
    """
    of = np.asarray(variances, dtype=float)
    return float(of.mean() / np.exp(np.log(of).mean()))


def gaussian_top_share(fraction: ArrayLike) -> FloatArray:
    """The share of the energy in the largest of many gaussian coefficients of equal variance.

    ``2 [t phi(t) + Q(t)]`` where a fraction ``2 Q(t)`` is beyond t: in a basis that compacts nothing.

    Args:
        fraction: k / d, in (0, 1].

    Raises:
        SpecError: a fraction out of range.

    >>> round(float(gaussian_top_share(32 / 4096)), 4)
    0.0695

    Source: the truncated second moment of the normal distribution.
    """
    of = np.asarray(fraction, dtype=float)
    require((of > 0) & (of <= 1), "fraction", of, "in (0, 1]")
    t = -ndtri(of / 2)
    return np.asarray(2 * (t * np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi) + ndtr(-t)))
