"""Update rules with several momenta, or with Nesterov's: QHM, QHAdam, QHADOPT, AggMo, MT-DAO, AdEMAMix, NAdam."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, UpdateRule
from syncline.optim.matrices import MatrixSplit, Orthogonalised
from syncline.optim.rules import MomentumRule
from syncline.optim.scalings import (
    SECOND_MOMENT,
    AdamScaling,
    AdoptScaling,
    Scaling,
    Unscaled,
    check_unit,
    momentum_names,
)


def qhm(momentum: float = 0.999, nu: float = 0.7) -> MomentumRule:
    """Return quasi-hyperbolic momentum (QHM): SGD by a mixture of the gradient g and its momentum u.

        u <- beta u + (1 - beta) g;   d = (1 - nu) g + nu u

    ``nu`` 1 is ``sgdm`` in its ``ema`` form, ``nu`` 0 plain SGD, and ``nu = beta`` is Nesterov's momentum.

    Source: J. Ma, D. Yarats, "Quasi-hyperbolic momentum and Adam for deep learning" (2019), equations (1) and (2).
    """
    return MomentumRule(betas=(momentum,), omegas=(nu,), scaling=Unscaled())


def qhadam(
    beta1: float = 0.995, beta2: float = 0.999, nu1: float = 0.7, nu2: float = 1.0, eps: float = 1e-8
) -> MomentumRule:
    """Return QHAdam: Adam whose first moment u is mixed with the gradient g, and whose second moment v with g^2.

        d = [(1 - nu1) g + nu1 u^] / (sqrt((1 - nu2) g^2 + nu2 v^) + eps)

    ``u^`` and ``v^`` are Adam's corrected moments. ``nu1 = nu2 = 1`` is Adam.

    Source: J. Ma, D. Yarats, "Quasi-hyperbolic momentum and Adam for deep learning" (2019), section 4, with its
    recommended rates.
    """
    scaling = AdamScaling(beta2, eps, nu2=nu2)
    return MomentumRule(betas=(beta1,), omegas=(nu1,), scaling=scaling, bias_correction=True)


def qhadopt(beta1: float = 0.999, beta2: float = 0.9999, nu: float = 0.98, eps: float = 1e-6) -> MomentumRule:
    """Return QHADOPT: ADOPT whose momentum, with weight ``nu``, is mixed with the normalised gradient.

    With ``nu`` 1 it is ADOPT.

    Source: MT-DAO, Algorithm 2 with one momentum; section 4.1 and Figure 5 use it as a baseline.
    """
    return MomentumRule(betas=(beta1,), omegas=(nu,), scaling=AdoptScaling(beta2, eps))


def aggmo(betas: Sequence[float] = (0.0, 0.9, 0.99)) -> MomentumRule:
    """Return aggregated momentum (AggMo): SGD by the mean of K heavy-ball momenta u_j of the gradient g.

        u_j <- beta_j u_j + g;   d = 1/K sum_j u_j

    A momentum of decay rate 0 is the gradient and needs no state. With one momentum the rule is ``sgdm``.

    Source: J. Lucas, S. Sun, R. Zemel, R. Grosse, "Aggregated Momentum" (2019), equation (3), and its default rates.
    """
    nonzero_betas = tuple(beta for beta in betas if beta)
    weights = (1 / len(betas),) * len(nonzero_betas)  # the gradient gets the weight of a beta of 0
    return MomentumRule(nonzero_betas, weights, Unscaled(), form="heavy-ball")


Base = Literal["adam", "adopt", "sgdm", "muon"]


def multi_momentum_rule(
    base: Base,
    betas: Sequence[float],
    omegas: Sequence[float],
    *,
    beta2: float | None = None,
    eps: float | None = None,
    bias_correction: bool = True,
    **switch: Any,
) -> UpdateRule:
    """Return the rule of MT-DAO: several momenta of different time scales, mixed with the gradient and scaled.

    The base ``sgdm`` does not scale the mixture; ``muon`` orthogonalises the mixtures of matrices and uses Adam's
    scaling for other parameters.

    Args:
        base, betas, omegas, beta2, eps, bias_correction: see `syncline.methods.parts.rules.MomentaFields`.
        **switch: ``switch_step`` and ``warmup_beta`` of ``MomentumRule``.

    Source: MT-DAO, Algorithms 1 to 3, and appendix H.7 for Muon.
    """
    if base not in ("adam", "adopt", "sgdm", "muon"):
        raise SpecError("base", base, "'adam', 'adopt', 'sgdm' or 'muon'")
    options: dict[str, Any] = {name: value for name, value in (("beta2", beta2), ("eps", eps)) if value is not None}
    scaling: Scaling = Unscaled()
    if base in ("adam", "muon"):
        scaling = AdamScaling(**options, bias_correction=bias_correction)
    elif base == "adopt":
        scaling = AdoptScaling(**options)
    is_corrected = bias_correction and base in ("adam", "muon")  # ADOPT and SGD have no bias correction
    rule = MomentumRule(tuple(betas), tuple(omegas), scaling, bias_correction=is_corrected, **switch)
    if base != "muon":
        return rule
    matrix_rule = MomentumRule(tuple(betas), tuple(omegas), Orthogonalised(), **switch)
    return MatrixSplit(matrix_rule, other_rule=rule)


@dataclass(frozen=True)
class AdEMAMix(UpdateRule):
    """AdEMAMix: Adam with a second, much slower momentum s of the gradient g, which has weight alpha.

        u <- beta1 u + (1 - beta1) g,    s <- beta3 s + (1 - beta3) g,    v <- beta2 v + (1 - beta2) g^2
        d = (u^ + alpha s) / (sqrt(v^) + eps)

    u^ and v^ are corrected for their start at zero, s is not. alpha and beta3 can have a warmup, see ``alpha_at`` and
    ``beta3_at``.

    Args:
        beta1: decay of the fast momentum u, in [0, 1).
        beta2: decay of the second moment, in [0, 1).
        beta3: decay of the slow momentum s, in [0, 1).
        alpha: weight of the slow momentum s, at least 0; with 0 the rule is Adam.
        eps: added to the root.
        alpha_warmup_steps: number of steps in which the weight grows to ``alpha``; with 0 it is constant.
        beta3_warmup_steps: number of steps in which the decay rate of s grows to ``beta3``; with 0 it is constant.

    Source: M. Pagliardini, P. Ablin, D. Grangier, "The AdEMAMix Optimizer: Better, Faster, Older" (2025), Algorithm 1
    and the schedules of section 3; defaults of its public code.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    beta3: float = 0.9999
    alpha: float = 2.0
    eps: float = 1e-8
    alpha_warmup_steps: int = 0
    beta3_warmup_steps: int = 0
    states: tuple[str, ...] = (*momentum_names(2), SECOND_MOMENT)

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2", "beta3"):
            check_unit(name, getattr(self, name))
        for name in ("alpha", "alpha_warmup_steps", "beta3_warmup_steps"):
            if not getattr(self, name) >= 0:
                raise SpecError(name, getattr(self, name), "at least 0")

    def hyperparameters(self) -> dict[str, Any]:
        """Return by name ``betas`` of both momenta, ``beta2``, ``alpha``, ``eps`` and the steps of both warmups."""
        warmups = {"alpha_warmup_steps": self.alpha_warmup_steps, "beta3_warmup_steps": self.beta3_warmup_steps}
        rates = {"betas": (self.beta1, self.beta3), "beta2": self.beta2, "alpha": self.alpha, "eps": self.eps}
        return {**rates, **warmups}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        (beta1, beta3), beta2 = h["betas"], h["beta2"]
        alpha = alpha_at(h["alpha"], t, h["alpha_warmup_steps"])
        beta3 = beta3_at(beta1, beta3, t, h["beta3_warmup_steps"])
        fast_name, slow_name = momentum_names(2)
        u, s, v = state[fast_name], state[slow_name], state[SECOND_MOMENT]
        u.lerp_(g, 1 - beta1)
        s.lerp_(g, 1 - beta3)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        d = (u / (1 - beta1 ** (t + 1))).add_(s, alpha=alpha)
        root = (v / (1 - beta2 ** (t + 1))).sqrt_().add_(h["eps"])
        return d.div_(root)


def alpha_at(alpha: float, t: int, warmup_steps: int) -> float:
    """Return AdEMAMix's weight of the slow momentum at step ``t`` (from 0), which grows linearly in the warmup.

    >>> [alpha_at(2.0, t, 4) for t in range(5)]
    [0.5, 1.0, 1.5, 2.0, 2.0]
    """
    if not warmup_steps:
        return alpha
    return alpha * min(1.0, (t + 1) / warmup_steps)


def beta3_at(beta1: float, beta3: float, t: int, warmup_steps: int) -> float:
    """Return AdEMAMix's decay rate of the slow momentum at step ``t`` (from 0), whose half-life grows in the warmup.

        1 / ln beta(t) = (1 - s) / ln beta1 + s / ln beta3,    s = (t + 1) / warmup_steps

    >>> [round(beta3_at(0.9, 0.999, t, 4), 5) for t in range(4)]
    [0.99612, 0.99802, 0.99867, 0.999]
    """
    s = (t + 1) / warmup_steps if warmup_steps else 1.0
    if s >= 1 or beta3 <= beta1:
        return beta3
    beta1_term = (1 - s) / math.log(beta1) if beta1 else 0.0  # 1 / ln 0 is 0
    return math.exp(1 / (beta1_term + s / math.log(beta3)))


DECAY_BASE = 0.96
"""Base of NAdam's momentum schedule (T. Dozat, 2016, section 3; ``torch.optim.NAdam``)."""


@dataclass(frozen=True)
class NesterovAdam(UpdateRule):
    """NAdam: Adam with Nesterov momentum; the direction uses the momentum's weight in the next step.

        mu_t = beta1 (1 - 1/2 0.96^(t psi)),    u <- beta1 u + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2
        d = [(1 - mu_t) g / (1 - prod_{i <= t} mu_i) + mu_{t+1} u / (1 - prod_{i <= t+1} mu_i)] / (sqrt(v_hat) + eps)

    Here t counts from 1. A large beta1 counteracts delayed gradients in asynchronous pipelines.

    Args:
        beta1: decay rate of the momentum, in [0, 1).
        beta2: decay rate of the second moment, in [0, 1).
        eps: number added to the root of the second moment.
        momentum_decay: psi, at least 0, which sets how fast the momentum's weight mu_t grows to ``beta1``.

    Source: T. Dozat, "Incorporating Nesterov Momentum into Adam" (2016), in the form of ``torch.optim.NAdam``; T.
    Ajanthan et al., "Nesterov Method for Asynchronous Pipeline Parallel Optimization" (2025) with beta1 0.99.
    """

    beta1: float = 0.99
    beta2: float = 0.999
    eps: float = 1e-8
    momentum_decay: float = 0.004
    states: tuple[str, ...] = (*momentum_names(1), SECOND_MOMENT)

    def __post_init__(self) -> None:
        check_unit("beta1", self.beta1)
        check_unit("beta2", self.beta2)
        if self.momentum_decay < 0:
            raise SpecError("momentum_decay", self.momentum_decay, "at least 0")

    def hyperparameters(self) -> dict[str, Any]:
        """Return by name the values of ``betas``, ``beta2``, ``eps`` and ``momentum_decay``."""
        return {"betas": (self.beta1,), "beta2": self.beta2, "eps": self.eps, "momentum_decay": self.momentum_decay}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        (beta1,), beta2, psi = h["betas"], h["beta2"], h["momentum_decay"]  # the names of `NesterovAdam`
        (momentum_name,) = momentum_names(1)
        u, v = state[momentum_name], state[SECOND_MOMENT]
        u.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        mu_t = nadam_weight(beta1, psi, t)
        mu_next = nadam_weight(beta1, psi, t + 1)
        mu_product = nadam_weight_product(beta1, psi, t)  # mu_0 to mu_t
        d = g * ((1 - mu_t) / (1 - mu_product)) + u * (mu_next / (1 - mu_product * mu_next))
        root = (v / (1 - beta2 ** (t + 1))).sqrt_().add_(h["eps"])
        return d.div_(root)


def nadam_weight(beta1: float, momentum_decay: float, t: int) -> float:
    """Return NAdam's weight mu of the momentum at step t (from 0): ``beta1 (1 - 1/2 0.96^((t + 1) psi))``.

    ``psi`` is ``momentum_decay``.
    """
    return float(beta1 * (1 - 0.5 * DECAY_BASE ** ((t + 1) * momentum_decay)))


def nadam_weight_product(beta1: float, momentum_decay: float, t: int) -> float:
    """Return the product of NAdam's weights ``nadam_weight`` over the steps 0 to t."""
    num_steps = 1 << t.bit_length()  # the next power of two above t, so that few lists of products are cached
    return _weight_products(beta1, momentum_decay, num_steps)[t]


@lru_cache(maxsize=16)
def _weight_products(beta1: float, momentum_decay: float, steps: int) -> list[float]:
    """Return, for each of the first ``steps`` steps t, the product of ``nadam_weight`` over the steps 0 to t."""
    return list(itertools.accumulate((nadam_weight(beta1, momentum_decay, t) for t in range(steps)), operator.mul))
