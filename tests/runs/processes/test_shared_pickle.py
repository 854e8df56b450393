"""What calls to other processes share is written once, and one object in each process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import syncline as sl
from syncline.runs.processes import shared_progress
from syncline.runs.processes.forked import LARGE_BYTES, pickle_calls, unpickle_call


class Data:
    """So many bytes."""

    def __init__(self, size: int) -> None:
        self.content = bytes(size)


def with_number(data: Data, number: int) -> tuple[Data, int]:
    return data, number


def test_what_is_large_is_a_file_and_what_is_small_goes_along(tmp_path: Path) -> None:
    large, small = Data(LARGE_BYTES), Data(10)
    calls = [partial(with_number, one, number) for number, one in enumerate((large, large, small))]
    sent = pickle_calls(calls, [large, small, large], tmp_path)
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 1
    assert all(len(one) < 1000 for one in sent)
    first, second, third = (unpickle_call(one)() for one in sent)
    assert first[0] is second[0] and (first[1], second[1], third[1]) == (0, 1, 2)
    assert (len(first[0].content), len(third[0].content)) == (LARGE_BYTES, 10)


def test_a_sweep_ships_the_data_of_a_problem_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And trains the same as in this process alone."""
    draw = torch.Generator().manual_seed(0)
    items = (torch.randn(4000, 16, generator=draw), torch.randn(4000, 1, generator=draw))
    problem = sl.TorchProblem(partial(torch.nn.Linear, 16, 1), items, torch.nn.functional.mse_loss, batch_size=4)
    made: list[bytes] = []

    def here_by_pickles(calls: list[Any], jobs: int, folder: Path, shared: list[Any]) -> Iterator[Any]:
        made.extend(pickle_calls(calls, shared, folder))
        return (unpickle_call(one)() for one in made)

    monkeypatch.setattr(shared_progress, "call_results", here_by_pickles)
    fields = {"problem": problem, "method": "ddp-sgdm", "network": "wan", "workers": 2, "steps": 3, "seeds": 2}
    here, there = (
        sl.sweep(None, {"method.lr": [0.01, 0.02]}, compute={"seconds": 1e-3}, jobs=jobs, **fields) for jobs in (1, 2)
    )
    assert [row["loss"] for row in here.rows] == [row["loss"] for row in there.rows]
    assert len(made) == 4 and sum(map(len, made)) < sum(part.nbytes for part in items) / 5
