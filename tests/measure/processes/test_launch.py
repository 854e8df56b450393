"""Local processes in one group: what they return, and how they fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.util import Finalize

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessRaisedException

from syncline.errors import SpecError
from tests.processes import run_processes


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
        Finalize(None, linger, exitpriority=0)
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
