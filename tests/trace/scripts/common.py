"""What the scripts here share: a small network, its batches, a training loop, what is printed."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

WIDTH, STEPS = 32, 5


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def batches(seed: int, device: str | torch.device = "cpu", rows: int = 16) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(rows, WIDTH, generator=draw) for _ in range(STEPS)]
    return [(x.to(device), x[:, :10].argmax(1).to(device)) for x in drawn]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int | None = None) -> torch.Tensor:
    for x, y in batches(dist.get_rank() if seed is None else seed):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def tell(name: str, model: nn.Module, loss: torch.Tensor | None, rank: int = 0) -> None:
    """Every digit of the loss and of the sum of all parameters."""
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    total = sum(p.detach().double().sum().item() for p in whole)
    if dist.get_rank() == rank:
        print("told:", name, None if loss is None else loss.item(), total, flush=True)
    dist.barrier()
    dist.destroy_process_group()
