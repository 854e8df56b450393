"""Gradients of low rank."""

import torch
import torch.distributed as dist
from common import net, tell, train
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(net())
model.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook)
tell("powersgd", model, train(model, torch.optim.SGD(model.parameters(), lr=0.1)))
