"""The same calls in two worlds: run here in one process, and again by each of several processes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist

from syncline.comm import BF16, DENSE, Communicator, ProcessGroupCommunicator, SimulatedCommunicator
from syncline.errors import SpecError

INTEGERS = (torch.uint8, torch.int32)


def group_tensor(workers: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(workers, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def all_calls(comm: Communicator, device: str = "cpu") -> tuple[dict[str, torch.Tensor], list]:
    """Every operation of the protocol on the rows that live here, and the ledger it leaves."""
    rows = list(comm.local_workers)
    workers = comm.world_size
    x = group_tensor(workers, 3, 5)[rows].to(device)
    blocks = group_tensor(workers, workers, 7, seed=1)[rows].to(device)
    y = group_tensor(workers, 11, seed=2, dtype=torch.float64)[rows].to(device)
    out = {}
    for wire in (DENSE, BF16):
        for op in ("mean", "sum", "max"):
            out[f"all_reduce {op} {wire.name}"] = comm.all_reduce(x, op=op, wire=wire, label=op)
        out[f"all_gather {wire.name}"] = comm.all_gather(x, wire=wire)
        out[f"gather {wire.name}"] = comm.gather(x, root=workers - 1, wire=wire, label="gathered")
        out[f"reduce {wire.name}"] = comm.reduce(x, root=workers - 1, wire=wire, label="reduced")
        out[f"send {wire.name}"] = comm.send(x, source=workers - 1, target=0, wire=wire, label="sent")
        out[f"all_to_all {wire.name}"] = comm.all_to_all(blocks, wire=wire)
        out[f"reduce_scatter {wire.name}"] = comm.reduce_scatter(blocks, wire=wire)
        out[f"broadcast {wire.name}"] = comm.broadcast(x, root=workers - 1, wire=wire)
        comm.ledger.step += 1
    for dtype in INTEGERS:
        whole = (10 * blocks).to(torch.int32).remainder(256 // workers).to(dtype)
        out[f"all_reduce sum {dtype}"] = comm.all_reduce(whole, op="sum", label="integers")
        out[f"all_reduce max {dtype}"] = comm.all_reduce(whole, op="max", label="integers")
        out[f"reduce_scatter sum {dtype}"] = comm.reduce_scatter(whole, op="sum", label="integers")
        for call in (comm.all_reduce, comm.reduce_scatter):  # the default is the mean
            with pytest.raises(SpecError, match=f"op: got 'mean'; expected sum for integers .{dtype}"):
                call(whole)
    for i, part in enumerate(comm.all_reduce_coalesced([x, y, x[:, 0]], label="coalesced")):
        out[f"coalesced {i}"] = part
    first, second = comm.start_all_reduce([x], label="first"), comm.start_all_gather(y, label="second")
    out["second"], out["first"] = second.wait()[0], first.wait()[0]
    out["flag"] = comm.all_reduce_max(x[:, 0, 0], label="flag")
    return {name: tensor.clone() for name, tensor in out.items()}, comm.ledger.records


def in_process(workers_per_process: int) -> list[tuple[dict[str, torch.Tensor], list]]:
    """Both ways of adding up, in one launch; a copy, as that of an optimizer has, talks over the same group."""
    reproducible = ProcessGroupCommunicator(workers_per_process, dist.group.WORLD, reproducible=True)
    return [all_calls(ProcessGroupCommunicator(workers_per_process)), all_calls(copy.deepcopy(reproducible))]


def in_simulator(workers: int) -> tuple[dict[str, torch.Tensor], list]:
    return all_calls(SimulatedCommunicator(workers))
