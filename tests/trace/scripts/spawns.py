"""A script that starts its ranks by itself."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank: int, size: int, told: str) -> None:
    dist.init_process_group("nccl", rank=rank, world_size=size)
    x = torch.full((2,), float(rank + 1), device=rank)
    dist.all_reduce(x)
    print(told, rank, x.tolist(), torch.initial_seed())
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.manual_seed(3)
    ranks = int(sys.argv[1])
    mp.spawn(work, args=(ranks, "told:"), nprocs=ranks)
    print("told: all")
