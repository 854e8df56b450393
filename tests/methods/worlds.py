"""The same training in two worlds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist

from syncline.comm import (
    Communicator,
    Ledger,
    ProcessGroupCommunicator,
    ReduceOp,
    SimulatedCommunicator,
    WireFormat,
    flatten_rows,
    transport,
)
from syncline.costmodel import Call
from syncline.problems import Digits, Rows, TextGPT
from syncline.problems.random_draws import torch_generator
from syncline.training import parameter_groups, rows_of, train
from tests.methods.table import METHODS

STEPS = 100
DIGITS = Digits(hidden=16, batch_size=16, skew=0.5)


class Bowls:
    """A problem whose gradients cost next to nothing: a step takes as long as the method's own work.

    The parameters are those of a small network. Each worker has a quadratic bowl of its own, and noise: its gradient is
    ``p - target + noise``, so that gradients differ between seeds, workers and steps.
    """

    shapes: ClassVar = {"0.weight": (16, 64), "0.bias": (16,), "2.weight": (10, 16), "2.bias": (10,)}

    def build(self, rows: Rows, *, dtype: torch.dtype = torch.float32) -> BowlsTask:
        """Return the task of these rows."""
        return BowlsTask(self.shapes, rows, dtype)


class BowlsTask:
    """All rows of `Bowls`."""

    matrices, flops_per_step = ("0.weight",), None

    def __init__(self, shapes: dict[str, tuple[int, ...]], rows: Rows, dtype: torch.dtype) -> None:
        self._sizes = [math.prod(shape) for shape in shapes.values()]
        draws = torch.stack([normal(sum(self._sizes), seed, worker) for seed in rows.seeds for worker in rows.workers])
        self._offsets = draws.transpose(0, 1).to(dtype)  # of each step and row

        def start(seed: int) -> dict[str, torch.Tensor]:
            parts = normal(sum(self._sizes), seed)[0].split(self._sizes)
            return {name: 0.1 * part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

        self.params = rows.parameters(start, dtype, "cpu")

    def step_gradients(self, step: int) -> torch.Tensor:
        """Return the squared lengths ``(R,)`` of the gradients, which are set."""
        offsets = (0.3 * self._offsets[1 + step % (NOISES - 1)] - self._offsets[0]).split(self._sizes, dim=1)
        for p, offset in zip(self.params.values(), offsets, strict=True):
            p.grad = p.detach() + offset.reshape(p.shape)
        return torch.stack([p.grad.flatten(1).square().sum(1) for p in self.params.values()]).sum(0)

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the squared lengths ``(S,)`` of mean parameters."""
        return {"loss": torch.stack([mean.flatten(1).square().sum(1) for mean in means.values()]).sum(0)}

    def trace(self) -> dict[str, torch.Tensor]:
        """Return no diagnostics."""
        return {}


NOISES = 33
"""Rows of normal numbers that a worker has: its target, and the noises of 32 steps, after which they come again."""


@cache
def normal(size: int, seed: int, *worker: int) -> torch.Tensor:
    """Draw a worker's normal numbers, or those of a seed that all workers share."""
    return torch.randn(NOISES, size, generator=torch_generator(seed, "bowls", *worker), dtype=torch.float64)


BOWLS = Bowls()


@dataclass
class Outcome:
    params: dict[str, torch.Tensor]  # (R, *s)
    states: dict[str, torch.Tensor]
    ledger: list[Call]
    handed_bytes: int = 0  # to torch.distributed, in this process
    padding_bytes: int = 0  # of these, what makes blocks equal


def train_row(
    name: str,
    comm: Communicator,
    *,
    steps: int = STEPS,
    seeds: tuple[int, ...] = (0,),
    dtype: torch.dtype = torch.float32,
    problem: Bowls | Digits | TextGPT = BOWLS,
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


class Counter:
    """Bytes of the tensors that this process hands to ``torch.distributed``, while it is entered.

    Counted as the ledger defines a payload: what goes in. A broadcast counts in every process, at the root as what is
    sent and elsewhere as the memory, of the same size, that it arrives in. An all-reduce of a format that rounds, or of
    reproducible sums, is an all-to-all of what goes in and an all-gather of what comes out, and only the first counts.
    Its M blocks are equal, so up to M - 1 elements of what is encoded are ``padding``, which no ledger has: of every
    such all-reduce, ``-n mod M`` elements. Evaluations are aside, in the ledger too.
    """

    def __init__(self) -> None:
        self.handed = self.padding = 0
        self._aside = False
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Counter:
        for name, sent in (("all_reduce", 0), ("all_to_all_single", 1), ("broadcast", 0), ("gather", 0)):
            self._patch.setattr(dist, name, self._counting(getattr(dist, name), sent))
        self._patch.setattr(transport, "_all_gather_single", self._counting(transport._all_gather_single, 1))
        self._patch.setattr(
            ProcessGroupCommunicator, "_start_encoded", self._counting_once(ProcessGroupCommunicator._start_encoded)
        )
        paused = Ledger.paused

        @contextmanager
        def aside(ledger: Ledger) -> Iterator[None]:
            with paused(ledger), self._counting_nothing():
                yield

        self._patch.setattr(Ledger, "paused", aside)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _counting(self, call: Callable[..., Any], sent: int) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if not self._aside:
                self.handed += args[sent].numel() * args[sent].element_size()
            return call(*args, **options)

        return counted

    def _counting_once(self, start: Callable[..., Callable[[], torch.Tensor]]) -> Callable[..., Any]:
        def started(comm: ProcessGroupCommunicator, x: torch.Tensor, op: ReduceOp, wire: WireFormat) -> Any:
            if not self._aside:
                encoded = wire.encode(flatten_rows(x))
                self.padding += len(x) * (-encoded.shape[1] % comm.world_size) * encoded.element_size()
            finish = start(comm, x, op, wire)

            def finish_aside() -> torch.Tensor:
                with self._counting_nothing():
                    return finish()

            return finish_aside

        return started

    @contextmanager
    def _counting_nothing(self) -> Iterator[None]:
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before


def counted_row(name: str, workers_per_process: int, reproducible: bool, **options) -> Outcome:
    with Counter() as counter:
        outcome = train_row(name, ProcessGroupCommunicator(workers_per_process, reproducible=reproducible), **options)
    return replace(outcome, states={}, handed_bytes=counter.handed, padding_bytes=counter.padding)


def enough(name: str, steps: int) -> int:
    """So many steps, or more where one of the row's periods is longer, or a phase of it ends later."""
    spec = METHODS[name].spec
    ends = [end + 6 for end in _phases(spec.model_dump())]
    return max(steps, *ends, *(exchange.period for exchange in spec.exchanges(1, 4)))


def _phases(fields: Any) -> Iterator[int]:
    """Steps at which a method, or a part of it, goes on in another way."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _phases(value)
        elif name.endswith(("_step", "_steps")) and isinstance(value, int):
            yield value


def in_process(
    workers_per_process: int, steps: int, rows: dict[bool, list[str]], problem: Bowls | Digits
) -> dict[bool, dict[str, Outcome]]:
    """Train rows by whether sums are reproducible, in one launch: to start processes takes longer than to train."""
    found: dict[bool, dict[str, Outcome]] = {True: {}}
    for way, names in rows.items():
        found[way] = {
            name: counted_row(name, workers_per_process, way, steps=enough(name, steps), problem=problem)
            for name in names
        }
    for name in TEXT_ROWS:
        found[True][f"text {name}"] = counted_row(
            name, workers_per_process, True, steps=enough(name, steps), problem=TEXT
        )
    return found


# With reproducible sums of the size that specs have unless told otherwise; the last bits of others would grow there.
TEXT_OF_WAY = {True: TextGPT(), False: TEXT}


def text_in_process(steps: int) -> dict[bool, dict[str, Outcome]]:
    """Every row on a transformer, both ways of adding up."""
    return {
        way: {name: counted_row(name, 1, way, steps=steps, problem=problem) for name in METHODS}
        for way, problem in TEXT_OF_WAY.items()
    }


def in_simulator(name: str, workers: int = 4, **options) -> Outcome:
    seeds = options.get("seeds", (0,))
    return train_row(name, SimulatedCommunicator(workers, replicas=len(seeds)), **options)


def relative_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """The largest difference of any parameter, relative to the largest parameter."""
    largest = max(float(tensor.abs().max()) for tensor in b.values())
    return max(float((a[name] - b[name]).abs().max()) for name in b) / largest
