"""One forward, one backward, on as many stages as there are ranks."""

import torch
import torch.distributed as dist
from common import STEPS, WIDTH, tell
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
stages = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(size)]
stage = PipelineStage(stages[rank], rank, size, torch.device("cpu"))
schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, target: (out - target).square().mean())
optimizer = torch.optim.SGD(stages[rank].parameters(), lr=0.1)
draw = torch.Generator().manual_seed(0)
losses: list[torch.Tensor] = []
for _ in range(STEPS):
    x = torch.randn(16, WIDTH, generator=draw)
    losses = []
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    elif rank == size - 1:
        schedule.step(target=x, losses=losses)
    else:
        schedule.step()
    optimizer.step()
tell("1f1b", stages[rank], torch.stack(losses).mean() if losses else None, rank=size - 1)
