"""An optimizer as somebody outside would write it: LAMB, whose steps are scaled by norms over each layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch


class Lamb(torch.optim.Optimizer):
    """You et al. (2020), Algorithm 2; it puts new tensors in the place of its states in every step."""

    def __init__(
        self, params: Iterable[Any], lr: float, betas: tuple[float, float] = (0.9, 0.999), weight_decay: float = 0.01
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(steps=0, m=torch.zeros_like(p.data), v=torch.zeros_like(p.data))
                state["steps"] += 1
                state["m"] = beta1 * state["m"] + (1 - beta1) * p.grad
                state["v"] = beta2 * state["v"] + (1 - beta2) * p.grad**2
                m = state["m"] / (1 - beta1 ** state["steps"])
                v = state["v"] / (1 - beta2 ** state["steps"])
                update = m / (v.sqrt() + 1e-6) + group["weight_decay"] * p.data
                trust = p.data.norm() / update.norm().clamp(min=1e-12)
                p.data = p.data - group["lr"] * trust.clamp(0.1, 10) * update


class Steady(torch.optim.Optimizer):
    """SGD on gradients that it decays in place, rates counted down in its groups, and a total of its own.

    It has a state per parameter that is no tensor, and reads values, so that it cannot step mere shapes.
    """

    def __init__(self, params: Iterable[Any], lr: float = 0.1, decay: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "rest": 1.0})
        self.total = 0.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["rest"] *= 0.9
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.total += float(p.grad.flatten()[0].item())
                state = self.state[p]
                state["calls"] = state.get("calls", 0) + 1
                norms = state.setdefault("row_norms", p.new_zeros([*p.shape[:1], *[1] * (p.dim() - 1)]))
                p.grad.add_(p, alpha=group["decay"])
                norms += p.grad.abs().sum([*range(1, p.dim())], keepdim=True) if p.dim() > 1 else p.grad.abs()
                scale = 1 + norms + state["calls"] + abs(self.total)
                p.sub_(p.grad / scale, alpha=group["lr"] * group["rest"])

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"total": self.total}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.total = state_dict["total"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "total"})


class Restless(torch.optim.Optimizer):
    """SGD with noise out of two global generators, and one direction that is drawn when it is made."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})
        self.drift = float(torch.rand(()))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    noise = torch.randn_like(p) + np.random.random()  # noqa: NPY002
                    p.sub_(p.grad + noise + self.drift, alpha=group["lr"])
