"""Update rules: a momentum times a scaling.

SGDM, Adam and ADOPT share one structure. A rule keeps ``N`` first momenta of the (possibly normalised) gradient, mixes
them with the gradient itself, and scales the mixture:

    u_j <- beta_j u_j + (1 - beta_j) g            (heavy-ball form: without the factor 1 - beta_j)
    d   =  (1 - sum_j omega_j) g + sum_j omega_j u_j

``N = 1, omega = 1`` is the ordinary momentum; ``omega < 1`` is quasi-hyperbolic (Ma & Yarats, 2019); several momenta
are AggMo and AdEMAMix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import BatchedUpdateRule, Hyperparameters, Row, UpdateRule
from syncline.optim.scalings import (
    SECOND_MOMENT,
    AdamScaling,
    AdoptScaling,
    Scaling,
    States,
    Unscaled,
    check_unit,
    momentum_names,
    tensor_mean,
)
from syncline.optim.sharing import decay, with_equal


@dataclass(frozen=True)
class MomentumRule(UpdateRule, BatchedUpdateRule):
    """N first momenta, the weight of each in the direction, and a scaling.

    Args:
        betas: decay rates ``beta_j`` of the momenta, each in [0, 1).
        omegas: weights ``omega_j`` in [0, 1], with sum at most 1; the gradient gets the rest.
        scaling: transformation of gradients before the momenta, and of their mixture, such as Adam's or ADOPT's.
        form: ``ema`` (factor 1 - beta) or ``heavy-ball`` (torch's SGD: ``u <- beta u + g``).
        bias_correction: divide ``u_j`` by ``1 - beta_j^(t+1)`` where it is used; for the ``ema`` form only.
        nesterov: the weights are the decay rates, also where a group or a schedule sets these.
        switch_step: number of first steps in which one momentum of decay ``warmup_beta`` has all the weight; 0 for
            none.
        warmup_beta: decay rate of all momenta in these steps.

    Raises:
        SpecError: for a rate or a weight out of range.

    Source: MT-DAO, Algorithms 1 to 3.
    """

    betas: tuple[float, ...]
    omegas: tuple[float, ...]
    scaling: Scaling
    form: Literal["ema", "heavy-ball"] = "ema"
    bias_correction: bool = False
    nesterov: bool = False
    switch_step: int = 0
    warmup_beta: float = 0.9

    def __post_init__(self) -> None:
        check_unit("warmup_beta", self.warmup_beta)
        for j, beta in enumerate(self.betas):
            check_unit(f"betas.{j}", beta)
        if len(self.omegas) != len(self.betas):
            raise SpecError("omegas", self.omegas, f"as many weights as betas ({len(self.betas)})")
        if any(not 0 <= omega <= 1 for omega in self.omegas) or sum(self.omegas) > 1 + 1e-12:
            raise SpecError("omegas", self.omegas, "weights in [0, 1] with sum at most 1")
        if self.nesterov and self.omegas != self.betas:
            raise SpecError("omegas", self.omegas, f"the betas, {self.betas}, with nesterov")
        if self.form not in ("ema", "heavy-ball"):
            raise SpecError("form", self.form, "'ema' or 'heavy-ball'")
        if self.form == "heavy-ball" and self.bias_correction:
            raise SpecError("bias_correction", True, "false with the heavy-ball form, whose momentum is not an average")

    @property
    def states(self) -> tuple[str, ...]:
        """Return ``momentum_1`` ... ``momentum_N`` and the scaling's."""
        return momentum_names(len(self.betas)) + self.scaling.states

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``betas`` and ``omegas``, where there are momenta, the scaling's, and the switch, if there is one.

        Nesterov's omegas are the betas.
        """
        rates: dict[str, Any] = {"betas": self.betas} if self.betas else {}
        if self.betas and not self.nesterov:
            rates["omegas"] = self.omegas
        switch = {"switch_step": self.switch_step, "warmup_beta": self.warmup_beta} if self.switch_step else {}
        return {**rates, **switch, **self.scaling.hyperparameters()}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        directions = self._of_group([g], [state], h, t)
        return directions[0] if directions else None

    @override
    def directions(self, rows: list[Row], t: int) -> list[Tensor | None]:
        # Those with the same knobs take each operation together: of small ones a call costs more than its arithmetic.
        out: list[Tensor | None] = [None] * len(rows)
        for places in with_equal(rows, tuple(self.hyperparameters())):
            some = [rows[place] for place in places]
            directions = self._of_group([row.g for row in some], [row.state for row in some], some[0].group, t)
            for place, d in zip(places, directions or (), strict=directions is not None):
                out[place] = d
        return out

    def move(self, rows: list[Row], t: int) -> bool:
        """Move parameters and moments in one pass, where Adam has a kernel for it; whether it has."""
        if not (isinstance(self.scaling, AdamScaling) and all(self._is_adam(row.group) for row in rows)):
            return False
        names = (*momentum_names(1), SECOND_MOMENT)
        if not is_worth_fusing([*(row.x for row in rows), *(row.state[name] for row in rows for name in names)]):
            return False
        for places in with_equal(rows, ("lr", "weight_decay", *self.hyperparameters())):
            some = [rows[place] for place in places]
            xs, h = [row.x for row in some], some[0].group
            decay(xs, h)
            moments = Moments([row.g for row in some], *([row.state[name] for row in some] for name in names))
            fused_adam(xs, moments, h["lr"], (h["betas"][0], h["beta2"]), h["eps"], t)
        return True

    def _of_group(self, gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor] | None:
        """Return the directions of parameters that have one set of knobs; None to make no step."""
        seen = self.scaling.before_all(gs, states, h, t)
        if seen is None:
            return None
        # What the gradient itself weighs; rounding in 1 - sum(omega) must not leave a stray 1e-17.
        betas, omegas = momenta_at(h, t) if self.betas else ((), ())
        rest = 1.0 - sum(omegas)
        ds = list(torch._foreach_mul(seen, rest)) if rest > 1e-12 else None
        for j, (name, beta, omega) in enumerate(zip(momentum_names(len(self.betas)), betas, omegas, strict=True)):
            us = [state[name] for state in states]
            if self.form == "ema":
                torch._foreach_lerp_(us, seen, 1 - beta)
            else:
                torch._foreach_mul_(us, beta)
                torch._foreach_add_(us, seen)
            weight = omega / (1 - zero_share(h, j, t)) if self.bias_correction else omega
            if ds is None:
                ds = list(torch._foreach_mul(us, weight))
            else:
                torch._foreach_add_(ds, us, alpha=weight)
        return self.scaling.after_all([torch.zeros_like(g) for g in gs] if ds is None else ds, seen, states, h, t)

    def _is_adam(self, h: Hyperparameters) -> bool:
        """Return whether the rule is Adam as published, for which there are kernels."""
        scaling = self.scaling
        if not (isinstance(scaling, AdamScaling) and scaling.per == "coordinate" and scaling.bias_correction):
            return False
        plain = self.form == "ema" and self.bias_correction and not h.get("switch_step")
        plain = plain and h.get("nu2", 1.0) == 1
        return plain and len(self.betas) == 1 and tuple(h.get("omegas", ())) == (1.0,)

    def lower_bounds(self, state: Mapping[str, Tensor], h: Hyperparameters, t: int) -> dict[str, Tensor]:
        """Return the lower bound of Adam's second moment: ``v >= u_j^2 / C_j``, by Cauchy-Schwarz.

            C = (1 - beta1)^2 / (1 - beta2) * sum_{i <= t} (beta1^2 / beta2)^i

        at most ``1 / (1 - beta2)``, which is one gradient's own. ADOPT's momenta have no unit: it is only not negative.
        """
        if SECOND_MOMENT not in self.states:
            return {}
        bound = torch.zeros_like(state[SECOND_MOMENT])
        if isinstance(self.scaling, AdamScaling):
            betas, _ = momenta_at(h, t) if self.betas else ((), ())
            for momentum, beta in zip(momentum_names(len(self.betas)), betas, strict=True):
                square = state[momentum].square()
                seen = tensor_mean(square) if self.scaling.per == "tensor" else square
                bound = torch.maximum(bound, seen / largest_ratio(beta, h["beta2"], t))
        return {SECOND_MOMENT: bound}


def largest_ratio(beta1: float, beta2: float, t: int) -> float:
    """Return the most that ``u^2 / v`` can be after step ``t``: C of ``MomentumRule.least``.

    >>> [round(largest_ratio(0.9, beta2, 1000), 1) for beta2 in (0.9, 0.999)]
    [1.0, 52.9]
    """
    single = 1 / (1 - beta2)
    if beta1**2 >= beta2:  # the momentum remembers longer: the sum grows without end
        return single
    ratio = beta1**2 / beta2
    return min(single, (1 - beta1) ** 2 * single * (1 - ratio ** (t + 1)) / (1 - ratio))


def momenta_at(h: Hyperparameters, t: int) -> tuple[Sequence[float], Sequence[float]]:
    """Return decay rates and weights at step ``t``; before ``switch_step``, those of one ordinary momentum."""
    if t < h.get("switch_step", 0):
        count = len(h["betas"])
        return [h["warmup_beta"]] * count, [1.0] + [0.0] * (count - 1)
    return h["betas"], h.get("omegas", h["betas"])


def zero_share(h: Hyperparameters, j: int, t: int) -> float:
    """Return the weight of the zero start in momentum j after step ``t``: the product of its decay rates so far."""
    before = min(t + 1, h.get("switch_step", 0))
    warm = h["warmup_beta"] ** before if before else 1.0
    return float(warm * h["betas"][j] ** (t + 1 - before))


def sgdm(momentum: float = 0.0, form: Literal["ema", "heavy-ball"] = "heavy-ball") -> MomentumRule:
    """Return stochastic gradient descent with momentum; with 0 it is plain SGD.

    ``heavy-ball``: ``u <- beta u + g`` (torch's ``SGD``). ``ema``: ``u <- beta u + (1 - beta) g`` (MT-DAO, Algorithm
    3); the same path at a learning rate ``1 / (1 - beta)`` times as large.
    """
    check_unit("momentum", momentum)
    if momentum == 0:
        return MomentumRule((), (), Unscaled())  # no state to keep, and none to send
    return MomentumRule((momentum,), (1.0,), Unscaled(), form=form)


def adam(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, bias_correction: bool = True) -> MomentumRule:
    """Return Adam (Kingma & Ba, 2015); with the method's ``weight_decay`` it is AdamW."""
    return MomentumRule((beta1,), (1.0,), AdamScaling(beta2, eps, bias_correction), bias_correction=bias_correction)


def ada_sgd(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> MomentumRule:
    """Return AdaSGD (Wang & Wiens, 2020): Adam with one second moment per tensor instead of one per element."""
    return MomentumRule((beta1,), (1.0,), AdamScaling(beta2, eps, per="tensor"), bias_correction=True)


def adopt(beta1: float = 0.9, beta2: float = 0.9999, eps: float = 1e-6) -> MomentumRule:
    """Return ADOPT (Taniguchi et al., 2024): Adam that converges with any ``beta2``."""
    return MomentumRule((beta1,), (1.0,), AdoptScaling(beta2, eps))


WORTH = 3 * 2**14
"""Numbers of a worker, parameters and moments, from which on the kernel pays; fewer take operations on all at once."""


def is_worth_fusing(xs: Sequence[Tensor]) -> bool:
    """Return whether to use the kernel for ``(R, *s)``; the answer does not depend on the number of local workers."""
    first = xs[0]
    has_kernel = first.device.type == "cpu" and first.dtype in (torch.float32, torch.float64)
    if not has_kernel or sum(x.numel() // x.size(0) for x in xs) < WORTH:
        return False
    return all(x.is_contiguous() for x in xs)  # it goes through memory in order


class Moments(NamedTuple):
    """Gradients, first and second moments of several parameters ``(R, *s)``."""

    gs: Sequence[Tensor]
    us: Sequence[Tensor]
    vs: Sequence[Tensor]


def fused_adam(
    xs: Sequence[Tensor], moments: Moments, lr: float, betas: tuple[float, float], eps: float, t: int
) -> None:
    """Make Adam's step ``x <- x - lr u_hat / (sqrt(v_hat) + eps)`` in place, on parameters x and on their moments.

    Here u is the first moment and v the second, and hats are corrected for their start at zero. The kernel gets the
    tensors of each worker separately, because it rounds the end of a tensor differently from its inside. A worker's
    result therefore does not depend on the other workers of the process.

    Args:
        xs: parameters, contiguous, as moments are.
        moments: first and second moments of the parameters.
        lr: learning rate.
        betas: decay rates of u and v.
        eps: added to the root.
        t: number of the step, from 0.
    """
    gradients = [g if g[0].is_contiguous() else g.contiguous() for g in moments.gs]
    params, gs, us, vs = (
        [row for x in some for row in x.unbind(0)] for some in (xs, gradients, moments.us, moments.vs)
    )
    steps = [torch.tensor(float(t + 1))] * len(params)
    torch._fused_adam_(
        params, gs, us, vs, [], steps, lr=lr, beta1=betas[0], beta2=betas[1], weight_decay=0.0, eps=eps, amsgrad=False,
        maximize=False,
    )  # fmt: skip
