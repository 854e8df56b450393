"""Data parallel, in several buckets."""

import torch
import torch.distributed as dist
from common import net, tell, train
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(net(), bucket_cap_mb=0.01)
loss = train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
tell("ddp", model, loss)
