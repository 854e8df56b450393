"""Triggers, which decide in each step whether workers exchange, and SelSync, which averages when a trigger fires."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, flatten_rows
from syncline.errors import SpecError
from syncline.optim.base import ParamRow, UpdateRule
from syncline.optim.method import Method
from syncline.optim.sync import BufferSync, EveryStep

MOMENTUM, NORM, GRADIENT_SQUARE = "momentum", "momentum_norm", "gradient_square"
"""Names of states: Dion's momentum, its last norm, and the smoothed squared norm of a gradient."""

SMALLEST_NORM = 0.1
"""CurvaDion's public code skips layers whose momentum norm is at most this."""

SMALLEST_DIVISOR = 1e-30
"""Lower bound of the divisor of a relative change, so that a change from zero is large but finite."""


@runtime_checkable
class Trigger(Protocol):
    """A rule that decides in each step whether workers exchange; all workers decide alike."""

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the tensors that the trigger keeps for parameter ``x``, by name; by default none."""
        return {}

    def fires(self, rows: list[ParamRow], comm: Communicator, t: int) -> bool:
        """Return whether workers exchange in step ``t``; ``rows`` are the parameters before this step's update."""
        ...


@dataclass(frozen=True)
class Every(Trigger):
    """A trigger that fires every ``period`` steps: after step t, from 0, if ``(t + 1) % period == 0``."""

    period: int = 1

    def __post_init__(self) -> None:
        if self.period < 1:
            raise SpecError("period", self.period, "an integer >= 1")

    @override
    def fires(self, rows: list[ParamRow], comm: Communicator, t: int) -> bool:
        return (t + 1) % self.period == 0


@dataclass(frozen=True)
class AtSteps(Trigger):
    """A trigger that fires at given positions in a period: after each step t with ``t mod period`` in ``steps``.

    Args:
        steps: steps of each period that exchange, from 0.
        period: number of steps after which the pattern repeats.
    """

    steps: frozenset[int]
    period: int

    @override
    def fires(self, rows: list[ParamRow], comm: Communicator, t: int) -> bool:
        return t % self.period in self.steps


@dataclass(frozen=True)
class RMMC(Trigger):
    """A trigger that fires when the momentum norm of some layer changes much on some worker (CurvaDion).

        RMMC_l = | ||m_t|| - ||m_(t-1)|| | / ||m_(t-1)||,    fires if max_{l, worker} RMMC_l > threshold

    RMMC_l is the relative maximum momentum change of layer l, and m_t its momentum in step t. Workers exchange the
    maximum by an all-reduce of 4 bytes, and the host waits for it. The change in the first step counts as infinite.

    Args:
        threshold: tau; with 0 the trigger fires whenever a norm changes, with infinity it never fires.
        variant: ``paper``: ``m_t = M + G`` for the momentum M after error feedback and the gradient G of step t.
            ``code``, as the public code: ``M + G`` is compared with M, only in layers with ``||M|| > 0.1``.

    Source: CurvaDion, equation (1) and Algorithm 2.
    """

    threshold: float = 0.1
    variant: Literal["paper", "code"] = "paper"
    records: list[Tensor] = field(default_factory=list, compare=False, repr=False)
    """RMMC of each layer ``(R, layers)``, one tensor per step, for analysis."""
    compared: list[Tensor] = field(default_factory=list, compare=False, repr=False)
    """The maximum that was compared with the threshold, ``(1,)``, one tensor per step."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise SpecError("threshold", self.threshold, "a number >= 0; infinity to never exchange")
        if self.variant not in ("paper", "code"):
            raise SpecError("variant", self.variant, "'paper' or 'code'")

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the momentum norm of the last step, ``(R,)``, by name; it is -1 before the first step."""
        return {NORM: x.new_full((x.shape[0],), -1.0)}

    def changes(self, rows: list[ParamRow]) -> Tensor:
        """Return the relative momentum change of each layer, ``(R, layers)``, and store norms for the next step."""
        changes = []
        for row in rows:
            momentum, stored_norm = row.state[MOMENTUM], row.state[NORM]
            is_first_step = stored_norm < 0  # ``init`` sets it to -1
            norm = (momentum + row.g).flatten(1).norm(dim=1)
            if self.variant == "paper":
                norm_before = stored_norm.clone()
                stored_norm.copy_(norm)
            else:
                norm_before = momentum.flatten(1).norm(dim=1)
                stored_norm.copy_(norm_before)  # read only to recognise the first step
            change = (norm - norm_before).abs() / norm_before.clamp(min=SMALLEST_DIVISOR)
            if self.variant == "code":  # the public code skips layers with a small momentum
                change = torch.where(norm_before > SMALLEST_NORM, change, 0.0)
            changes.append(torch.where(is_first_step, torch.inf, change))
        return torch.stack(changes, dim=1)

    def fires(self, rows: list[ParamRow], comm: Communicator, t: int) -> bool:
        """Return whether the largest change over workers and matrices is above the threshold.

        If no matrix has a gradient, the change counts as infinite.

        Raises:
            SpecError: the communicator has several replicas, whose trainings would trigger at different steps.
        """
        check_one_seed(comm)
        if not rows:  # an infinite change is above any finite threshold
            return self.threshold < float("inf")
        changes = self.changes(rows)
        self.records.append(changes)
        comm.ledger.record_readback(numbers=changes.shape[1])  # the public code copies each matrix's norm to the host
        largest = comm.all_reduce_max(changes.amax(1).float(), label="trigger")
        self.compared.append(largest[:1])  # all rows are equal
        return bool(largest[0] > self.threshold)


@dataclass(frozen=True)
class GradientChange(Trigger):
    """A trigger that fires when the smoothed squared gradient norm of some worker changes much (SelSync).

        s_t = (1 - smoothing) s_(t-1) + smoothing ||g_t||^2,    Delta = |s_t - s_(t-1)| / s_(t-1)

    It fires if ``max_worker Delta >= threshold``, and in the first step. Because
    ``Delta = smoothing | ||g_t||^2 / s_(t-1) - 1 |``, it fires only for growing gradients if the threshold is above
    ``smoothing``. Workers exchange the maximum by an all-reduce of 4 bytes, and the host waits for it; in the paper
    they gather flags.

    Args:
        threshold: delta; with 0 the trigger fires in every step, with infinity never.
        smoothing: weight of the newest squared norm in s, in (0, 1]; with 1, s is the squared norm itself.

    Source: S. Tyagi, M. Swany, "Accelerating Distributed ML Training via Selective Synchronization" (SelSync, 2023),
    section 3.
    """

    threshold: float = 0.1
    smoothing: float = 0.16
    compared: list[Tensor] = field(default_factory=list, compare=False, repr=False)
    """The maximum that was compared with the threshold, ``(1,)``, one tensor per step."""

    def __post_init__(self) -> None:
        if not self.threshold >= 0:
            raise SpecError("threshold", self.threshold, "a number >= 0; infinity to never exchange")
        if not 0 < self.smoothing <= 1:
            raise SpecError("smoothing", self.smoothing, "a number in (0, 1]")

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the smoothed squared gradient norm, ``(R,)``, by name; it is -1 before the first gradient."""
        return {GRADIENT_SQUARE: x.new_full((x.shape[0],), -1.0)}

    def change(self, rows: list[ParamRow]) -> Tensor:
        """Return the relative change Delta of each worker's smoothed squared gradient norm, ``(R,)``, and update it.

        The norm is over all parameters together.
        """
        smoothed_before = torch.stack([row.state[GRADIENT_SQUARE] for row in rows])
        for row in rows:
            smoothed = row.state[GRADIENT_SQUARE]
            square = flatten_rows(row.g).square().sum(1)
            has_no_earlier_gradient = smoothed < 0  # ``init`` sets it to -1
            average = torch.lerp(smoothed, square, self.smoothing)
            smoothed.copy_(torch.where(has_no_earlier_gradient, square, average))
        total_after = torch.stack([row.state[GRADIENT_SQUARE] for row in rows]).sum(0)
        total_before = smoothed_before.clamp(min=0).sum(0)  # the initial -1 counts as 0
        change = (total_after - total_before).abs() / total_before.clamp(min=SMALLEST_DIVISOR)
        is_first_step = (smoothed_before < 0).all(0)
        return torch.where(is_first_step, torch.inf, change)

    def fires(self, rows: list[ParamRow], comm: Communicator, t: int) -> bool:
        """Return whether the largest change over the workers reaches the threshold.

        If no parameter has a gradient, the change counts as infinite.

        Raises:
            SpecError: the communicator has several replicas, whose trainings would trigger at different steps.
        """
        check_one_seed(comm)
        has_finite_threshold = self.threshold < float("inf")  # an infinite change would reach an infinite threshold
        if not rows:
            return has_finite_threshold
        comm.ledger.record_readback(numbers=1)
        largest = comm.all_reduce_max(self.change(rows).float(), label="trigger")
        self.compared.append(largest[:1])  # all rows are equal
        return bool(largest[0] >= self.threshold) and has_finite_threshold


def trigger_trace(trigger: Trigger, fired: bool, replicas: int) -> dict[str, Tensor]:
    """Return diagnostics of a trigger: ``averaged``, whether it fired, ``(S,)``, and ``trigger``, the compared value.

    The result is empty for a trigger with a period, because its steps are known beforehand.
    """
    if isinstance(trigger, Every):
        return {}
    trace = {"averaged": torch.full((replicas,), fired)}
    compared_values: list[Tensor] = getattr(trigger, "compared", [])  # a trigger at fixed steps compares nothing
    if compared_values:
        trace["trigger"] = compared_values[-1].detach()
    return trace


def check_one_seed(comm: Communicator) -> None:
    """Raise a SpecError if several replicas train side by side, because each would trigger at other steps."""
    if comm.replicas > 1:
        raise SpecError("seeds", comm.replicas, "one at a time, as each would trigger on its own")


Aggregation = Literal["parameters", "gradients"]


class SelSyncMethod(Method):
    """SelSync: workers take local steps, and average parameters or gradients in the steps in which a trigger fires.

    Args:
        rule: the update rule; its states are never averaged.
        trigger: trigger that compares each worker's gradients, before they are averaged or clipped.
        aggregation: ``parameters``, workers adopt the mean parameters after the step, and are equal again;
            ``gradients``, workers step with the mean gradient, and their parameters stay as different as before.
        **options: further options of ``Method``.

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
        self.trigger, self.aggregation = trigger, aggregation
        self._firing = False  # whether the trigger has fired in this step
        # `EveryStep` calls `exchange_gradients` in every step, which asks the trigger.
        super().__init__(params, lr, rule, EveryStep(), **options)

    @property
    @override
    def keeps_workers_equal(self) -> bool:
        return False

    @override
    def trace(self) -> dict[str, Tensor]:
        """Return ``averaged``, whether the last step averaged, and ``trigger``, the largest change of a gradient."""
        return trigger_trace(self.trigger, self._firing, self.comm.replicas)

    @override
    def exchange_gradients(self, rows: list[ParamRow], t: int) -> list[ParamRow]:
        """Decide whether the trigger fires; if it does and ``aggregation`` is ``gradients``, average the gradients."""
        for row in rows:
            for name, tensor in self.trigger.init(row.x).items():
                row.state.setdefault(name, tensor)
        self._firing = bool(rows) and self.trigger.fires(rows, self.comm, t)
        if self._firing and self.aggregation == "gradients":
            return super().exchange_gradients(rows, t)
        return rows

    @override
    def average_states(self, rows: list[ParamRow], names: tuple[str, ...]) -> None:
        """Average the parameters if the trigger has fired in this step."""
        if self._firing and self.aggregation == "parameters":
            super().average_states(self.rows_to_average(rows), ("params",))

    @override
    def buffer_sync(self, t: int) -> BufferSync:
        """Return how a module's buffers are synchronised, depending on what the workers average."""
        if not self._firing:
            return "none"
        return "mean" if self.aggregation == "parameters" else "broadcast"
