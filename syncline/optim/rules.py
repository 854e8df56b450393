"""Update rules with momenta and a scaling: SGD with momentum, Adam, AdaSGD, ADOPT, and Adam's fused kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters, ParamRow, UpdateRule
from syncline.optim.scalings import (
    SECOND_MOMENT,
    AdamScaling,
    AdoptScaling,
    Scaling,
    States,
    Unscaled,
    check_unit,
    mean_per_tensor,
    momentum_names,
)
from syncline.optim.sharing import apply_weight_decay, group_by_hyperparameters


@dataclass(frozen=True)
class MomentumRule(UpdateRule):
    """An update rule with N momenta of the gradient, which are mixed with the gradient and then scaled.

        u_j <- beta_j u_j + (1 - beta_j) g            (heavy-ball form: without the factor 1 - beta_j)
        d   =  (1 - sum_j omega_j) g + sum_j omega_j u_j

    ``N = 1, omega = 1`` is the ordinary momentum, ``omega < 1`` a quasi-hyperbolic one (Ma & Yarats, 2019).

    Args:
        betas: decay rates ``beta_j`` of the momenta, each in [0, 1).
        omegas: weights ``omega_j`` in [0, 1], with sum at most 1; the gradient gets the rest.
        scaling: transformation of gradients before the momenta, and of their mixture, such as Adam's or ADOPT's.
        form: ``ema`` (factor 1 - beta) or ``heavy-ball`` (torch's SGD: ``u <- beta u + g``).
        bias_correction: whether ``u_j`` is divided by ``1 - beta_j^(t+1)`` when it is used; for the ``ema`` form only.
        nesterov: whether the weights are the decay rates, also after a group or a schedule changes the decay rates.
        switch_step: number of first steps in which one momentum of decay ``warmup_beta`` has all the weight; 0 for
            none.
        warmup_beta: decay rate of all momenta in these steps.

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
        """Return the names of the states: ``momentum_1`` to ``momentum_N``, then those of the scaling."""
        return momentum_names(len(self.betas)) + self.scaling.states

    def hyperparameters(self) -> dict[str, Any]:
        """Return the hyperparameters by name: ``betas``, ``omegas``, those of the switch, and those of the scaling.

        There are no ``betas`` without momenta, and no ``omegas`` with ``nesterov``, whose weights are the betas.
        """
        rates: dict[str, Any] = {"betas": self.betas} if self.betas else {}
        if self.betas and not self.nesterov:
            rates["omegas"] = self.omegas
        switch = {"switch_step": self.switch_step, "warmup_beta": self.warmup_beta} if self.switch_step else {}
        return {**rates, **switch, **self.scaling.hyperparameters()}

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        directions = self._group_directions([g], [state], h, t)
        return None if directions is None else directions[0]

    def directions(self, rows: list[ParamRow], t: int) -> list[Tensor | None]:
        """Update the states of several parameters, and return their directions."""
        # Parameters with equal hyperparameters share calls, because a call costs more than a small tensor's arithmetic.
        all_directions: list[Tensor | None] = [None] * len(rows)
        for indices in group_by_hyperparameters(rows, tuple(self.hyperparameters())):
            gradients = [rows[index].g for index in indices]
            states = [rows[index].state for index in indices]
            directions = self._group_directions(gradients, states, h=rows[indices[0]].group, t=t)
            if directions is not None:  # ADOPT's first step moves nothing
                for index, direction in zip(indices, directions, strict=True):
                    all_directions[index] = direction
        return all_directions

    def fused_step(self, rows: list[ParamRow], t: int) -> bool:
        """Move the parameters by torch's fused kernel of Adam, and return True, if that is possible and faster."""
        if not all(self._is_plain_adam(row.group) for row in rows):
            return False
        (first_moment,) = momentum_names(1)
        tensors = []
        for row in rows:
            tensors += [row.x, row.state[first_moment], row.state[SECOND_MOMENT]]
        if not is_worth_fusing(tensors):
            return False
        for indices in group_by_hyperparameters(rows, ("lr", "weight_decay", *self.hyperparameters())):
            equal_rows = [rows[index] for index in indices]
            h = equal_rows[0].group
            xs = [row.x for row in equal_rows]
            apply_weight_decay(xs, h)
            fused_adam(
                xs,
                gs=[row.g for row in equal_rows],
                us=[row.state[first_moment] for row in equal_rows],
                vs=[row.state[SECOND_MOMENT] for row in equal_rows],
                lr=h["lr"], betas=(h["betas"][0], h["beta2"]), eps=h["eps"], t=t,
            )  # fmt: skip
        return True

    def _group_directions(self, gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor] | None:
        """Return the directions of parameters with equal hyperparameters ``h``, or None if they do not move.

        The names are those of `MomentumRule`: ``gs`` are the parameters' gradients g, ``ds`` their directions d, and
        ``us`` their momenta u_j of one decay rate.
        """
        scaled_gs = self.scaling.scale_gradients(gs, states, h, t)
        if scaled_gs is None:
            return None
        betas, omegas = decay_rates_and_weights(h, t) if self.betas else ((), ())  # SGD has no momenta

        # Mix the gradients and the momenta; the mixtures are None until their first term.
        ds: list[Tensor] | None = None
        gradient_weight = 1.0 - sum(omegas)
        if gradient_weight > 1e-12:  # a rounding error of the sum counts as 0
            ds = list(torch._foreach_mul(scaled_gs, gradient_weight))
        for j, name in enumerate(momentum_names(len(self.betas))):
            us = [state[name] for state in states]
            if self.form == "ema":
                torch._foreach_lerp_(us, scaled_gs, 1 - betas[j])
            else:  # heavy-ball
                torch._foreach_mul_(us, betas[j])
                torch._foreach_add_(us, scaled_gs)
            weight = omegas[j]
            if self.bias_correction:
                weight = weight / (1 - initial_zero_weight(h, j, t))
            if ds is None:
                ds = list(torch._foreach_mul(us, weight))
            else:
                torch._foreach_add_(ds, us, alpha=weight)
        assert ds is not None  # without momenta the gradient has weight 1
        return self.scaling.scale_directions(ds, scaled_gs, states, h, t)

    def _is_plain_adam(self, h: Hyperparameters) -> bool:
        """Return whether the rule with hyperparameters ``h`` is Adam as published; torch has a kernel for it."""
        scaling = self.scaling
        if not isinstance(scaling, AdamScaling) or scaling.per != "coordinate" or not scaling.bias_correction:
            return False
        has_one_momentum = len(self.betas) == 1 and tuple(h.get("omegas", ())) == (1.0,) and not h.get("switch_step")
        is_corrected_average = self.form == "ema" and self.bias_correction
        return has_one_momentum and is_corrected_average and h.get("nu2", 1.0) == 1  # below 1, it is QHAdam

    def lower_bounds(self, state: Mapping[str, Tensor], h: Hyperparameters, t: int) -> dict[str, Tensor]:
        """Return a lower bound of the second moment v after step ``t``, by the name of the state.

        Where a compressor has changed v, the bound keeps ``u_j / sqrt(v)`` from growing too large.
        For Adam, momentum ``u_j`` and v of the same gradients satisfy ``v >= u_j^2 / C_j``, see
        ``largest_square_ratio``. For ADOPT, which normalises gradients, the bound is 0.
        """
        if SECOND_MOMENT not in self.states:
            return {}
        bound = torch.zeros_like(state[SECOND_MOMENT])
        if isinstance(self.scaling, AdamScaling):
            betas: Sequence[float] = ()
            if self.betas:
                betas, _weights = decay_rates_and_weights(h, t)
            for momentum, beta in zip(momentum_names(len(self.betas)), betas, strict=True):
                square = state[momentum].square()
                if self.scaling.per == "tensor":  # v is one number per tensor
                    square = mean_per_tensor(square)
                bound = torch.maximum(bound, square / largest_square_ratio(beta, h["beta2"], t))
        return {SECOND_MOMENT: bound}


def largest_square_ratio(beta1: float, beta2: float, t: int) -> float:
    """Return C, the largest possible ``u^2 / v`` of Adam's moments u and v of the same gradients after step ``t``.

        C = (1 - beta1)^2 / (1 - beta2) * sum_{i = 0..t} (beta1^2 / beta2)^i

    It follows from the Cauchy-Schwarz inequality. C is at most ``1 / (1 - beta2)``, the ratio for a single gradient.

    >>> [round(largest_square_ratio(0.9, beta2, 1000), 1) for beta2 in (0.9, 0.999)]
    [1.0, 52.9]
    """
    limit = 1 / (1 - beta2)
    if beta1**2 >= beta2:  # the sum grows without bound
        return limit
    ratio = beta1**2 / beta2
    c = (1 - beta1) ** 2 * limit * (1 - ratio ** (t + 1)) / (1 - ratio)  # a geometric sum
    return min(limit, c)


def decay_rates_and_weights(h: Hyperparameters, t: int) -> tuple[Sequence[float], Sequence[float]]:
    """Return the decay rates and the weights of all momenta at step ``t``.

    Before ``switch_step`` the first momentum has all the weight, and all momenta have the decay rate ``warmup_beta``.
    """
    if t < h.get("switch_step", 0):
        count = len(h["betas"])
        return [h["warmup_beta"]] * count, [1.0] + [0.0] * (count - 1)
    return h["betas"], h.get("omegas", h["betas"])  # Nesterov's weights are the betas


def initial_zero_weight(h: Hyperparameters, j: int, t: int) -> float:
    """Return the product of the decay rates of momentum j in the steps 0 to ``t``: the weight of its initial value, 0.

    Bias correction divides the momentum by 1 minus this weight. Before ``switch_step`` the decay rate is
    ``warmup_beta``.
    """
    warmup_steps = min(t + 1, h.get("switch_step", 0))
    warmup_product = h["warmup_beta"] ** warmup_steps if warmup_steps else 1.0
    return float(warmup_product * h["betas"][j] ** (t + 1 - warmup_steps))


def sgdm(momentum: float = 0.0, form: Literal["ema", "heavy-ball"] = "heavy-ball") -> MomentumRule:
    """Return stochastic gradient descent with momentum u of decay rate beta; with 0 it is plain SGD.

    The form ``heavy-ball`` is ``u <- beta u + g``, as in torch's ``SGD``; ``ema`` is ``u <- beta u + (1 - beta) g``, as
    in MT-DAO's Algorithm 3, and needs a learning rate ``1 / (1 - beta)`` times as large.
    """
    check_unit("momentum", momentum)
    if momentum == 0:
        return MomentumRule(betas=(), omegas=(), scaling=Unscaled())  # no state to store or send
    return MomentumRule(betas=(momentum,), omegas=(1.0,), scaling=Unscaled(), form=form)


def adam(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, bias_correction: bool = True) -> MomentumRule:
    """Return Adam (Kingma & Ba, 2015); with the method's ``weight_decay`` it is AdamW."""
    scaling = AdamScaling(beta2, eps, bias_correction)
    return MomentumRule(betas=(beta1,), omegas=(1.0,), scaling=scaling, bias_correction=bias_correction)


def ada_sgd(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> MomentumRule:
    """Return AdaSGD (Wang & Wiens, 2020): Adam with one second moment per tensor instead of one per element."""
    scaling = AdamScaling(beta2, eps, per="tensor")
    return MomentumRule(betas=(beta1,), omegas=(1.0,), scaling=scaling, bias_correction=True)


def adopt(beta1: float = 0.9, beta2: float = 0.9999, eps: float = 1e-6) -> MomentumRule:
    """Return ADOPT (Taniguchi et al., 2024): Adam that converges with any ``beta2``."""
    return MomentumRule(betas=(beta1,), omegas=(1.0,), scaling=AdoptScaling(beta2, eps))


SMALLEST_FUSED = 3 * 2**14
"""Elements of parameters and moments of one worker from which the fused kernel is faster than separate operations."""


def is_worth_fusing(xs: Sequence[Tensor]) -> bool:
    """Return whether the fused kernel of Adam for CPUs supports the tensors ``(R, *s)`` and is faster for them.

    The answer does not depend on R, the number of local workers.
    """
    first = xs[0]
    has_kernel = first.device.type == "cpu" and first.dtype in (torch.float32, torch.float64)
    elements_per_worker = sum(x.numel() // x.size(0) for x in xs)
    return has_kernel and elements_per_worker >= SMALLEST_FUSED and all(x.is_contiguous() for x in xs)


def fused_adam(
    xs: Sequence[Tensor],
    gs: Sequence[Tensor],
    us: Sequence[Tensor],
    vs: Sequence[Tensor],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    t: int,
) -> None:
    """Make Adam's step ``x <- x - lr u_hat / (sqrt(v_hat) + eps)`` in place, by torch's fused kernel.

    The kernel updates the first moment u and the second moment v, too; hats denote bias correction. It gets the
    tensors of each worker separately, because it rounds the end of a tensor differently from its inside. A worker's
    result therefore does not depend on the other workers of the process.

    Args:
        xs: contiguous parameters ``(R, *s)``.
        gs: gradients of the parameters.
        us: first moments.
        vs: second moments.
        betas: decay rates of u and v.
        eps: number added to the root.
    """
    worker_gs: list[Tensor] = []
    for g in gs:
        worker_gs += (g if g[0].is_contiguous() else g.contiguous()).unbind(0)
    worker_xs, worker_us, worker_vs = ([x for tensor in tensors for x in tensor.unbind(0)] for tensors in (xs, us, vs))
    steps = [torch.tensor(float(t + 1), device="cpu")] * len(worker_xs)
    torch._fused_adam_(
        worker_xs, worker_gs, worker_us, worker_vs, max_exp_avg_sqs=[], state_steps=steps, lr=lr, beta1=betas[0],
        beta2=betas[1], eps=eps, weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip
