"""Local processes in one group: what they return, how they fail, and a method as a drop-in under torchrun."""

from __future__ import annotations

import atexit
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessRaisedException

from syncline.backend import run_processes
from syncline.errors import SpecError
from tests.torchrun import TORCHRUN, run


def rank_and_sum(offset: int) -> tuple[int, int, float]:
    x = torch.tensor([float(dist.get_rank() + offset)])
    dist.all_reduce(x)
    return dist.get_rank(), dist.get_world_size(), x.item()


def fail_on_one() -> None:
    if dist.get_rank() == 1:
        raise ValueError("rank 1 gives up")
    dist.barrier()


def linger() -> None:
    time.sleep(3)


def fail_on_one_and_exit_last() -> None:
    """Rank 1 fails first but its process ends after rank 0, which the lost connection makes fail in turn."""
    if dist.get_rank() == 1:
        atexit.register(linger)
    fail_on_one()


def test_results_come_in_order_of_rank() -> None:
    assert run_processes(rank_and_sum, 3, 10) == [(0, 3, 33.0), (1, 3, 33.0), (2, 3, 33.0)]


@pytest.mark.parametrize("target", [fail_on_one, fail_on_one_and_exit_last])
def test_the_first_failure_ends_all_and_is_told(target: Callable[[], None]) -> None:
    with pytest.raises(ProcessRaisedException, match="rank 1 gives up") as caught:
        run_processes(target, 2)
    assert caught.value.error_index == 1


def test_no_processes() -> None:
    with pytest.raises(SpecError, match="processes: got 0"):
        run_processes(rank_and_sum, 0, 0)


def test_drop_in_under_torchrun(tmp_path: Path) -> None:
    """An ordinary module and loop on two processes: averaged gradients, so both end with the same parameters."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import torch, torch.distributed as dist
        from syncline.optim import DDP, adam

        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = DDP(model.parameters(), lr=0.01, rule=adam())
        data = torch.Generator().manual_seed(dist.get_rank())
        for step in range(5):
            optimizer.zero_grad()
            model(torch.randn(8, 4, generator=data)).square().mean().backward()
            optimizer.step()
        weights = [torch.empty_like(model.weight) for _ in range(2)]
        dist.all_gather(weights, model.weight.detach())
        if dist.get_rank() == 0:
            print("equal", torch.equal(*weights), "bytes", optimizer.comm.ledger.payload_bytes())
        dist.destroy_process_group()
        """)
    )
    done = run(*TORCHRUN, "--nproc-per-node", "2", str(script), cwd=tmp_path)
    assert "equal True bytes 100" in done.stdout, done.stderr  # 5 steps x 5 parameters x 4 bytes
