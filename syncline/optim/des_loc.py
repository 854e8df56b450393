"""DES-LOC: local Adam or ADOPT whose states are averaged as seldom as their half-lives allow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from syncline.costmodel import half_life_period
from syncline.optim.mt_dao import MTDAO


class DESLOC(MTDAO):
    """Local Adam or ADOPT with periods ``K_state = max(K_x, round(ln 0.5 / ln beta))``.

    A state that changes slowly need not be averaged often. What travels:
    ``4 N (1/K_x + 1/K_u + 1/K_v)`` bytes per step.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        base: ``adam`` or ``adopt``.
        beta1: decay of the momentum.
        beta2: decay of the second moment; 0.99 for Adam and 0.9999 for ADOPT if none.
        period: K_x.
        momentum_period: K_u; from the half-life if none.
        second_moment_period: K_v; from the half-life if none.
        **options: as ``MTDAO``.

    Source: Iacob et al. (2025); periods and rates as in MT-DAO, Table 3.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        base: Literal["adam", "adopt"] = "adam",
        beta1: float = 0.95,
        beta2: float | None = None,
        period: int = 32,
        momentum_period: int | None = None,
        second_moment_period: int | None = None,
        **options: Any,
    ) -> None:
        if beta2 is None:
            beta2 = DEFAULT_BETA2.get(base)
        k_u = half_life_period(beta1, period) if momentum_period is None else momentum_period
        if second_moment_period is None and beta2 is not None:
            second_moment_period = half_life_period(beta2, period)
        super().__init__(
            params, lr, betas=(beta1,), omegas=(1.0,), base=base, beta2=beta2, period=period, momentum_periods=(k_u,),
            second_moment_period=second_moment_period, **options,
        )  # fmt: skip


DEFAULT_BETA2 = {"adam": 0.99, "adopt": 0.9999}
"""MT-DAO, Table 3, rows DES-LOC-ADAM and DES-LOC-ADOPT."""
