"""Each name is a thing that a script may ask for; all ranks do it."""

import os
import sys
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])


def fails():
    if rank == 1:
        raise RuntimeError("this rank has had enough")
    dist.all_reduce(torch.ones(1))


def is_completed():
    work = dist.all_reduce(torch.ones(1), async_op=True)
    while not work.is_completed():
        pass


def monitored_barrier():
    dist.monitored_barrier()


def event_query():
    event = torch.cuda.Event()
    event.record()
    event.query()


def clock_decides():
    begun = time.perf_counter()
    dist.barrier()
    print(f"took {time.perf_counter() - begun:.3f} s", min(time.time(), 1.0), flush=True)
    if time.perf_counter() - begun < 3600:
        dist.barrier()


def cuda_graph():
    torch.cuda.CUDAGraph()


def mpi():
    dist.new_group(backend="mpi")


def exits():
    sys.exit(7)


def waits_for_ever():
    if rank:
        dist.recv(torch.ones(1), 0)
    dist.all_reduce(torch.ones(2))


dist.init_process_group("gloo")
globals()[sys.argv[1]]()
