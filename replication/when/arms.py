"""Dion of several trainings side by side, each of which averages in steps of its own: by a placement or a trigger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from typing_extensions import override

from syncline import optim
from syncline.optim.base import Hyperparameters, ParamRow
from syncline.optim.matrices import is_all_zero
from syncline.optim.triggers import MOMENTUM, SMALLEST_DIVISOR

SHIFT = 1e-13
"""Multiple of the identity, as a share of a Gram matrix's trace, that keeps its Cholesky decomposition real."""

Form = Literal["gradients", "parameters"]


@dataclass(frozen=True)
class Arm:
    """A training: when its workers average, its learning rate and its seed.

    Attributes:
        name: ``trigger``, ``mean-trigger``, or a placement: ``even``, ``early``, ``random``, ``every`` (each step).
        seed: seed of the weights, of the batches and of a random placement.
        lr: learning rate of the matrices.
        averaged: steps that average, from 0, of a placement.
        threshold: the threshold of a trigger.
        count: the planned number of averages.
        follows: the trigger whose number of averages a placement has.
    """

    name: str
    seed: int
    lr: float
    averaged: tuple[int, ...] = ()
    threshold: float = float("inf")
    count: int = 0
    follows: str = ""


@dataclass(frozen=True)
class CholeskyDion(optim.DionRule):
    """Dion's update, with ``P = orth(M Q)`` by Cholesky decompositions, which GPUs do for many matrices at once.

    ``X = P L^T`` with ``L L^T = X^T X`` has the P of a QR decomposition with a positive diagonal, so that the update is
    the same but for rounding. A momentum of few gradients has nearly dependent columns: the first of three passes in
    double precision therefore adds a small multiple of the identity.

    Source: T. Fukaya et al., "Shifted Cholesky QR" (2020).
    """

    @override
    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor:
        """Return the direction that one worker computes without an exchange, from the factors of its momentum."""
        momentum = self.add_to_momentum(g, state)
        product = momentum @ state["right"]
        x = product.double()
        for shift in (SHIFT, 0.0, 0.0):
            gram = x.mT @ x
            diagonal = gram.diagonal(dim1=-2, dim2=-1)
            diagonal += shift * diagonal.sum(-1, keepdim=True)
            lower, _ = torch.linalg.cholesky_ex(gram)
            x = torch.linalg.solve_triangular(lower.mT, x, upper=True, left=False)
        p = torch.where(is_all_zero(product), 0.0, x.to(product.dtype))
        return self.apply_factors(p, momentum.mT @ p, state, h)


class ArmsMethod(optim.DionMethod):
    """Dion of several arms at once, one per replica of the communicator.

    Args:
        params: parameter groups, as of ``syncline.training.parameter_groups``.
        arms: the arms, ``(S,)``.
        steps: number of steps of the training.
        other_lr_share: learning rate of parameters that are not matrices, as a share of an arm's ``lr``.
        form: what an average is of: ``gradients``, as in CurvaDion's public code, or ``parameters``, after the step.
        **options: options of ``Method``.
    """

    def __init__(
        self,
        params: Iterable[Any],
        arms: Sequence[Arm],
        steps: int,
        *,
        other_lr_share: float,
        form: Form = "gradients",
        **options: Any,
    ) -> None:
        rule = optim.MatrixSplit(CholeskyDion(), optim.adam())
        shared: dict[str, Any] = {"trigger": optim.Every(), "sends_factors": False, "holds": False, "worker_axis": True}
        super().__init__(params, 1.0, rule, other_lr=other_lr_share, **shared, **options)
        self._form = form
        device = self.param_groups[0]["params"][0].device
        self._rates = torch.tensor([arm.lr for arm in arms], device=device).repeat_interleave(self.comm.world_size)
        self._thresholds = torch.tensor([arm.threshold for arm in arms], device=device)
        self._takes_mean = torch.tensor([arm.name == "mean-trigger" for arm in arms], device=device)
        self._triggers = torch.tensor([arm.name.endswith("trigger") for arm in arms], device=device)
        table = torch.zeros(steps, len(arms), dtype=torch.bool)
        for number, arm in enumerate(arms):
            table[list(arm.averaged), number] = True
        self._placed = table.to(device)
        self._norms: Tensor | None = None
        self._stacks: list[tuple[list[int], dict[str, Tensor]]] | None = None
        self.changes: list[Tensor] = []
        """The signed relative change of each momentum's norm, ``(R, L)``, one tensor per step."""
        self.fired: list[Tensor] = []
        """Whether each arm averaged, ``(S,)``, one tensor per step."""

    @property
    @override
    def keeps_workers_equal(self) -> bool:
        return False

    @override
    def exchange_gradients(self, rows: list[ParamRow], t: int) -> list[ParamRow]:
        """Return the rows with mean gradients where an arm averages, and with each worker's own elsewhere."""
        norms = torch.stack(
            [
                (row.state[MOMENTUM] + row.g).flatten(1).norm(dim=1)
                for row in rows
                if isinstance(row.rule, optim.DionRule)
            ],
            dim=1,
        )
        before, self._norms = self._norms, norms
        is_first = before is None
        before = norms if before is None else before
        change = torch.full_like(norms, torch.inf) if is_first else norms / before.clamp(min=SMALLEST_DIVISOR) - 1
        self.changes.append(change)
        largest, mean = self.values(change)
        value = torch.where(self._takes_mean, mean, largest)
        fired = torch.where(self._triggers, value > self._thresholds, self._placed[t])
        self.fired.append(fired)
        self._fires_in_row = fired.repeat_interleave(self.comm.world_size)
        if self._form == "parameters":
            return rows
        means = self.reducer.reduce(rows, self.comm, self.wire, t)
        return [
            row._replace(g=torch.where(_over_rows(self._fires_in_row, row.g), mean, row.g))
            for row, mean in zip(rows, means, strict=True)
            if mean is not None
        ]

    def values(self, changes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest and the mean size of the changes ``(..., R, L)`` of each arm, ``(..., S)``."""
        by_arm = changes.abs().unflatten(-2, (self.comm.replicas, -1)).flatten(-2)
        return by_arm.amax(-1), by_arm.mean(-1)

    @override
    def average_states(self, rows: list[ParamRow], names: tuple[str, ...]) -> None:
        """Replace the parameters by their means where an arm averages, if parameters are what is averaged."""
        if self._form == "parameters":
            means = self.comm.all_reduce_coalesced([row.x for row in rows], label="params")
            for row, mean in zip(rows, means, strict=True):
                row.x.copy_(torch.where(_over_rows(self._fires_in_row, row.x), mean, row.x))

    @override
    def directions(self, rows: list[ParamRow], t: int) -> list[Tensor | None]:
        """Return the directions, times each arm's learning rate; matrices of one shape are updated in one call."""
        if self._stacks is None:
            self._stacks = self._stacked(rows)
        directions: list[Tensor | None] = [None] * len(rows)
        for indices, state in self._stacks:
            first = rows[indices[0]]
            of_stack = first.rule.direction(torch.cat([rows[index].g for index in indices]), state, first.group, t)
            assert of_stack is not None
            for index, direction in zip(indices, of_stack.split(len(first.x)), strict=True):
                directions[index] = direction
        for index, row in enumerate(rows):
            if not isinstance(row.rule, optim.DionRule):
                directions[index] = row.rule.direction(row.g, row.state, row.group, t)
        return [None if d is None else d * _over_rows(self._rates, d) for d in directions]

    def _stacked(self, rows: list[ParamRow]) -> list[tuple[list[int], dict[str, Tensor]]]:
        """Return the matrices of each shape, by their places in ``rows``, with their states as one tensor each.

        The matrices' own states become views of these tensors.
        """
        by_shape: dict[torch.Size, list[int]] = {}
        for index, row in enumerate(rows):
            if isinstance(row.rule, optim.DionRule):
                by_shape.setdefault(row.x.shape, []).append(index)
        stacks = []
        for indices in by_shape.values():
            states = [rows[index].state for index in indices]
            stack = {name: torch.cat([state[name] for state in states]) for name in optim.DionRule().states}
            for name, stacked in stack.items():
                for state, part in zip(states, stacked.split(len(rows[0].x)), strict=True):
                    state[name] = part
            stacks.append((indices, stack))
        return stacks

    @override
    def trace(self) -> dict[str, Tensor]:
        """Return no diagnostics; ``changes`` and ``fired`` have them."""
        return {}


def _over_rows(values: Tensor, x: Tensor) -> Tensor:
    """Return values ``(R,)`` in a shape that broadcasts against ``x (R, *s)``."""
    return values.view(-1, *[1] * (x.dim() - 1))
