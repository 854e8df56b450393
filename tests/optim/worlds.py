"""The same training in two worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncline.comm import Communicator, ProcessGroupCommunicator, Record, SimulatedCommunicator, processes
from syncline.problems import Digits, TextGPT
from syncline.training import parameter_groups, rows_of, train
from tests.optim.table import METHODS

STEPS = 100
DIGITS = Digits(hidden=16, batch_size=16, skew=0.5)


@dataclass
class Outcome:
    params: dict[str, torch.Tensor]  # (R, *s)
    states: dict[str, torch.Tensor]
    ledger: list[Record]


def train_row(
    name: str,
    comm: Communicator,
    *,
    steps: int = STEPS,
    seeds: tuple[int, ...] = (0,),
    dtype: torch.dtype = torch.float32,
    problem: Digits | TextGPT = DIGITS,
) -> Outcome:
    task = problem.build(rows_of(comm, seeds), dtype=dtype)
    method = METHODS[name].spec.build(parameter_groups(task), comm)
    train(task, method, seeds, steps)
    states = {
        f"{param}.{state}": tensor
        for param, p in task.params.items()
        for state, tensor in method.state[p].items()
    }  # fmt: skip
    return Outcome({k: p.detach() for k, p in task.params.items()}, states, comm.ledger.records)


# Small, but with everything that makes a transformer's training chaotic in its last bits.
TEXT = TextGPT(width=16, layers=2, heads=2, context=16, batch_size=2)
TEXT_ROWS = ("ddp-adam", "local-adam", "diloco", "mt-dao", "mt-dao-own-periods")


def all_rows_in_process(workers_per_process: int, steps: int, reproducible: bool) -> dict[str, Outcome]:
    def comm() -> Communicator:
        return ProcessGroupCommunicator(workers_per_process, reproducible=reproducible)

    outcomes = {name: train_row(name, comm(), steps=steps) for name in METHODS}
    if reproducible:
        outcomes |= {f"text {name}": train_row(name, comm(), steps=steps, problem=TEXT) for name in TEXT_ROWS}
    return outcomes


def in_process(workers_per_process: int, steps: int) -> dict[bool, dict[str, Outcome]]:
    """Both ways of adding up, in one launch: starting processes takes longer than training in them."""
    return {way: all_rows_in_process(workers_per_process, steps, reproducible=way) for way in (False, True)}


def in_simulator(name: str, workers: int = 4, **options) -> Outcome:
    seeds = options.get("seeds", (0,))
    return train_row(name, SimulatedCommunicator(workers, replicas=len(seeds)), **options)


def relative_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest difference of any parameter, relative to the largest parameter."""
    largest = max(float(tensor.abs().max()) for tensor in b.values())
    return max(float((a[name] - b[name]).abs().max()) for name in b) / largest


def bytes_handed_over(steps: int) -> dict[str, tuple[int, int]]:
    """Per row of the table: bytes of the tensors that this process hands to ``torch.distributed``, and its ledger's.

    Counted as the ledger defines a payload: what goes in. A broadcast counts in every process, at the root as what is
    sent and elsewhere as the memory, of the same size, that it arrives in. An all-reduce of a format that rounds is an
    all-to-all of what goes in and an all-gather of what comes out, and only the first counts; with 2 processes and
    tensors of even sizes its blocks need no padding.
    """
    handed = 0
    coming_out = False

    def counting(call: Callable[..., Any], sent: int) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal handed
            if not coming_out:
                handed += args[sent].numel() * args[sent].element_size()
            return call(*args, **options)

        return counted

    start_encoded = ProcessGroupCommunicator._start_encoded

    def start_encoded_counting_once(*args: Any) -> Callable[[], torch.Tensor]:
        finish = start_encoded(*args)

        def finish_uncounted() -> torch.Tensor:
            nonlocal coming_out
            coming_out = True
            try:
                return finish()
            finally:
                coming_out = False

        return finish_uncounted

    out = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", counting(dist.all_reduce, 0))
        patch.setattr(dist, "all_to_all_single", counting(dist.all_to_all_single, 1))
        patch.setattr(dist, "broadcast", counting(dist.broadcast, 0))
        patch.setattr(dist, "gather", counting(dist.gather, 0))
        patch.setattr(ProcessGroupCommunicator, "_start_encoded", start_encoded_counting_once)
        patch.setattr(processes, "_all_gather_single", counting(processes._all_gather_single, 1))
        for name in METHODS:
            comm = ProcessGroupCommunicator()
            task = DIGITS.build(rows_of(comm, (0,)))
            method = METHODS[name].spec.build(parameter_groups(task), comm)
            handed = 0
            for t in range(steps):
                task.step_gradients(t)
                method.step()
            out[name] = (handed, comm.ledger.payload_bytes())
    return out
