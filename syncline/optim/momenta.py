"""Rules of several momenta, or of a momentum and the gradient itself, by the names that they were published under."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import AdamScaling, AdoptScaling, Unscaled


def qhm(momentum: float = 0.999, nu: float = 0.7) -> MomentumRule:
    """Return quasi-hyperbolic momentum: a share ``nu`` of the momentum, and the rest of the gradient itself.

        u <- beta u + (1 - beta) g;   d = (1 - nu) g + nu u

    ``nu`` 1 is ``sgdm`` in its ``ema`` form, ``nu`` 0 plain SGD, and ``nu = beta`` is Nesterov's momentum.

    Source: J. Ma, D. Yarats, "Quasi-hyperbolic momentum and Adam for deep learning" (2019), equations (1) and (2).
    """
    return MomentumRule((momentum,), (nu,), Unscaled())


def qhadam(
    beta1: float = 0.995, beta2: float = 0.999, nu1: float = 0.7, nu2: float = 1.0, eps: float = 1e-8
) -> MomentumRule:
    """Return QHAdam: Adam whose first moment is mixed with g, and whose second moment with g^2.

        d = [(1 - nu1) g + nu1 u^] / (sqrt((1 - nu2) g^2 + nu2 v^) + eps)

    with Adam's corrected moments ``u^`` and ``v^``. ``nu1 = nu2 = 1`` is Adam.

    Source: J. Ma, D. Yarats (2019), section 4, and its recommended rates.
    """
    return MomentumRule((beta1,), (nu1,), AdamScaling(beta2, eps, nu2=nu2), bias_correction=True)


def qhadopt(beta1: float = 0.999, beta2: float = 0.9999, nu: float = 0.98, eps: float = 1e-6) -> MomentumRule:
    """Return QHADOPT: ADOPT whose momentum is mixed with the normalised gradient; with ``nu`` 1 it is ADOPT.

    Source: MT-DAO, section 4.1 and Figure 5, its baseline in data parallelism: Algorithm 2 with one momentum.
    """
    return MomentumRule((beta1,), (nu,), AdoptScaling(beta2, eps))


def aggmo(betas: Sequence[float] = (0.0, 0.9, 0.99)) -> MomentumRule:
    """Return aggregated momentum, the mean of K heavy-ball momenta.

        u_j <- beta_j u_j + g;   d = 1/K sum_j u_j

    A momentum of decay 0 is the gradient, and keeps nothing. With one it is ``sgdm``.

    Source: J. Lucas, S. Sun, R. Zemel, R. Grosse, "Aggregated Momentum" (2019), equation (3), and its default rates.
    """
    nonzero = tuple(beta for beta in betas if beta)
    return MomentumRule(nonzero, (1 / len(betas),) * len(nonzero), Unscaled(), form="heavy-ball")
