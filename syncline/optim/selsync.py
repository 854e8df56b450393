"""SelSync: local steps, and an average whenever some worker's gradient changes much."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor
from typing_extensions import override

from syncline.errors import SpecError
from syncline.optim.base import Row, UpdateRule
from syncline.optim.buffers import BufferSync
from syncline.optim.method import Method
from syncline.optim.sync import EveryStep
from syncline.optim.triggers import Trigger, trigger_trace

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
