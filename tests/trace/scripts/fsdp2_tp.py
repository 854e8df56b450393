"""Sharded parameters of layers that are cut in two."""

import torch
import torch.distributed as dist
from common import net, tell, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
model = net()
parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["data"])
loss = train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), seed=mesh["data"].get_local_rank())
tell("fsdp2 x tp", model, loss)
