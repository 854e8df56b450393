"""Sharded states of the optimizer."""

import torch
import torch.distributed as dist
from common import net, tell, train
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(net())
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
tell("zero1", model, train(model, optimizer))
