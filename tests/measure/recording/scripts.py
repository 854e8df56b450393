"""Programs of somebody who knows nothing of the project: run by torchrun and by a trace, they print the same."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS = 6


def net(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, clip: float | None = None) -> None:
    rank = dist.get_rank()
    draw = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        x = torch.randn(16, 32, generator=draw)
        loss = nn.functional.cross_entropy(model(x), x[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
            if norm > 2 * clip:  # what the workers do depends on what they see
                dist.all_reduce(torch.ones(3))
        optimizer.step()
    total = sum(
        p.full_tensor().double().sum() if hasattr(p, "full_tensor") else p.double().sum() for p in model.parameters()
    )
    if not rank:
        print(name, loss.item(), float(total), flush=True)


def ddp() -> None:
    model = DistributedDataParallel(net(), bucket_cap_mb=0.01)
    train("ddp", model, torch.optim.AdamW(model.parameters(), lr=1e-3), clip=0.5)


def fsdp2() -> None:
    mesh, model = init_device_mesh("cpu", (dist.get_world_size(),)), net()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train("fsdp2", model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def zero1() -> None:
    model = DistributedDataParallel(net())
    train("zero1", model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3))


def by_hand() -> None:
    """Objects, groups, messages, means of what is left."""
    rank, size = dist.get_rank(), dist.get_world_size()
    told: list[object] = [None] * size
    dist.all_gather_object(told, {"rank": rank})
    pair = dist.new_group([0, 1], backend="gloo")
    x = torch.arange(4.0) + rank
    dist.all_reduce(x, group=pair)
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(x, 0)
    parts = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    work = dist.broadcast(x, 0, async_op=True)
    work.wait()
    dist.reduce(x, 0)
    if not rank:
        print("by hand", told, x.tolist(), torch.stack(parts).tolist(), flush=True)


def main(names: list[str]) -> None:
    dist.init_process_group("gloo")
    for name in names:
        globals()[name]()
    if not dist.get_rank():
        print(
            "threads",
            torch.get_num_threads(),
            os.environ["OMP_NUM_THREADS"],
            os.environ["LOCAL_WORLD_SIZE"],
            flush=True,
        )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
