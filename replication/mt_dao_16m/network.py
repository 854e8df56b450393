"""The network of MT-DAO's Table 2: a GPT with peri-norm, rotary positions and SiLU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INIT_STD = 0.02
ROTARY_BASE = 10_000.0


class PeriNormGPT(nn.Module):
    """Windows of tokens ``(batch, time + 1)`` to the mean cross-entropy of the last ``time`` of them.

    Each block adds ``norm(attention(norm(x)))`` and ``norm(mlp(norm(x)))`` to the residual path. The output layer is
    the token embedding, there are no biases, and all matrices start from N(0, 0.02^2). CompleteP's factors are 1,
    because this model is the one that the paper tunes and transfers from.

    Args:
        vocabulary: number of tokens.
        width: width of the residual path.
        layers: number of blocks.
        heads: number of heads of each attention.
        compiled: whether torch's compiler makes the kernels of training steps; evaluations stay eager.

    Source: MT-DAO, Table 2 and Appendix B.1; J. Kim et al. (2025), Peri-LN; J. Su et al. (2021), RoFormer.
    """

    def __init__(
        self, vocabulary: int = 50_000, width: int = 256, layers: int = 4, heads: int = 4, compiled: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.compiled, self.calls = heads, compiled, 0
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(PeriNormBlock(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=INIT_STD)

    def forward(self, windows: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats per token."""
        self.calls += 1
        compiled = self.compiled and self.calls > 1 and torch.is_grad_enabled()  # torch counts the first call's FLOPs
        block, loss = block_output, output_loss
        if compiled:
            block, loss = compiled_form(block_output), compiled_form(output_loss)
        tokens = windows.long()
        x = self.token(tokens[:, :-1])
        for weights in self.blocks:
            x = block(x, self.heads, *weights.parameters())
        return loss(x, self.norm.weight, self.token.weight, tokens[:, 1:])


class PeriNormBlock(nn.Module):
    """The weights of attention and of a four times wider MLP, each between two norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm, self.attended_norm, self.mlp_norm, self.output_norm = (
            nn.LayerNorm(width, bias=False) for _ in range(4)
        )
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)


def block_output(
    x: Tensor,
    heads: int,
    attention_norm: Tensor,
    attended_norm: Tensor,
    mlp_norm: Tensor,
    output_norm: Tensor,
    qkv: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
) -> Tensor:
    """Return the residual path ``(batch, time, width)`` after a block."""
    mixed = F.linear(F.layer_norm(x, x.shape[-1:], attention_norm), qkv)
    queries, keys, values = (part.unflatten(-1, (heads, -1)).transpose(-3, -2) for part in mixed.chunk(3, dim=-1))
    attended = F.scaled_dot_product_attention(rotated(queries), rotated(keys), values, is_causal=True)
    projected = F.linear(attended.transpose(-3, -2).flatten(-2), out)
    x = x + F.layer_norm(projected, x.shape[-1:], attended_norm)
    widened = F.silu(F.linear(F.layer_norm(x, x.shape[-1:], mlp_norm), up))
    return x + F.layer_norm(F.linear(widened, down), x.shape[-1:], output_norm)


def rotated(x: Tensor) -> Tensor:
    """Return ``(..., time, size)`` with pairs of features rotated by angles that grow with the position."""
    first, second = x.chunk(2, dim=-1)
    pairs = torch.arange(first.shape[-1], device=x.device, dtype=torch.float32)
    positions = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)
    angles = positions[:, None] * ROTARY_BASE ** (-pairs / first.shape[-1])
    cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


def output_loss(x: Tensor, norm: Tensor, table: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of the targets ``(batch, time)``."""
    logits = F.linear(F.layer_norm(x, x.shape[-1:], norm), table)
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


@cache
def compiled_form(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with the kernels of torch's compiler, whose import takes seconds."""
    return torch.compile(function, dynamic=False)
