"""Fully sharded data parallelism: parameters are gathered layer by layer, gradients are scattered."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--batch", type=int, default=768)
given = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
layers = [
    nn.Linear(256, given.width),
    nn.ReLU(),
    nn.Linear(given.width, given.width),
    nn.ReLU(),
    nn.Linear(given.width, 256),
]
model = nn.Sequential(*layers)
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
examples = torch.Generator().manual_seed(1 + rank)

for _ in range(given.steps):
    x = torch.randn(given.batch, 256, generator=examples)
    loss = nn.functional.mse_loss(model(x), x.tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank}: loss {loss.item():.6f}")
dist.destroy_process_group()
