"""What a script sees of its surroundings."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
NAMES = (
    "OMP_NUM_THREADS",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
)
if not dist.get_rank():
    print(
        "told: threads", torch.get_num_threads(), [os.environ[name] for name in NAMES], sys.argv, __name__, flush=True
    )
    print("told:", dist.is_torchelastic_launched(), dist.get_node_local_rank(), flush=True)
dist.barrier()
dist.destroy_process_group()
