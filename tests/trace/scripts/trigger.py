"""Workers that step alone, with clipped gradients, and average when one of them has gone far enough."""

import torch
import torch.distributed as dist
from common import batches, net, tell
from torch import nn

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
start, met = nn.utils.parameters_to_vector(model.parameters()).detach().clone(), 0
for x, y in batches(rank):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    now = nn.utils.parameters_to_vector(model.parameters()).detach()
    far = (now - start).norm()
    dist.all_reduce(far, dist.ReduceOp.MAX)
    if far > 0.25:
        dist.all_reduce(now)
        start, met = now / size, met + 1
        nn.utils.vector_to_parameters(start.clone(), model.parameters())
tell(f"trigger {met}", model, loss)
