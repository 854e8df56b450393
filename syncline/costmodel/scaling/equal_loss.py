"""The token factor: tokens that a method needs for the loss of data parallelism, over those of data parallelism.

A fit gives the ratio r of a method's loss to data parallelism's, on as many tokens each. Laws of parameters and tokens
give the further tokens: with D tokens of data parallelism the method needs D' such that

    mean over the laws of log(L(N, D') / L(N, D)) = -log r,

which is where `predicted_loss` of both is the same. Each of `syncline.costmodel.scaling.published.TOKEN_LAWS` alone
gives a D', too; their spread is combined with the bounds of r.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from syncline.costmodel.scaling.inverse import LossReached, tokens_for_loss
from syncline.costmodel.scaling.predict import TrainingAtScale, predicted_loss
from syncline.costmodel.scaling.published import TOKEN_LAWS, token_shifts
from syncline.costmodel.scaling.relative import RelativeLoss, relative_loss
from syncline.errors import SpecError

ENOUGH_HALVINGS = 40
"""Number of halvings of the interval between the laws' factors, which is at most a few tenths wide."""


def more_tokens(ratio: float, parameters: float, tokens: float) -> tuple[float, float, float] | None:
    """Return the factor of tokens that makes up for an r times larger loss: by the laws' mean, the least, the largest.

    None if by some law no number of tokens is enough.

    >>> tuple(round(factor, 3) for factor in more_tokens(1.01, 1e9, 20e9))
    (1.223, 1.208, 1.241)
    """
    if ratio == 1:
        return 1.0, 1.0, 1.0
    factors = []
    for law in TOKEN_LAWS.values():
        setting = {"parameters": parameters, "tokens": tokens}
        rest = law.value(setting) / ratio - law.floor - law.a * parameters**-law.alpha
        if rest <= 0:
            return None
        factors.append((rest / law.b) ** (-1 / law.beta) / tokens)
    low, high = np.log(min(factors)), np.log(max(factors))
    for _ in range(ENOUGH_HALVINGS):
        middle = (low + high) / 2
        shift = float(np.mean(token_shifts(parameters, tokens * np.exp(middle), tokens)))
        low, high = (middle, high) if shift > -np.log(ratio) else (low, middle)
    return float(np.exp((low + high) / 2)), min(factors), max(factors)


@dataclass(frozen=True)
class TokenFactor:
    """The tokens of a method over those of data parallelism, for the same loss.

    Attributes:
        factor: tokens divided by those of data parallelism.
        low: lower bound, exceeded in nine of ten cases; None if the error of the ratio of losses is unknown.
        high: upper bound, not exceeded in nine of ten cases; None if it is unknown, or if no tokens are enough.
        relative: ratio of the losses on as many tokens, with its fit.
        basis: basis of the bounds.
    """

    factor: float
    low: float | None
    high: float | None
    relative: RelativeLoss
    basis: str

    @property
    def source(self) -> str:
        """Return the fit of the factor, and the measurements that limit its gain if they do."""
        fit = f"fit {self.relative.of.fit.name}{' beyond what it has seen' if self.relative.extrapolation else ''}"
        return f"{fit}; {self.relative.of.gain_limit}" if self.relative.of.gain_limit else fit


def token_factor(trained: TrainingAtScale, extrapolate: bool = False) -> TokenFactor | None:
    """Return the token factor of a training, or None if by some law no number of tokens makes up for its loss.

    Args:
        trained: the training, with the tokens of data parallelism.
        extrapolate: see `predicted_loss`.

    Raises:
        SpecError: see `predicted_loss`.

    >>> estimate = token_factor(TrainingAtScale("diloco", 10e9, 200e9, replicas=2), extrapolate=True)
    >>> f"{estimate.factor:.2f}, {estimate.low:.2f} to {estimate.high:.2f}"
    '0.94, 0.64 to 1.17'
    """
    relative = relative_loss(trained, extrapolate=extrapolate)
    parameters, tokens = relative.of.trained.parameters, relative.of.trained.tokens
    assert tokens is not None
    made_up = more_tokens(relative.ratio, parameters, tokens)
    if made_up is None:
        return None
    factor, smallest, largest = made_up

    def bound(ratio: float | None, edge: float, sign: int) -> float | None:
        """Return the factor at a bound of the ratio; its logarithm and that of the laws' spread add in quadrature."""
        factors = None if ratio is None else more_tokens(ratio, parameters, tokens)
        if factors is None:
            return None
        return float(factor * np.exp(sign * np.hypot(np.log(factors[0] / factor), np.log(edge / factor))))

    basis = f"ratio of losses: {relative.basis}; tokens: spread of {len(TOKEN_LAWS)} laws of parameters and tokens"
    low, high = bound(relative.low, smallest, -1), bound(relative.high, largest, 1)
    return TokenFactor(factor, low, high, relative, basis)


def tokens_for_equal_loss(
    target_loss: float, trained: TrainingAtScale, extrapolate: bool = False
) -> tuple[LossReached, TokenFactor]:
    """Return the tokens to a loss on the scale of data parallelism's fit, and the token factor in them.

    They are the tokens of data parallelism to this loss times the method's token factor, so that methods whose fits are
    of different papers are comparable.

    Args:
        target_loss: target in nats per token.
        trained: the training; its tokens are ignored.
        extrapolate: see `predicted_loss`.

    Raises:
        SpecError: see `tokens_for_loss`; or no number of tokens makes up for the method's loss.
    """
    base = tokens_for_loss(
        target_loss, replace(trained, method="ddp-adam", replicas=1.0, period=None), None, extrapolate
    )
    needed = token_factor(replace(trained, tokens=base.value), extrapolate)
    if needed is None:
        raise SpecError("target_loss", target_loss, f"a loss that {trained.method} reaches by laws of tokens")

    def bound(tokens: float | None, factor: float | None, sign: int) -> float | None:
        if tokens is None or factor is None:
            return None
        logs = np.log([tokens / base.value, factor / needed.factor])
        return float(base.value * needed.factor * np.exp(sign * np.linalg.norm(logs)))

    value = base.value * needed.factor
    prediction = predicted_loss(replace(trained, tokens=value), extrapolate=True)
    bounds = bound(base.low, needed.low, -1), bound(base.high, needed.high, 1)
    return LossReached(value, *bounds, prediction), needed
