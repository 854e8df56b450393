"""Objects, groups, messages, means of what is left."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
told: list[object] = [None] * size
dist.all_gather_object(told, {"rank": rank})
heard = [{"from": rank}]
dist.broadcast_object_list(heard, 1)
mine: list[object] = [None]
dist.scatter_object_list(mine, [f"for {one}" for one in range(size)] if not rank else None)
gathered: list[object] | None = [None] * size if not rank else None
dist.gather_object((rank, mine[0]), gathered)
pair = dist.new_group([0, 1], backend="gloo")
x = torch.arange(4.0) + rank
dist.all_reduce(x, group=pair)
if rank == 0:
    dist.send(x, 1)
elif rank == 1:
    dist.recv(x, 0)
y = torch.zeros(3)
ring = [dist.P2POp(dist.isend, x[:3].clone(), (rank + 1) % size), dist.P2POp(dist.irecv, y, (rank - 1) % size)]
for work in dist.batch_isend_irecv(ring):
    work.wait()
parts = [torch.zeros(2) for _ in range(size)]
dist.all_gather(parts, torch.full((2,), float(rank)))
swapped = torch.zeros(size)
dist.all_to_all_single(swapped, torch.arange(float(size)) + 10 * rank)
dist.broadcast(x, 0, async_op=True).wait()
if not rank:
    print("told: by hand", told, heard, gathered, x.tolist(), y.tolist(), torch.stack(parts).tolist(), swapped.tolist())
dist.barrier()
dist.destroy_process_group()
