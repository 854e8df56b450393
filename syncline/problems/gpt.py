"""A small GPT: an ordinary module whose blocks can be taken apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from syncline.errors import SpecError
from syncline.problems.experts import Experts, Routing

INIT_STD = 0.02  # GPT-2: A. Radford et al. (2019), Language Models are Unsupervised Multitask Learners


class Attention(nn.Module):
    """Causal self-attention with several heads, ``(batch, time, width)`` to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the causal self-attention output of each position."""
        queries, keys, values = (
            part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        projected: Tensor = self.out(mixed.transpose(-3, -2).flatten(-2))
        return projected


class Block(nn.Module):
    """Attention and a four times wider MLP, or several, each behind a norm and beside a residual path."""

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
        """Map ``(batch, time, width)`` to the same."""
        x = x + self.attention(self.attention_norm(x))
        if self.experts is not None:
            routed: Tensor = self.experts(self.mlp_norm(x))
            return x + routed
        widened = F.gelu(self.up(self.mlp_norm(x)))
        return x + self.down(widened)


def embedding(count: int, width: int) -> nn.Embedding:
    """Return an embedding with uninitialised weights.

    To draw them on the meta device, torch would load its compiler, for a second.
    """
    return nn.Embedding.from_pretrained(torch.empty(count, width), freeze=False)


class GPT(nn.Module):
    """Tokens ``(batch, time)`` to the logits of their successors ``(batch, time, vocabulary)``.

    ``unembed(blocks(embed(tokens)))``: pre-norm, learned positions, no biases, and an output layer that shares the
    token embedding or, untied, has a table of its own. There are ``(vocabulary + context) width + layers (12 width^2 +
    2 width) + width`` parameters, and ``vocabulary width`` more if untied; with E experts a layer has ``4 width^2 + 8 E
    width^2 + E width + 2 width``.

    Args:
        vocabulary: number of tokens.
        context: largest number of tokens in a sequence.
        width: width of the residual path.
        layers: number of blocks.
        heads: number of heads of each attention, a divisor of ``width``.
        tied: whether the output layer is the token embedding.
        routing: routing of tokens to the experts that replace each MLP; None for one MLP per block.

    Raises:
        SpecError: a size is below 1, or ``heads`` does not divide ``width``.

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
        """Map ``(batch, time)`` to logits ``(batch, time, vocabulary)``."""
        return self.unembed(self.blocks(self.embed(tokens)))

    def embed(self, tokens: Tensor) -> Tensor:
        """Map ``(batch, time)`` to ``(batch, time, width)``."""
        embedded: Tensor = self.token(tokens)
        return embedded + self.position.weight[: tokens.shape[-1]]

    def unembed(self, x: Tensor) -> Tensor:
        """Map ``(batch, time, width)`` to logits ``(batch, time, vocabulary)``."""
        return F.linear(self.norm(x), self.token.weight if self.head is None else self.head.weight)


def gpt_weights(module: GPT, source: torch.Generator) -> dict[str, Tensor]:
    """Return fresh weights: draws from N(0, 0.02^2), and ones for norms.

    The two matrices of a block that write to the residual path are smaller by ``1 / sqrt(2 layers)``, so that the sum
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

    ``6 N + 12 layers width context`` with N the weights that multiply activations: all but the norms, the positions,
    a token embedding that is not the output layer too, and experts that a token does not go through.

    Source: A. Chowdhery et al. (2022), PaLM, appendix B.
    """
    width = module.token.embedding_dim
    matrices = sum(parameter.numel() for parameter in module.parameters() if parameter.ndim == 2)
    looked_up = module.position.weight.numel() + (0 if module.head is None else module.token.weight.numel())
    multiplying = matrices - looked_up - sum(map(_idle_weights, module.modules()))
    return 6.0 * multiplying + 12.0 * len(module.blocks) * width * context


def _idle_weights(part: nn.Module) -> int:
    """Return the number of expert weights that a token does not use."""
    if not isinstance(part, Experts):
        return 0
    of_one = sum(parameter.numel() for parameter in part.mlps[0].parameters())
    return of_one * (part.routing.experts - part.routing.per_token)
