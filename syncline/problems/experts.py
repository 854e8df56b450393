"""A mixture of experts in the place of an MLP: a router sends each token through a few of several MLPs.

Source: N. Shazeer et al. (2017), "Outrageously Large Neural Networks", section 2 (the gate: a softmax of the k largest
logits); W. Fedus et al. (2021), "Switch Transformers", section 2.2 (the balance of loads).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.errors import SpecError


@dataclass(frozen=True)
class Routing:
    """The routing of tokens to experts.

    Args:
        experts: E, number of experts.
        per_token: k, number of experts that each token goes through.
        balance: weight of the loss term that balances the experts' loads.

    Raises:
        SpecError: fewer than two experts, more of them per token than there are, or a negative weight.
    """

    experts: int
    per_token: int
    balance: float

    def __post_init__(self) -> None:
        if self.experts < 2:
            raise SpecError("problem.experts", self.experts, "at least 2, or 1 for an MLP without a router")
        if not 1 <= self.per_token <= self.experts:
            expected = f"from 1 to {self.experts}, the experts"
            raise SpecError("problem.experts_per_token", self.per_token, expected)
        if not 0 <= self.balance < float("inf"):
            raise SpecError("problem.balance", self.balance, "a finite number, at least 0")


def gates(logits: Tensor, per_token: int) -> Tensor:
    """Return the experts' weights ``(..., E)``: a softmax over the k largest logits of each token, 0 for the others.

    >>> gates(torch.tensor([[1.0, 3.0, 3.0]]), 2).tolist()
    [[0.0, 0.5, 0.5]]
    """
    largest, chosen = logits.topk(per_token, dim=-1)
    return torch.zeros_like(logits).scatter(-1, chosen, largest.softmax(-1))


def balance_loss(logits: Tensor, weights: Tensor) -> Tensor:
    """Return ``E sum_e f_e P_e``, with f_e the share of choices that fall on an expert and P_e its mean probability.

    It is 1 where all experts are as likely, and pushes down the probability of those that are chosen often. Of f_e
    nothing is differentiated.

    Args:
        logits: the router's outputs, ``(..., E)``.
        weights: the weights that `gates` returns for these logits.
    """
    chosen = (weights > 0).to(logits.dtype).flatten(0, -2).mean(0)
    likely = logits.softmax(-1).flatten(0, -2).mean(0)
    return logits.shape[-1] * (chosen / chosen.sum() * likely).sum()


class _WithLoss(torch.autograd.Function):
    """A tensor as it is, with whose gradient that of a further loss begins: so a loss is added where it arises.

    A pipeline's stage knows its own part of the loss alone, and the model's output is not touched.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, added: Tensor, weight: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        ctx.weight = inputs[2]
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (added,) = ctx.saved_tensors
        return grad, torch.full_like(added, ctx.weight), None


class Expert(nn.Module):
    """An MLP four times as wide, ``(..., width)`` to the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the expert to each token separately."""
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


class Experts(nn.Module):
    """``sum_e gate_e(x) expert_e(x)``, ``(batch, time, width)`` to the same; the loss of the balance is added.

    Every expert computes every token, which a batched pass over many workers can follow; those that were not chosen
    weigh nothing, and get no gradient.
    """

    def __init__(self, width: int, routing: Routing) -> None:
        super().__init__()
        self.routing = routing
        self.router = nn.Linear(width, routing.experts, bias=False)
        self.mlps = nn.ModuleList(Expert(width) for _ in range(routing.experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated sum of the chosen experts' outputs for each token."""
        logits = self.router(x)
        weights = gates(logits, self.routing.per_token)
        mixed = torch.stack([mlp(x) for mlp in self.mlps], dim=-1)
        out = (mixed * weights.unsqueeze(-2)).sum(-1)
        if not self.routing.balance:
            return out
        added: Tensor = _WithLoss.apply(out, balance_loss(logits, weights), self.routing.balance)
        return added
