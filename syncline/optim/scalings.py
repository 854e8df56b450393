"""Scalings of update rules: what is done to a gradient before the momenta see it, and to their mixture after.

Signs that do not hide what is not a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Hyperparameters


def finite_sign(x: Tensor) -> Tensor:
    """Return ``sign(x)``, and NaN where x is not finite.

    Torch's sign of NaN is 0 and of infinity 1: a coordinate would stand still, or run away, for good, and no loss would
    tell. No value is read back for it.

    >>> import torch
    >>> finite_sign(torch.tensor([-3.0, 0.0, 2.0, torch.nan, torch.inf])).tolist()
    [-1.0, 0.0, 1.0, nan, nan]
    """
    return nan_where_nonfinite(x.sign(), x)


def nan_where_nonfinite(x: Tensor, source: Tensor) -> Tensor:
    """Set ``x`` to NaN in place wherever ``source`` is not finite, and return it."""
    return x.add_(source, alpha=0)


SECOND_MOMENT = "second_moment"

States = list[dict[str, Tensor]]
"""Of several parameters."""


def momentum_names(count: int) -> tuple[str, ...]:
    """Return the state names of ``count`` first momenta: ``momentum_1``, ``momentum_2``, ..., as papers number them."""
    return tuple(f"momentum_{j}" for j in range(1, count + 1))


def check_unit(field: str, value: float) -> None:
    """Refuse a decay rate outside [0, 1)."""
    if not 0 <= value < 1:
        raise SpecError(field, value, "a number in [0, 1)")


@runtime_checkable
class Scaling(Protocol):
    """A transformation of a gradient before the momenta see it, and of their mixture afterwards; by default none."""

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the tensors kept per parameter."""
        ...

    def hyperparameters(self) -> dict[str, Any]:
        """Return knobs and their values."""
        return {}

    def before(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return the gradient that the momenta see; None to make no step."""
        return g

    def after(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the direction for a mixture of momenta."""
        return d

    def before_all(self, gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor] | None:
        """Return ``before`` of several parameters of a group; by itself one after the other."""
        seen = [self.before(g, state, h, t) for g, state in zip(gs, states, strict=True)]
        return None if any(value is None for value in seen) else [value for value in seen if value is not None]

    def after_all(self, ds: list[Tensor], gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor]:
        """Return ``after`` of several, likewise; ``gs`` are what the momenta saw."""
        return [self.after(d, state, h, t) for d, state in zip(ds, states, strict=True)]


@dataclass(frozen=True)
class Unscaled(Scaling):
    """The gradient as it is: SGD."""

    states: tuple[str, ...] = ()


@dataclass(frozen=True)
class AdamScaling(Scaling):
    """``v <- beta2 v + (1 - beta2) g^2``; the mixture is divided by ``sqrt(v_hat) + eps`` (Kingma & Ba, 2015).

    ``v_hat = v / (1 - beta2^(t+1))`` with bias correction, else ``v``. Per ``tensor`` the mean of ``g^2`` takes the
    place of ``g^2``, and ``v`` is the same number all over a tensor: the size of a step adapts, its direction does not
    (J. Wang, J. Wiens, "AdaSGD: Bridging the gap between SGD and Adam" (2020), Algorithm 1, there over all tensors).
    With ``nu2`` below 1 the root is of ``(1 - nu2) g^2 + nu2 v_hat`` (QHAdam).
    """

    beta2: float = 0.999
    eps: float = 1e-8
    bias_correction: bool = True
    states: tuple[str, ...] = (SECOND_MOMENT,)
    per: Literal["coordinate", "tensor"] = "coordinate"
    nu2: float = 1.0

    def __post_init__(self) -> None:
        check_unit("beta2", self.beta2)
        if self.per not in ("coordinate", "tensor"):
            raise SpecError("per", self.per, "'coordinate' or 'tensor'")
        if not 0 <= self.nu2 <= 1 or (self.nu2 < 1 and self.per == "tensor"):
            raise SpecError("nu2", self.nu2, "a number from 0 to 1; 1 per tensor")

    def hyperparameters(self) -> dict[str, Any]:
        """Return ``beta2``, ``eps``; ``nu2`` where the gradient's own square has a share."""
        share = {} if self.nu2 == 1 else {"nu2": self.nu2}
        return {"beta2": self.beta2, "eps": self.eps, **share}

    def before(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Update the second moment; the gradient passes as it is."""
        v = state[SECOND_MOMENT].mul_(h["beta2"])
        if self.per == "tensor":
            v.add_(tensor_mean(g.square()), alpha=1 - h["beta2"])
        else:
            v.addcmul_(g, g, value=1 - h["beta2"])
        return g

    def after(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return ``d / (sqrt(v_hat) + eps)``, where a gradient has no share in the root."""
        return self._divided([d], [state[SECOND_MOMENT]], h, t)[0]

    @override
    def before_all(self, gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor] | None:
        if self.per == "tensor":
            return [self.before(g, state, h, t) for g, state in zip(gs, states, strict=True)]
        vs = [state[SECOND_MOMENT] for state in states]
        torch._foreach_mul_(vs, h["beta2"])
        torch._foreach_addcmul_(vs, gs, gs, value=1 - h["beta2"])
        return gs

    @override
    def after_all(self, ds: list[Tensor], gs: list[Tensor], states: States, h: Hyperparameters, t: int) -> list[Tensor]:
        vs = [state[SECOND_MOMENT] for state in states]
        nu2 = h.get("nu2", 1.0)
        if nu2 < 1:
            vs = list(torch._foreach_mul(vs, nu2))
            correction = 1 - h["beta2"] ** (t + 1) if self.bias_correction else 1.0
            torch._foreach_addcmul_(vs, gs, gs, value=(1 - nu2) * correction)  # the correction below takes it back
        return self._divided(ds, vs, h, t)

    def _divided(self, ds: list[Tensor], vs: list[Tensor], h: Hyperparameters, t: int) -> list[Tensor]:
        roots = list(torch._foreach_sqrt(vs))
        if self.bias_correction:
            torch._foreach_div_(roots, (1 - h["beta2"] ** (t + 1)) ** 0.5)
        torch._foreach_add_(roots, h["eps"])
        torch._foreach_div_(ds, roots)
        return ds


@dataclass(frozen=True)
class AdoptScaling(Scaling):
    """Normalise the gradient by the *previous* second moment, clip it, then smooth it (Taniguchi et al., 2024).

    ``v_0 = g_0^2`` and no move at t = 0; then ``g~ = clip(g / max(sqrt(v), eps), t^clip_exponent)`` and
    ``v <- beta2 v + (1 - beta2) g^2``. MT-DAO's Algorithm 2 prints the new ``v`` in the normalisation; the published
    recurrence, used here, has the old one, which is what decorrelates it from the gradient.
    """

    beta2: float = 0.9999
    eps: float = 1e-6
    clip_exponent: float | None = 0.25
    states: tuple[str, ...] = (SECOND_MOMENT,)

    def __post_init__(self) -> None:
        check_unit("beta2", self.beta2)

    def hyperparameters(self) -> dict[str, Any]:
        """Return the values of ``beta2`` and ``eps``."""
        return {"beta2": self.beta2, "eps": self.eps}

    def before(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return the normalised, clipped gradient."""
        v = state[SECOND_MOMENT]
        if t == 0:
            v.addcmul_(g, g)
            return None
        normalised = g / v.sqrt().clamp_(min=h["eps"])
        if self.clip_exponent is not None:
            bound = float(t) ** self.clip_exponent
            # What is not finite stays so: an infinite v would keep its coordinate where it is for good, unseen.
            normalised.clamp_(-bound, bound).add_(g, alpha=0)
        v.mul_(h["beta2"]).addcmul_(g, g, value=1 - h["beta2"])
        return normalised

    def after(self, d: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return ``d`` as it is."""
        return d


def tensor_mean(x: Tensor) -> Tensor:
    """Return the mean of each row's tensor, ``(R, *s)`` to ``(R, 1, ...)``."""
    return x.flatten(1).mean(1).view(-1, *[1] * (x.dim() - 1)) if x.dim() > 1 else x
