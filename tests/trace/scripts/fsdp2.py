"""Sharded parameters."""

import torch
import torch.distributed as dist
from common import net, tell, train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh, model = init_device_mesh("cpu", (dist.get_world_size(),)), net()
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
loss = train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
tell("fsdp2", model, loss)
