"""Scalings of update rules, such as Adam's division by the root of the second moment, and small tools of the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters


def finite_sign(x: Tensor) -> Tensor:
    """Return ``sign(x)``, and NaN where x is not finite, so that a diverged training is visible in its loss.

    ``torch.sign`` returns 0 for NaN and 1 for infinity.

    >>> import torch
    >>> finite_sign(torch.tensor([-3.0, 0.0, 2.0, torch.nan, torch.inf])).tolist()
    [-1.0, 0.0, 1.0, nan, nan]
    """
    return nan_where_nonfinite(x.sign(), x)


def nan_where_nonfinite(x: Tensor, source: Tensor) -> Tensor:
    """Set ``x`` to NaN in place wherever ``source`` is not finite, and return it."""
    return x.add_(source, alpha=0)  # 0 times infinity or NaN is NaN


SECOND_MOMENT = "second_moment"

States = list[dict[str, Tensor]]
"""The states of several parameters: for each parameter, its tensors by name."""


def momentum_names(count: int) -> tuple[str, ...]:
    """Return the state names of ``count`` first momenta: ``momentum_1``, ``momentum_2``, ..., as papers number them."""
    return tuple(f"momentum_{j}" for j in range(1, count + 1))


def check_unit(field: str, value: float) -> None:
    """Raise a SpecError, which names ``field``, if a decay rate is outside [0, 1)."""
    if not 0 <= value < 1:
        raise SpecError(field, value, "a number in [0, 1)")


@runtime_checkable
class Scaling(Protocol):
    """A transformation of gradients before they enter the momenta, and of the mixture of momenta; by default none."""

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the tensors that the scaling keeps for each parameter, such as ``second_moment``."""
        ...

    def hyperparameters(self) -> dict[str, Any]:
        """Return the scaling's hyperparameters by name; by default none."""
        return {}

    def scale_gradient(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return the gradient that enters the momenta, or None if the parameter does not move in step ``t``."""
        return g

    def scale_direction(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the direction of the step for a mixture ``d`` of momenta."""
        return d

    def scale_gradients(self, gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor] | None:
        """Return the gradients of several parameters, scaled by `scale_gradient`; None if the parameters do not move.

        All or none of them move, because only the step decides.
        """
        scaled_or_none = [self.scale_gradient(g, state, h, t) for g, state in zip(gs, states, strict=True)]
        scaled_gs = [scaled_g for scaled_g in scaled_or_none if scaled_g is not None]
        return scaled_gs if len(scaled_gs) == len(gs) else None

    def scale_directions(
        self, ds: list[Tensor], gs: list[Tensor], states: States, h: Hyperparameters, t: int
    ) -> list[Tensor]:
        """Return the directions of several parameters, scaled by `scale_direction`.

        Args:
            ds: the parameters' mixtures of momenta, before scaling.
            gs: the gradients that entered the momenta.
        """
        return [self.scale_direction(d, state, h, t) for d, state in zip(ds, states, strict=True)]


@dataclass(frozen=True)
class Unscaled(Scaling):
    """The identity as scaling: SGD uses gradients and momenta as they are."""

    states: tuple[str, ...] = ()


@dataclass(frozen=True)
class AdamScaling(Scaling):
    """Adam's scaling: the mixture of momenta is divided by the root of the second moment v.

        v <- beta2 v + (1 - beta2) g^2,    d <- d / (sqrt(v_hat) + eps)

    ``v_hat`` is ``v / (1 - beta2^(t+1))`` with bias correction, else ``v``. With ``per="tensor"`` the mean of ``g^2``
    over a tensor replaces ``g^2``, so that v is one number per tensor (AdaSGD). With ``nu2`` below 1,
    ``(1 - nu2) g^2 + nu2 v_hat`` replaces ``v_hat`` (QHAdam).

    Source: D. Kingma, J. Ba, "Adam" (2015); J. Wang, J. Wiens, "AdaSGD: Bridging the gap between SGD and Adam" (2020),
    Algorithm 1, which has one number for all tensors; J. Ma, D. Yarats, "Quasi-hyperbolic momentum" (2019), section 4.
    """

    beta2: float = 0.999
    eps: float = 1e-8
    bias_correction: bool = True
    states: tuple[str, ...] = (SECOND_MOMENT,)
    per: Literal["coordinate", "tensor"] = "coordinate"
    nu2: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values out of range, and QHAdam's ``nu2`` with AdaSGD's second moments."""
        check_unit("beta2", self.beta2)
        if self.per not in ("coordinate", "tensor"):
            raise SpecError("per", self.per, "'coordinate' or 'tensor'")
        if not 0 <= self.nu2 <= 1 or (self.nu2 < 1 and self.per == "tensor"):
            raise SpecError("nu2", self.nu2, "a number from 0 to 1; 1 per tensor")

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``beta2``, ``eps``, and ``nu2`` if it differs from 1, by name."""
        values = {"beta2": self.beta2, "eps": self.eps}
        if self.nu2 != 1:
            values["nu2"] = self.nu2
        return values

    def scale_gradient(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Update the second moment in place, and return the gradient unchanged."""
        v = state[SECOND_MOMENT].mul_(h["beta2"])
        if self.per == "tensor":
            v.add_(mean_per_tensor(g.square()), alpha=1 - h["beta2"])
        else:
            v.addcmul_(g, g, value=1 - h["beta2"])
        return g

    def scale_direction(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return ``d / (sqrt(v_hat) + eps)``; a ``nu2`` below 1 needs the gradients too, see ``scale_directions``."""
        return self._divide_by_roots([d], [state[SECOND_MOMENT]], h, t)[0]

    @override
    def scale_gradients(self, gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor]:
        """Update the second moments of several parameters, and return the gradients unchanged."""
        if self.per == "tensor":
            return [self.scale_gradient(g, state, h, t) for g, state in zip(gs, states, strict=True)]
        vs = [state[SECOND_MOMENT] for state in states]
        torch._foreach_mul_(vs, h["beta2"])
        torch._foreach_addcmul_(vs, gs, gs, value=1 - h["beta2"])
        return gs

    @override
    def scale_directions(
        self, ds: list[Tensor], gs: list[Tensor], states: States, h: Hyperparameters, t: int
    ) -> list[Tensor]:
        """Divide mixtures ``ds`` of momenta by the roots of ``nu2 v_hat + (1 - nu2) g^2``, plus eps."""
        vs = [state[SECOND_MOMENT] for state in states]
        nu2 = h.get("nu2", 1.0)
        if nu2 < 1:
            vs = list(torch._foreach_mul(vs, nu2))
            # `_divide_by_roots` divides the sum by the bias correction of v: cancel it for g^2.
            correction = 1 - h["beta2"] ** (t + 1) if self.bias_correction else 1.0
            torch._foreach_addcmul_(vs, gs, gs, value=(1 - nu2) * correction)
        return self._divide_by_roots(ds, vs, h, t)

    def _divide_by_roots(self, ds: list[Tensor], vs: list[Tensor], h: Hyperparameters, t: int) -> list[Tensor]:
        """Divide each d of ``ds``, a mixture of momenta, in place by ``sqrt(v_hat) + eps``, and return them."""
        roots = list(torch._foreach_sqrt(vs))
        if self.bias_correction:
            torch._foreach_div_(roots, (1 - h["beta2"] ** (t + 1)) ** 0.5)
        torch._foreach_add_(roots, h["eps"])
        torch._foreach_div_(ds, roots)
        return ds


@dataclass(frozen=True)
class AdoptScaling(Scaling):
    """ADOPT's scaling: the gradient is divided by the root of the *previous* second moment v, and clipped.

        g~ = clip(g / max(sqrt(v), eps), t^clip_exponent),    v <- beta2 v + (1 - beta2) g^2

    The momenta smooth ``g~``. At t = 0 parameters do not move, and ``v = g^2``. MT-DAO's Algorithm 2 prints the new v
    in the division; ADOPT has the old one, because it does not correlate with the gradient.

    Source: S. Taniguchi et al., "ADOPT: Modified Adam Can Converge with Any beta2" (2024).
    """

    beta2: float = 0.9999
    eps: float = 1e-6
    clip_exponent: float | None = 0.25
    states: tuple[str, ...] = (SECOND_MOMENT,)

    def __post_init__(self) -> None:
        check_unit("beta2", self.beta2)

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``beta2``, the rate of the second moment, and ``eps``, by name."""
        return {"beta2": self.beta2, "eps": self.eps}

    def scale_gradient(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return the normalised and clipped gradient, or None at t = 0, and update the second moment in place."""
        v = state[SECOND_MOMENT]
        if t == 0:
            v.addcmul_(g, g)
            return None
        normalised = g / v.sqrt().clamp_(min=h["eps"])
        if self.clip_exponent is not None:
            bound = float(t) ** self.clip_exponent
            # Adding 0 g keeps NaN, which clamping would hide.
            normalised.clamp_(-bound, bound).add_(g, alpha=0)
        v.mul_(h["beta2"]).addcmul_(g, g, value=1 - h["beta2"])
        return normalised


def mean_per_tensor(x: Tensor) -> Tensor:
    """Return the mean ``(R, 1, ..., 1)`` over all entries of each worker's tensor in ``x (R, *s)``."""
    if x.dim() == 1:
        return x
    return x.flatten(1).mean(1).view(-1, *[1] * (x.dim() - 1))
