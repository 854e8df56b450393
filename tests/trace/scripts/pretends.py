"""What a script sees that believes in its GPUs."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.utils.data import DataLoader, TensorDataset

rank = int(os.environ["LOCAL_RANK"])
mesh = init_device_mesh("cuda", (2,))  # which makes the groups, too
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
assert torch.accelerator.current_accelerator().type == "cuda" and torch.accelerator.device_count() == 2
assert dist.is_nccl_available() and dist.get_backend() == "nccl"
assert torch.device(rank) == device

# A tensor that goes to another device is a copy; one that is there already is itself.
here = torch.ones(2)
there = here.cuda()
there.add_(1)
assert here.sum() == 2 and there.sum() == 4 and not here.is_cuda and there.is_cuda and there.device == device
assert there.to(device) is there or there.to(device).data_ptr() == there.data_ptr()
back = there.cpu()
back.zero_()
assert there.sum() == 4 and back.device.type == "cpu"
assert here.to(rank).data_ptr() != here.data_ptr() and here.to(there).is_cuda and there.to(torch.float64).is_cuda
assert there.type() == "torch.cuda.FloatTensor" and there.get_device() == rank

# What is made of tensors on a device is there; what is made in place stays where it is.
assert (there * 2).is_cuda and torch.zeros_like(there).is_cuda and there.new_zeros(3).is_cuda and there[:1].is_cuda
assert not here.copy_(there).is_cuda
assert torch.zeros(2, device="cuda").is_cuda and not torch.zeros(2).is_cuda
assert torch.zeros(2, device=rank).is_cuda and not torch.zeros_like(there, device="cpu").is_cuda
with torch.device("cuda"):
    assert torch.zeros(2).is_cuda
torch.set_default_device("cuda")
assert torch.zeros(2).is_cuda and torch.get_default_device() == device
torch.set_default_device("cpu")
assert not torch.zeros(2).is_cuda

try:  # torch refuses devices of a module on the CPU
    nn.parallel.DistributedDataParallel(nn.Linear(4, 4), device_ids=[rank])
except ValueError as error:
    assert f"device_ids [{rank}]" in str(error)
else:
    raise AssertionError("device_ids of a module on the CPU")
net = nn.Linear(4, 4).to(rank)
nn.parallel.DistributedDataParallel(net, device_ids=[rank])
net(torch.ones(1, 4, device=device)).sum().backward()
assert net.weight.is_cuda and net.weight.grad.device == device
assert torch.Generator("cuda").manual_seed(1).initial_seed() == 1
pinned = next(iter(DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2, pin_memory=True)))[0]
assert pinned.pin_memory().cuda(non_blocking=True).is_cuda

# A scaler and an autocast of the GPU are those of the CPU.
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert net(torch.ones(1, 4, device=device)).dtype == torch.bfloat16 and torch.is_autocast_enabled("cuda")
assert torch.amp.GradScaler("cuda").scale(torch.ones(1)).item() == 65536

# What is compiled runs as it is.
assert torch.compile(net) is net and net._orig_mod is net


@torch.compile(fullgraph=True)
def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


assert double(there).sum() == 8

# Streams and events answer; memory is not measured; seeds that differ are told of.
stream, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
with torch.cuda.stream(stream):
    assert torch.cuda.current_stream() == stream
end.record()
torch.cuda.synchronize()
print(f"took {begin.elapsed_time(end):.3f} ms")
assert torch.cuda.memory_allocated() == 0 and torch.cuda.mem_get_info()[0] > 0
torch.cuda.nvtx.range_push("x")
torch.manual_seed(1)
torch.cuda.manual_seed(1)
torch.cuda.manual_seed_all(2)

half = distribute_tensor(torch.arange(4.0, device=device), mesh, [Shard(0)])
assert half.to_local().numel() == 2 and half.full_tensor().sum() == 6
parts = [torch.zeros(1 + at, device=device) for at in range(2)]  # NCCL takes parts of several lengths
dist.all_gather(parts, torch.full((1 + rank,), float(rank), device=device))
assert torch.cat(parts).tolist() == [0.0, 1.0, 1.0]
dist.barrier(device_ids=[rank])
dist.destroy_process_group()
