"""Means of the parameters now and then."""

import torch
import torch.distributed as dist
from common import net, tell, train
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(net())
groups, _ = dist.new_subgroups(1)
model.register_comm_hook(PostLocalSGDState(None, groups, start_localSGD_iter=2), post_localSGD_hook)
local = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = PostLocalSGDOptimizer(local, PeriodicModelAverager(period=2, warmup_steps=2))
tell("post-local sgd", model, train(model, optimizer))
