"""MT-DAO: several momenta of different time scales, each averaged at its own period."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from syncline.errors import SpecError
from syncline.optim.base import OuterOptimizer, UpdateRule
from syncline.optim.matrices import MatrixSplit, Orthogonalised
from syncline.optim.method import Method
from syncline.optim.rules import (
    SECOND_MOMENT,
    AdamScaling,
    AdoptScaling,
    MomentumRule,
    Scaling,
    Unscaled,
    check_unit,
)
from syncline.optim.sync import Periodic

Base = Literal["adam", "adopt", "sgdm", "muon"]


def multi_momentum_rule(
    base: Base,
    betas: Sequence[float],
    omegas: Sequence[float],
    *,
    beta2: float | None = None,
    eps: float | None = None,
    bias_correction: bool = True,
) -> UpdateRule:
    """N momenta over Adam's, ADOPT's or no scaling; a rate left out takes the base's own default.

    ADOPT and SGDM have no bias correction in Algorithms 2 and 3; the switch acts on Adam alone. With Muon a matrix's
    mixture of momenta is orthogonalised, and everything else is Adam's.
    """
    if base not in ("adam", "adopt", "sgdm", "muon"):
        raise SpecError("base", base, "'adam', 'adopt', 'sgdm' or 'muon'")
    given: dict[str, Any] = {name: v for name, v in (("beta2", beta2), ("eps", eps)) if v is not None}
    scaling: Scaling = Unscaled()
    if base in ("adam", "muon"):
        scaling = AdamScaling(**given, bias_correction=bias_correction)
    elif base == "adopt":
        scaling = AdoptScaling(**given)
    corrected = bias_correction and base in ("adam", "muon")
    rule = MomentumRule(tuple(betas), tuple(omegas), scaling, bias_correction=corrected)
    if base != "muon":
        return rule
    return MatrixSplit(MomentumRule(tuple(betas), tuple(omegas), Orthogonalised()), rule)


def mt_dao_periods(
    rule: UpdateRule, period: int, momentum_periods: Sequence[int] | None, second_moment_period: int | None
) -> dict[str, int]:
    """K_x, K_j and K_v by state; a period left out is K_x.

    Raises:
        SpecError: if there is not one period per momentum.
    """
    names = tuple(state for state in rule.states if state != SECOND_MOMENT)
    k_j = [period] * len(names) if momentum_periods is None else list(momentum_periods)
    if len(k_j) != len(names):
        raise SpecError("momentum_periods", tuple(k_j), f"one period per momentum ({len(names)})")
    periods = {"params": period, **dict(zip(names, k_j, strict=True))}
    if SECOND_MOMENT in rule.states:
        periods[SECOND_MOMENT] = period if second_moment_period is None else second_moment_period
    return periods


class MTDAO(Method):
    """Local steps along a mixture of gradient and slow momenta, with an averaging period per state.

        u_j <- beta_j u_j + (1 - beta_j) g
        x   <- x - lr [(1 - sum omega_j) g + sum omega_j u_j] / (sqrt(v) + eps)

    and parameters, each momentum and the second moment averaged every ``K_x``, ``K_j``, ``K_v`` steps. A momentum whose
    half-life is long against its period remembers the common direction from one average to the next. What travels:
    ``4 N (1/K_x + sum_j 1/K_j + 1/K_v)`` bytes per step. ``N = 1, omega = 1`` is Local Adam;
    ``omega = 0`` has no momentum.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        betas: decay rates of the N momenta.
        omegas: their weights, sum at most 1; the gradient has the rest.
        base: ``adam``, ``adopt`` or ``sgdm`` (Algorithms 1, 2, 3), or ``muon`` (Appendix H.7).
        beta2: decay of the second moment; the base's default if none.
        eps: the base's default if none.
        bias_correction: correct momenta and second moment for their start at zero (Adam only).
        period: K_x.
        momentum_periods: K_j, one per momentum; K_x if none.
        second_moment_period: K_v; K_x if none.
        phase: ``aligned`` averages every state at the end of its period, so that equal periods travel together;
            ``paper`` is Algorithms 2 and 3 to the letter: momenta when ``t % K == 0``, parameters when
            ``(t + 1) % K_x == 0``.
        outer: what is done with averaged parameters; adopted if none.
        switch_step: until this step, the base optimizer: one momentum of decay ``warmup_beta`` with all the weight.
            0 is MT-DAO from the start.
        warmup_beta: decay of all momenta until the switch.
        **options: ``weight_decay``, ``clip_norm`` (rho), ``wire``, ``comm``, ``worker_axis`` of ``Method``.

    Raises:
        SpecError: for rates, weights or periods out of range.

    Source: MT-DAO, Algorithms 1 to 3. Algorithm 1 as printed reads no average; 2 and 3 fix the form used here.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        betas: Sequence[float] = (0.999,),
        omegas: Sequence[float] = (0.95,),
        base: Base = "adam",
        beta2: float | None = None,
        eps: float | None = None,
        bias_correction: bool = True,
        period: int = 32,
        momentum_periods: Sequence[int] | None = None,
        second_moment_period: int | None = None,
        phase: Literal["aligned", "paper"] = "aligned",
        outer: OuterOptimizer | None = None,
        switch_step: int = 0,
        warmup_beta: float = 0.9,
        **options: Any,
    ) -> None:
        if switch_step < 0:
            raise SpecError("switch_step", switch_step, "an integer >= 0")
        if switch_step and not betas:
            raise SpecError("switch_step", switch_step, "0 where there is no momentum to switch")
        check_unit("warmup_beta", warmup_beta)
        rule = multi_momentum_rule(base, betas, omegas, beta2=beta2, eps=eps, bias_correction=bias_correction)
        if phase not in ("aligned", "paper"):
            raise SpecError("phase", phase, "'aligned' or 'paper'")
        periods = mt_dao_periods(rule, period, momentum_periods, second_moment_period)
        offsets = dict.fromkeys(rule.states, 1) if phase == "paper" else None
        self._before_switch = {"switch_step": switch_step, "warmup_beta": warmup_beta} if switch_step else {}
        super().__init__(params, lr, rule, Periodic(periods, offsets), outer=outer, **options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Torch's, with what the rule does until the switch."""
        super().add_param_group({**self._before_switch, **param_group})
