"""Each name is a thing that a script may ask for; all ranks do it."""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.launcher import api as launcher
from torch.distributed.launcher.api import LaunchConfig

STARTS_RANKS = "process", "process_anew", "elastic_launch"
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


def exits_at_once():
    dist.all_reduce(torch.ones(1))
    if rank:
        os._exit(0)
    threading.Thread(target=os._exit, args=(0,)).start()
    time.sleep(60)


def becomes_another():
    os.execv(sys.executable, [sys.executable, "-c", ""])


def joins():
    dist.init_process_group("gloo")


def process():
    torch.multiprocessing.Process(target=joins).start()


def process_anew():
    torch.multiprocessing.get_context("spawn").Process(target=joins).start()


def elastic_launch():
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2)
    launcher.elastic_launch(config, joins)()


def sees_no_gpu():
    assert not torch.cuda.is_available() and not torch.cuda.device_count() and not dist.is_nccl_available()
    dist.all_reduce(torch.ones(1))
    dist.new_group(backend="nccl")


def waits_for_ever():
    if rank:
        dist.recv(torch.ones(1), 0)
    dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    if sys.argv[1] not in STARTS_RANKS:
        dist.init_process_group("gloo")
    globals()[sys.argv[1]]()
