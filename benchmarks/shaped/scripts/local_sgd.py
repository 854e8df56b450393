"""Local SGD: parameters are averaged every few steps, gradients never."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=16)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--period", type=int, default=2)
given = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
layers = [
    nn.Linear(256, given.width),
    nn.ReLU(),
    nn.Linear(given.width, given.width),
    nn.ReLU(),
    nn.Linear(given.width, 256),
]
model = nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
averager = PeriodicModelAverager(period=given.period)
examples = torch.Generator().manual_seed(1 + rank)

for _ in range(given.steps):
    x = torch.randn(given.batch, 256, generator=examples)
    loss = nn.functional.mse_loss(model(x), x.tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    averager.average_parameters(model.parameters())
print(f"rank {rank}: loss {loss.item():.6f}")
dist.destroy_process_group()
