"""Exchanges and gathers whose parts differ between ranks, as those of experts do."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
sizes = [100 if other == 1 else 1 for other in range(size)]  # of the part of each rank
parameter = nn.Parameter(torch.zeros(1))
optimizer = torch.optim.SGD([parameter])
sent, received = torch.full((sizes[rank] * size,), float(rank)), torch.empty(sum(sizes))
dist.all_to_all_single(received, sent, sizes, [sizes[rank]] * size)
parts = [torch.empty(n) for n in sizes]
dist.all_to_all(parts, list(sent.split(sizes[rank])))
assert torch.equal(torch.cat(parts), received)
dist.all_gather(parts, sent[: sizes[rank]])
assert torch.equal(torch.cat(parts), received)
parameter.grad = received.mean()[None]
optimizer.step()
