"""Triggers: whether the workers exchange in this step.

SelSync: local steps, and an average whenever some worker's gradient changes much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import (
    Any,
    Literal,
    Protocol,
    runtime_checkable,
)

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator
from syncline.errors import SpecError
from syncline.optim.base import (
    Row,
    UpdateRule,
)
from syncline.optim.method import Method
from syncline.optim.sync import BufferSync, EveryStep

NORM = "momentum_norm"
MOMENTUM = "momentum"

GRADIENT_SQUARE = "gradient_square"

SMALLEST_NORM = 0.1
"""CurvaDion's public code does not look at layers whose momentum norm is at or below this."""


@runtime_checkable
class Trigger(Protocol):
    """A decision whether workers exchange in step ``t``, which is the same on all workers."""

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the tensors that the trigger keeps per matrix; none by default."""
        return {}

    def fires(self, rows: list[Row], comm: Communicator, t: int) -> bool:
        """Return whether to exchange; ``rows`` are the matrices before this step's update."""
        ...


@dataclass(frozen=True)
class Every(Trigger):
    """A trigger that fires every ``period`` steps: after step t (from 0) if ``(t + 1) % period == 0``."""

    period: int = 1

    def __post_init__(self) -> None:
        if self.period < 1:
            raise SpecError("period", self.period, "an integer >= 1")

    @override
    def fires(self, rows: list[Row], comm: Communicator, t: int) -> bool:
        return (t + 1) % self.period == 0


@dataclass(frozen=True)
class AtSteps(Trigger):
    """After the steps ``t`` with ``t mod period`` among those that are named: a placement that is known beforehand.

    Args:
        steps: steps of each period that exchange, from 0.
        period: number of steps after which the placement repeats.
    """

    steps: frozenset[int]
    period: int

    @override
    def fires(self, rows: list[Row], comm: Communicator, t: int) -> bool:
        return t % self.period in self.steps


@dataclass(frozen=True)
class RMMC(Trigger):
    """Relative maximum momentum change above a threshold, on any layer of any worker.

        RMMC_l = | ||m_t|| - ||m_(t-1)|| | / ||m_(t-1)||,    fires when max_{l, worker} RMMC_l > threshold

    The maximum travels as one 4-byte all-reduce, and is read back by the host: the one place where a method waits for
    a value. The first step has nothing to compare with and counts as an infinite change.

    Args:
        threshold: tau; with 0 the trigger fires whenever one of the norms changes, with infinity never.
        variant: ``paper``: ``m_t = M + G``, against the same one step before. ``code``: ``m_t = M + G`` against ``M``,
            the buffer after error feedback, where ``||M|| > 0.1``, as in the public code.

    Source: CurvaDion, equation (1) and Algorithm 2.
    """

    threshold: float = 0.1
    variant: Literal["paper", "code"] = "paper"
    records: list[Tensor] = field(default_factory=list, compare=False, repr=False)
    """RMMC of each layer ``(R, layers)``, one tensor per step, for those who want to look."""
    decided: list[Tensor] = field(default_factory=list, compare=False, repr=False)
    """What was compared with the threshold, ``(1,)``, one tensor per step."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise SpecError("threshold", self.threshold, "a number >= 0; infinity to never exchange")
        if self.variant not in ("paper", "code"):
            raise SpecError("variant", self.variant, "'paper' or 'code'")

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the last step's norm; negative before the first."""
        return {NORM: x.new_full((x.shape[0],), -1.0)}

    def changes(self, rows: list[Row]) -> Tensor:
        """Return RMMC of each layer, ``(R, layers)``, and replace the kept norms by the current ones."""
        out = []
        for row in rows:
            momentum = row.state[MOMENTUM]
            norm = (momentum + row.g).flatten(1).norm(dim=1)
            if self.variant == "paper":
                before = row.state[NORM].clone()
                row.state[NORM].copy_(norm)
                out.append(torch.where(before < 0, torch.inf, (norm - before).abs() / before.clamp(min=1e-30)))
            else:
                before = momentum.flatten(1).norm(dim=1)
                change = torch.where(before > SMALLEST_NORM, (norm - before).abs() / before.clamp(min=1e-30), 0.0)
                out.append(torch.where(row.state[NORM] < 0, torch.inf, change))
                row.state[NORM].copy_(before)
        return torch.stack(out, dim=1)

    def fires(self, rows: list[Row], comm: Communicator, t: int) -> bool:
        """Return whether the largest change over workers and matrices is above the threshold.

        Without a matrix that has a gradient there is nothing to compare with, which counts as an infinite change.

        Raises:
            SpecError: for replicas side by side, which would have to agree.
        """
        check_one_seed(comm)
        if not rows:
            return self.threshold < float("inf")
        changes = self.changes(rows)
        self.records.append(changes)
        comm.ledger.read_back(changes.shape[1])  # the public code asks for each matrix's norm
        largest = comm.all_reduce_max(changes.amax(1).float(), label="trigger")
        self.decided.append(largest[:1])
        return bool(largest[0] > self.threshold)


@dataclass(frozen=True)
class GradientChange(Trigger):
    """Relative change of a worker's smoothed squared gradient norm at or above a threshold, on any worker.

        s_t = (1 - smoothing) s_(t-1) + smoothing ||g_t||^2,    Delta = |s_t - s_(t-1)| / s_(t-1)

    fires when ``max_worker Delta >= threshold``, and in the first step, which has nothing to compare with. As
    ``Delta = smoothing | ||g_t||^2 / s_(t-1) - 1 |``, a threshold above ``smoothing`` sees only gradients that grow.
    One number per tensor is kept, and one is read back by the host; the maximum travels as one 4-byte all-reduce, in
    the place of the flags that the source gathers.

    Args:
        threshold: delta; with 0 the trigger fires in every step, with infinity never.
        smoothing: weight of the newest squared norm in s, in (0, 1]; with 1, s is the squared norm itself.

    Raises:
        SpecError: for a value out of range.

    Source: S. Tyagi, M. Swany, "Accelerating Distributed ML Training via Selective Synchronization" (SelSync, 2023),
    section 3.
    """

    threshold: float = 0.1
    smoothing: float = 0.16
    decided: list[Tensor] = field(default_factory=list, compare=False, repr=False)
    """What was compared with the threshold, ``(1,)``, one tensor per step."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise SpecError("threshold", self.threshold, "a number >= 0; infinity to never exchange")
        if not 0 < self.smoothing <= 1:
            raise SpecError("smoothing", self.smoothing, "a number in (0, 1]")

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the smoothed square; negative before the first."""
        return {GRADIENT_SQUARE: x.new_full((x.shape[0],), -1.0)}

    def change(self, rows: list[Row]) -> Tensor:
        """Return Delta of each worker ``(R,)``, over all rows together, and update the kept averages."""
        before = torch.stack([row.state[GRADIENT_SQUARE] for row in rows])
        for row in rows:
            average, square = row.state[GRADIENT_SQUARE], row.g.reshape(len(row.g), -1).square().sum(1)
            average.copy_(torch.where(average < 0, square, torch.lerp(average, square, self.smoothing)))
        after = torch.stack([row.state[GRADIENT_SQUARE] for row in rows]).sum(0)
        total = before.clamp(min=0).sum(0)  # a tensor whose gradient begins in this step had none before
        return torch.where((before < 0).all(0), torch.inf, (after - total).abs() / total.clamp(min=1e-30))

    def fires(self, rows: list[Row], comm: Communicator, t: int) -> bool:
        """Return whether the largest change over the workers reaches the threshold.

        Without a tensor that has a gradient there is nothing to compare with, which counts as an infinite change.

        Raises:
            SpecError: for replicas side by side, which would have to agree.
        """
        check_one_seed(comm)
        if not rows:
            return self.threshold < float("inf")
        comm.ledger.read_back(1)
        largest = comm.all_reduce_max(self.change(rows).float(), label="trigger")
        self.decided.append(largest[:1])
        return bool(largest[0] >= self.threshold) and self.threshold < float("inf")


def trigger_trace(trigger: Trigger, fired: bool, replicas: int) -> dict[str, Tensor]:
    """Return whether a step averaged, ``(S,)``, and the value that the trigger compared with its threshold.

    Nothing of a period, whose steps are known.
    """
    if isinstance(trigger, Every):
        return {}
    decided: list[Tensor] = getattr(trigger, "decided", [])
    value = {"trigger": decided[-1].detach()} if decided else {}
    return {"averaged": torch.full((replicas,), fired), **value}


def check_one_seed(comm: Communicator) -> None:
    """Refuse replicas side by side: each would trigger by itself.

    Raises:
        SpecError: there are several replicas; the error gives their number.
    """
    if comm.replicas > 1:
        raise SpecError("seeds", comm.replicas, "one at a time, as each would trigger by itself")


Aggregation = Literal["parameters", "gradients"]


class SelSyncMethod(Method):
    """SelSync: every worker steps alone; in steps in which the trigger fires, parameters or gradients are averaged.

    Args:
        params: parameters or parameter groups.
        lr: learning rate.
        rule: the update rule; its states are never averaged.
        trigger: trigger that compares each worker's gradients, before they are averaged or clipped.
        aggregation: ``parameters``, workers adopt the mean parameters after the step, and are equal again;
            ``gradients``, workers step with the mean gradient, and their parameters stay as different as before.
        **options: further options of ``Method``.

    Raises:
        SpecError: for a value out of range.

    Source: S. Tyagi, M. Swany (SelSync, 2023), Algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        rule: UpdateRule,
        *,
        trigger: Trigger,
        aggregation: Aggregation = "parameters",
        **options: Any,
    ) -> None:
        if aggregation not in ("parameters", "gradients"):
            raise SpecError("aggregation", aggregation, "'parameters' or 'gradients'")
        self.trigger, self.aggregation, self._firing = trigger, aggregation, False
        super().__init__(params, lr, rule, EveryStep(), **options)

    @property
    @override
    def keeps_workers_equal(self) -> bool:
        return False

    @override
    def trace(self) -> dict[str, Tensor]:
        """Return ``averaged``, and ``trigger``: the largest change."""
        return trigger_trace(self.trigger, self._firing, self.comm.replicas)

    @override
    def exchange(self, rows: list[Row], t: int) -> list[Row]:
        for row in rows:
            for name, value in self.trigger.init(row.x).items():
                row.state.setdefault(name, value)
        self._firing = self.trigger.fires(rows, self.comm, t)
        return super().exchange(rows, t) if self._firing and self.aggregation == "gradients" else rows

    @override
    def average(self, rows: list[Row], names: tuple[str, ...]) -> None:
        if self._firing and self.aggregation == "parameters":
            super().average(self.averaged_rows(rows), ("params",))

    @override
    def buffers_due(self, t: int) -> BufferSync:
        if not self._firing:
            return "none"
        return "mean" if self.aggregation == "parameters" else "broadcast"
