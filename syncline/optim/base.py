"""Protocols of the parts that make up a method.

A method is a composition: an *update rule* (the local direction), a *sync policy* (when which state is exchanged), a
*reducer* (what becomes of gradients, or directions, when they are), a *compressor* or *wire format* (what travels), an
*outer optimizer* (what is done with an average). This file holds the protocols; ``method.py`` has the one loop that
plays them together, and names the hooks that a method may override; the parts are in the files beside it.

The known methods as combinations of parts, one file each in ``syncline.methods``:

    kind              | rule                 | when what is exchanged               | reducer         | outer
    ddp               | any                  | gradient, every step                 | mean            | -
    powersgd          | any                  | gradient, every step                 | FactorMean      | -
    demo              | sgd, sign or muon    | gradient, every step                 | CoefficientMean | -
    basis-rotation    | RotatedAdam          | gradient, every step                 | mean            | -
    soap              | RotatedAdam          | gradient, every step                 | mean            | -
    eshampoo          | RotatedAdam          | gradient, every step                 | mean            | -
    galore            | RotatedAdam          | gradient, every step                 | mean            | -
    ldadam            | LowRankAdam          | gradient, every step                 | mean            | -
    sign-sgd          | sgdm                 | direction, every step                | a vote          | -
    lion-cub          | Lion without sign    | direction, every step; momenta, K    | a vote          | -
    local             | any                  | params and all states, K             | -               | -
    diloco            | any                  | params, K                            | -               | Nesterov
    des-loc           | adam or adopt        | params and states, each its K        | -               | -
    mt-dao            | several momenta      | params and states, each its K        | -               | any
    streaming-diloco  | any                  | params, K, in fragments              | -               | Nesterov
    streaming-mt-dao  | several momenta      | params and states, in fragments      | -               | any
    dion              | DionRule, another    | gradient or factors, K               | mean            | -
    curvadion         | DionRule, another    | gradient or factors, on a trigger    | mean            | -
    placed-dion       | DionRule, another    | gradient or factors, at given steps  | mean            | -
    selsync           | any                  | params or gradient, on a trigger     | mean            | -
    selsync-dion      | DionRule, another    | gradient or factors, on a trigger    | mean            | -
    one-bit-adam      | adam                 | gradient, then momentum              | OneBitMean      | -
    zero-one-adam     | adam                 | gradient, momenta, growing intervals | OneBitMean      | -

``ddp``, ``local``, ``diloco``, ``mt-dao`` and ``dion`` take any compressor besides. "Any" rule may be an optimizer of
torch's kind (``torch_rule.py``), whose states are averaged where they are named.

Every tensor here has a leading worker axis of ``R`` rows; nothing loops over workers and nothing is read back to the
host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from syncline.comm import Communicator, WireFormat

Hyperparameters = Mapping[str, Any]
"""One of torch's parameter groups: a part reads its knobs from there, so that groups and schedulers can set them."""


@runtime_checkable
class UpdateRule(Protocol):
    """A rule by which one worker turns gradients into directions."""

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the tensors kept per parameter, those that a sync policy may average."""
        ...

    def hyperparameters(self) -> dict[str, Any]:
        """Return the rule's knobs and their values, which become defaults of the parameter groups."""
        ...

    def parts(self, group: dict[str, Any], worker_axes: int) -> list[tuple[UpdateRule, dict[str, Any]]]:
        """Return a parameter group cut into groups that each have one rule; by default the group with this rule."""
        return [(self, group)]

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return a parameter's states before its first step, equal on all workers; by default zeros.

        Args:
            x: the parameter.
            number: its number.
        """
        return {name: torch.zeros_like(x) for name in self.states}

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return the direction ``d`` of ``x <- x - lr d`` at step ``t`` (from 0), updating ``state`` in place.

        None means that this step does not move (ADOPT's first step).
        """
        ...


@runtime_checkable
class BatchedUpdateRule(Protocol):
    """An update rule that does more at once for several parameters than for each alone."""

    def directions(self, rows: list[Row], t: int) -> list[Tensor | None]:
        """Return ``UpdateRule.direction`` of all rows that have this rule."""
        ...


MethodT_contra = TypeVar("MethodT_contra", bound=torch.optim.Optimizer, contravariant=True)
"""The method whose parameters steppers move."""


@runtime_checkable
class SteppingRule(UpdateRule, Protocol[MethodT_contra]):
    """An update rule that gives no direction: each method has steppers of its own, which move the parameters."""

    def steppers(self, method: MethodT_contra, worker_axis: bool) -> Steppers:
        """Return the steppers of a method, which keep information on its parameters from step to step."""
        ...


class Steppers(Protocol):
    """Objects that apply the updates of one method to its parameters."""

    def step(self, rows: list[Row]) -> None:
        """Move these rows by their gradients, in place."""
        ...

    def adopt(self, place: int, source: int) -> None:
        """Copy from row ``source`` to row ``place`` all state that is not a tensor of the method."""
        ...


@runtime_checkable
class SyncPolicy(Protocol):
    """A schedule of the states that are averaged over the workers."""

    def due(self, t: int) -> tuple[str, ...]:
        """Return the names of the states that are exchanged in step ``t`` (from 0).

        ``gradient`` before the update rule sees it, ``direction`` before it moves the parameters, the others after.
        """
        ...

    def check(self, available: tuple[str, ...]) -> None:
        """Refuse a policy that names a state the update rule does not have."""
        ...


@runtime_checkable
class Reducer(Protocol):
    """A reduction of the workers' gradients, or directions, when they are exchanged."""

    def hyperparameters(self) -> dict[str, Any]:
        """Return the knobs, by default none, and their values, which become defaults of the parameter groups."""
        return {}

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return the tensors that the reducer keeps for a parameter, as in ``UpdateRule.init``; by default none."""
        return {}

    def reduce(self, rows: list[Row], comm: Communicator, wire: WireFormat, t: int) -> Sequence[Tensor | None]:
        """Return the replacement of each row's ``g`` at step ``t``: its gradient, or its direction.

        None means that the row rests in this step: neither its rule nor its decay acts.
        """
        ...


@runtime_checkable
class OuterOptimizer(Protocol):
    """An optimizer that acts on the average of the workers' parameters."""

    def hyperparameters(self) -> dict[str, Any]:
        """Return the knobs and their values, which become defaults of the parameter groups."""
        ...

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the tensors that the outer optimizer keeps per parameter."""
        ...

    def payload(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Return the tensor to average over the workers."""
        ...

    def absorb(self, x: Tensor, average: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> None:
        """Move ``x`` in place, given the averaged payload."""
        ...


class Row(NamedTuple):
    """One parameter seen over the worker axis: views of shape ``(R, *s)``, its state, group, rule and number."""

    x: Tensor
    g: Tensor
    state: dict[str, Tensor]
    group: dict[str, Any]
    rule: UpdateRule
    number: int

    def state_or_zeros(self, name: str) -> Tensor:
        """Return the state of that name, zeros like the parameter until its first use."""
        if name not in self.state:
            self.state[name] = torch.zeros_like(self.x)
        return self.state[name]
