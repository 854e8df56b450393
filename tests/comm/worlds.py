"""The same calls in two worlds: run here in one process, and again by each of several processes."""

from __future__ import annotations

import torch

from syncline.comm import BF16, DENSE, Communicator, ProcessGroupCommunicator, SimulatedCommunicator


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
        out[f"all_to_all {wire.name}"] = comm.all_to_all(blocks, wire=wire)
        out[f"reduce_scatter {wire.name}"] = comm.reduce_scatter(blocks, wire=wire)
        out[f"broadcast {wire.name}"] = comm.broadcast(x, root=workers - 1, wire=wire)
        comm.ledger.step += 1
    for i, part in enumerate(comm.all_reduce_coalesced([x, y, x[:, 0]], label="coalesced")):
        out[f"coalesced {i}"] = part
    first, second = comm.start_all_reduce([x], label="first"), comm.start_all_gather(y, label="second")
    out["second"], out["first"] = second.wait()[0], first.wait()[0]
    out["flag"] = comm.all_reduce_max(x[:, 0, 0], label="flag")
    return {name: tensor.clone() for name, tensor in out.items()}, comm.ledger.records


def in_process(workers_per_process: int, reproducible: bool = False) -> tuple[dict[str, torch.Tensor], list]:
    return all_calls(ProcessGroupCommunicator(workers_per_process, reproducible=reproducible))


def in_simulator(workers: int) -> tuple[dict[str, torch.Tensor], list]:
    return all_calls(SimulatedCommunicator(workers))
