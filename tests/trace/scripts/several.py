"""Several scripts in one launch, as importing torch takes longer than they do; with ``apart`` each in a process.

What a script leaves is kept until its process ends: torch can hang where a model with hooks in Python is freed, as it
then waits for a thread of its group, which waits for Python; a script that ends does not notice.
"""

import importlib
import os
import runpy
import shlex
import sys

import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
for name in ("fsdp", "optim", "pipelining", "checkpoint"):  # once for all
    importlib.import_module(f"torch.distributed.{name}")
start = dist.init_process_group
apart = sys.argv[1] == "apart"
left = []
at = None if apart else next(dist.rendezvous("env://"))


def run(number, name):
    def init(*args, **kwargs):  # a store has each key once
        store, rank, size = at or next(dist.rendezvous("env://"))
        return start(*args, store=dist.PrefixStore(f"script {number}", store), rank=rank, world_size=size, **kwargs)

    dist.init_process_group = init
    left.append(runpy.run_path(os.path.join(HERE, name), run_name="__main__"))


for number, words in enumerate(sys.argv[1 + apart :]):
    name, *sys.argv[1:] = shlex.split(words)
    if not apart:
        run(number, name)
        continue
    child = os.fork()
    if not child:
        code = 1
        try:
            run(number, name)
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
