"""A small GPT whose blocks can be separated into pipeline stages, with MLPs or a mixture of experts.

Sources: N. Shazeer et al. (2017), "Outrageously Large Neural Networks", section 2 (the gate: a softmax of the k largest
logits); W. Fedus et al. (2021), "Switch Transformers", section 2.2 (the balance of loads).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.errors import SpecError


@dataclass(frozen=True)
class Routing:
    """The routing of tokens to the experts of a block.

    Args:
        experts: E, number of experts.
        per_token: k, number of experts that process each token.
        balance: weight of the loss term that balances the experts' loads.
    """

    experts: int
    per_token: int
    balance: float

    def __post_init__(self) -> None:
        if self.experts < 2:
            raise SpecError("problem.experts", self.experts, "at least 2; 1 is an MLP, which has no router")
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
    largest, chosen_experts = logits.topk(per_token, dim=-1)
    return torch.zeros_like(logits).scatter(-1, chosen_experts, largest.softmax(-1))


def balance_loss(logits: Tensor, weights: Tensor) -> Tensor:
    """Return the loss term ``E sum_e f_e P_e``, which is 1 for equal loads of the E experts.

    f_e is the share of choices that fall on expert e, and has no gradient. P_e is the expert's mean probability. The
    term lowers the probability of experts that are chosen often.

    Args:
        logits: the router's outputs, ``(..., E)``.
        weights: the weights that `gates` returns for these logits.
    """
    token_share = (weights > 0).to(logits.dtype).flatten(0, -2).mean(0)
    probability = logits.softmax(-1).flatten(0, -2).mean(0)
    return logits.shape[-1] * (token_share / token_share.sum() * probability).sum()


class _WithLoss(torch.autograd.Function):
    """The identity of a tensor, whose backward pass adds the gradients of a loss term ``added``, times ``weight``.

    The term is not part of the model's output, because a pipeline stage returns only activations.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, added: Tensor, weight: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        _, added, ctx.weight = inputs
        ctx.save_for_backward(added)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (added,) = ctx.saved_tensors
        return grad, torch.full_like(added, ctx.weight), None


class Expert(nn.Module):
    """An MLP with one hidden layer of four times the width, from ``(..., width)`` to the same shape."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the expert to each token separately."""
        projected: Tensor = self.down(F.gelu(self.up(x)))
        return projected


class Experts(nn.Module):
    """A mixture of experts: ``sum_e gate_e(x) expert_e(x)``, from ``(batch, time, width)`` to the same shape.

    Every expert computes every token, so that torch can batch the module over workers. Experts that were not chosen
    have a weight of 0 and get no gradient. The balance loss adds to the gradients.
    """

    def __init__(self, width: int, routing: Routing) -> None:
        super().__init__()
        self.routing = routing
        self.router = nn.Linear(width, routing.experts, bias=False)
        self.mlps = nn.ModuleList(Expert(width) for _ in range(routing.experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated sum of the chosen experts' outputs for each token; the balance loss adds to gradients."""
        logits = self.router(x)
        weights = gates(logits, self.routing.per_token)
        expert_outputs = torch.stack([mlp(x) for mlp in self.mlps], dim=-1)
        mixed = (expert_outputs * weights.unsqueeze(-2)).sum(-1)
        if not self.routing.balance:
            return mixed
        mixed_with_loss: Tensor = _WithLoss.apply(mixed, balance_loss(logits, weights), self.routing.balance)
        return mixed_with_loss


INIT_STD = 0.02
"""Standard deviation of initial weights, as in GPT-2: A. Radford et al. (2019), Language Models are Unsupervised
Multitask Learners."""


class Attention(nn.Module):
    """Causal self-attention with several heads, from ``(batch, time, width)`` to the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the causal self-attention output of each position."""

        def split_heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

        queries, keys, values = self.qkv(x).chunk(3, dim=-1)
        attended = F.scaled_dot_product_attention(
            split_heads(queries), split_heads(keys), split_heads(values), is_causal=True
        )
        projected: Tensor = self.out(attended.transpose(-3, -2).flatten(-2))
        return projected


class Block(nn.Module):
    """A transformer block: attention, then an MLP or experts, each after a norm and added to the residual path."""

    def __init__(self, width: int, heads: int, routing: Routing | None = None) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        if routing is None:
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)
        self.experts = None if routing is None else Experts(width, routing)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations after the block, ``(batch, time, width)``."""
        x = x + self.attention(self.attention_norm(x))
        if self.experts is not None:
            routed: Tensor = self.experts(self.mlp_norm(x))
            return x + routed
        widened = F.gelu(self.up(self.mlp_norm(x)))
        return x + self.down(widened)


def embedding(count: int, width: int) -> nn.Embedding:
    """Return an embedding with uninitialised weights.

    An embedding's constructor would draw weights. On the meta device, torch then imports its compiler for a second.
    """
    return nn.Embedding.from_pretrained(torch.empty(count, width), freeze=False)


class GPT(nn.Module):
    """A GPT from tokens ``(batch, time)`` to the logits of their successors ``(batch, time, vocabulary)``.

    The blocks have norms before attention and MLP, learned positions, and no biases. There are ``(vocabulary + context)
    width + layers (12 width^2 + 2 width) + width`` parameters, and ``vocabulary width`` more if untied; with E experts
    a layer has ``4 width^2 + 8 E width^2 + E width + 2 width``.

    Args:
        vocabulary: number of tokens.
        context: largest number of tokens in a sequence.
        width: width of the residual path.
        layers: number of blocks.
        heads: number of heads of each attention, a divisor of ``width``.
        tied: whether the output layer is the token embedding.
        routing: routing of tokens to the experts that replace each MLP; None for one MLP per block.

    Source: A. Radford et al. (2019), section 2.3, without biases.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        width: int,
        layers: int,
        heads: int,
        tied: bool = True,
        routing: Routing | None = None,
    ) -> None:
        super().__init__()
        for field, size in (("context", context), ("width", width), ("layers", layers), ("heads", heads)):
            if size < 1:
                raise SpecError(f"problem.{field}", size, "an integer of at least 1")
        if width % heads:
            raise SpecError("problem.heads", heads, f"a divisor of the width {width}")
        self.token = embedding(vocabulary, width)
        self.position = embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, routing) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits ``(batch, time, vocabulary)`` of tokens ``(batch, time)``."""
        return self.after_embedding(self.embed(tokens))

    def after_embedding(self, x: Tensor) -> Tensor:
        """Return the logits of embedded tokens ``(batch, time, width)``."""
        return self.unembed(self.blocks(x))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the sum of token and position embeddings, ``(batch, time, width)``, of tokens ``(batch, time)``."""
        embedded: Tensor = self.token(tokens)
        return embedded + self.position.weight[: tokens.shape[-1]]

    def unembed(self, x: Tensor) -> Tensor:
        """Return the logits ``(batch, time, vocabulary)`` of activations ``(batch, time, width)``."""
        return F.linear(self.norm(x), self.token.weight if self.head is None else self.head.weight)


def gpt_weights(module: GPT, source: torch.Generator) -> dict[str, Tensor]:
    """Return initial weights by name: draws from N(0, 0.02^2), and ones for norms.

    The two matrices of a block that add to the residual path are smaller by ``1 / sqrt(2 layers)``, so that the sum
    of all blocks does not grow with the depth.
    """
    residual_std = INIT_STD / math.sqrt(2 * len(module.blocks))
    weights = {}
    for name, parameter in module.named_parameters():
        if parameter.ndim == 1:
            weights[name] = torch.ones(parameter.shape)
        else:
            std = residual_std if name.endswith(("out.weight", "down.weight")) else INIT_STD
            weights[name] = std * torch.randn(parameter.shape, generator=source)
    return weights


def training_flops_per_token(module: GPT, context: int) -> float:
    """Return the FLOPs of a forward and a backward pass per token.

    They are ``6 N + 12 layers width context``, where N counts the weights that multiply activations: all except norms,
    positions, a token embedding that is not also the output layer, and experts that do not process the token.

    Source: A. Chowdhery et al. (2022), PaLM, appendix B.
    """
    width = module.token.embedding_dim
    matrix_weights = sum(parameter.numel() for parameter in module.parameters() if parameter.ndim == 2)
    looked_up_weights = module.position.weight.numel()  # added, not multiplied
    if module.head is not None:  # otherwise the token embedding is also the output layer
        looked_up_weights += module.token.weight.numel()
    idle_weights = 0  # those of experts that do not process the token
    for part in module.modules():
        if isinstance(part, Experts):
            expert_weights = sum(parameter.numel() for parameter in part.mlps[0].parameters())
            idle_weights += expert_weights * (part.routing.experts - part.routing.per_token)
    multiplied_weights = matrix_weights - looked_up_weights - idle_weights
    return 6.0 * multiplied_weights + 12.0 * len(module.blocks) * width * context
