"""Programs of somebody who knows nothing of the project, to be recorded by shapes."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, HEADS, VOCABULARY, CONTEXT, BATCH, STEPS = 64, 2, 4, 256, 32, 2, 4


class Layer(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, dim=-1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.recompute = recompute

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        logits: Tensor = self.head(x)
        return logits


def distributed(model: nn.Module, words: tuple[str, ...]) -> nn.Module:
    device = next(model.parameters()).device
    if "fsdp2" in words:
        for layer in model.layers:  # type: ignore[union-attr]
            fully_shard(layer)
        fully_shard(model)
    elif "ddp" in words:
        if "unused" in words:
            model.unused = nn.Linear(WIDTH, WIDTH)
        if "accumulate" in words:
            model.register_buffer("count", torch.zeros(3, device=device))
        model = DistributedDataParallel(
            model, bucket_cap_mb=0.1, find_unused_parameters="unused" in words, static_graph="static" in words
        )
        if "bf16_hook" in words:
            model.register_comm_hook(None, bf16_compress_hook)
    elif "split" in words:
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in model.layers:  # type: ignore[union-attr]
            parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def main(*words: str) -> None:
    device = torch.device("cuda" if "cuda" in words else "cpu")
    dist.init_process_group("nccl" if "cuda" in words else "gloo")
    rank = dist.get_rank()
    if "bf16" in words:
        torch.set_default_dtype(torch.bfloat16)
    model = distributed(Model("recompute" in words).to(device), words)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True if "fused" in words else None)
    for _ in range(STEPS):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT), device=device)
        if "accumulate" in words:
            with model.no_sync():  # type: ignore[operator]
                model(tokens).mean().backward()
            outside = model(tokens).mean()  # the forward pass decides
            with model.no_sync():  # type: ignore[operator]
                outside.backward()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        if "clip" in words:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and "log" in words:
            print(loss.item())
        if rank == 0 and "mean" in words:
            loss.detach() + 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
