"""Processes that exchange through memory do what a group of torch.distributed does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from syncline.comm import CarriedCollective, ProcessGroupCommunicator, SharedMemory, SimulatedCommunicator
from syncline.comm.wire import BF16
from syncline.errors import SpecError

SMALL = 4096


def on_threads(run: Callable[[ProcessGroupCommunicator, SharedMemory], Any], folder: Path, processes: int) -> list[Any]:
    """What each of several groups' members finds; threads map the same file as processes would."""
    found: list[Any] = [None] * processes

    def of(rank: int) -> None:
        memory = SharedMemory(folder / "memory", processes, rank, SMALL, timeout_s=10.0)
        found[rank] = run(ProcessGroupCommunicator(transport=memory), memory)

    threads = [threading.Thread(target=of, args=(rank,)) for rank in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def everything(comm: Any) -> dict[str, torch.Tensor]:
    """One of each collective, several times over, of numbers that tell where they are from."""
    rank = torch.tensor([float(worker) for worker in comm.local_workers])
    out = {}
    for turn in range(5):
        x = (rank[:, None] + 1) * torch.arange(1.0, 8.0) + turn
        blocks = (rank[:, None, None] + 1) * torch.arange(1.0, 13.0).view(1, 3, 4) + turn
        for op in ("mean", "sum", "max"):
            out[f"all_reduce {op} {turn}"] = comm.all_reduce(x, op)
        out[f"bf16 {turn}"] = comm.all_reduce(x, wire=BF16)
        out[f"all_gather {turn}"] = comm.all_gather(x)
        out[f"gather {turn}"] = comm.gather(x, root=1)
        out[f"reduce {turn}"] = comm.reduce(x, root=1)
        out[f"all_to_all {turn}"] = comm.all_to_all(blocks)
        out[f"reduce_scatter {turn}"] = comm.reduce_scatter(blocks)
        out[f"broadcast {turn}"] = comm.broadcast(x, root=2)
    return {name: value.clone() for name, value in out.items()}


def test_every_collective_as_the_simulator_has_it(tmp_path: Path) -> None:
    simulated = everything(SimulatedCommunicator(3))
    found = on_threads(lambda comm, _: everything(comm), tmp_path, 3)
    for name, expected in simulated.items():
        torch.testing.assert_close(torch.cat([one[name] for one in found]), expected, msg=name)


def test_what_a_transport_is_asked_for(tmp_path: Path) -> None:
    def run(comm: ProcessGroupCommunicator, memory: SharedMemory) -> tuple[list[CarriedCollective], int]:
        comm.all_reduce(torch.ones(1, 6), wire=BF16)
        comm.all_reduce(torch.ones(1, 6))
        return memory.take_carried() + memory.take_carried(), comm.ledger.payload_bytes()

    # Six numbers of two bytes in four blocks of two there, and two numbers back from everyone; then 24 bytes at once.
    asked = [
        CarriedCollective("all_to_all", 16),
        CarriedCollective("all_gather", 4),
        CarriedCollective("all_reduce", 24),
    ]
    assert on_threads(run, tmp_path, 4) == [(asked, 12 + 24)] * 4


def test_waiting_for_the_others_is_timed_by_itself(tmp_path: Path) -> None:
    late = threading.Event()

    def run(comm: ProcessGroupCommunicator, memory: SharedMemory) -> int:
        if memory.rank == 1:
            late.wait(0.05)
        comm.all_reduce(torch.ones(1, 6))
        return memory.stood_in_ns

    first_ns, last_ns = on_threads(run, tmp_path, 2)
    assert first_ns > last_ns


def test_somebody_who_does_not_come(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "memory", 2, 0, SMALL, timeout_s=0.01)
    with pytest.raises(TimeoutError, match="another process did not join"):
        memory.all_reduce(torch.ones(3), maximum=False)
    with pytest.raises(TimeoutError, match="rank 0 did not begin"):
        SharedMemory(tmp_path / "other", 2, 1, SMALL, timeout_s=0.01)


@pytest.mark.parametrize(("place", "field"), [((0, 0), "processes"), ((2, 2), "rank"), ((2, -1), "rank")])
def test_no_such_group(tmp_path: Path, place: tuple[int, int], field: str) -> None:
    with pytest.raises(SpecError) as error:
        SharedMemory(tmp_path / "memory", *place)
    assert error.value.path == field


def test_a_tensor_that_is_too_large(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "memory", 1, 0, SMALL)
    with pytest.raises(SpecError, match="at most 4096"):
        memory.broadcast(torch.ones(SMALL), 0)
