"""Data parallel as on GPUs, mixed precision and all; ``says_cuda.py cpu`` is the same without a word of them."""

import os
import sys

import torch
import torch.distributed as dist
from common import batches, net, tell
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, kind = int(os.environ["LOCAL_RANK"]), sys.argv[1]
if kind == "cuda":
    assert torch.cuda.is_available() and torch.cuda.device_count() == int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    torch.cuda.set_device(rank)
    torch.cuda.manual_seed_all(0)
    assert dist.get_backend() == "nccl" and torch.cuda.current_device() == rank
    device = torch.device(f"cuda:{rank}")
    model = DistributedDataParallel(net().cuda(), device_ids=[rank], output_device=rank)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side = torch.cuda.Stream()
    start.record()
else:
    dist.init_process_group("gloo")
    device = torch.device("cpu")
    model = DistributedDataParallel(net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler, dropout = torch.amp.GradScaler(kind), nn.Dropout(0.1)
draw = torch.Generator(device=kind).manual_seed(rank)
for x, y in batches(rank, device):
    noise = torch.randn(x.shape, generator=draw, device=device)
    with torch.autocast(kind, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(dropout(x + 0.1 * noise)), y)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if kind == "cuda":
        assert x.is_cuda and loss.device == device and next(model.parameters()).grad.device.type == "cuda"
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.current_stream())
            seen = loss.detach().to("cpu", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
if kind == "cuda":
    end.record()
    end.synchronize()
    assert isinstance(start.elapsed_time(end), float) and torch.cuda.max_memory_allocated() == 0
    dist.barrier(device_ids=[rank])
tell("cuda", model, loss)
