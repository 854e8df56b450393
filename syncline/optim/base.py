"""Protocols of the parts that make up a method.

A method combines an *update rule* (computes the direction of a local step), a *sync policy* (decides in which steps
which states are exchanged), a *reducer* (combines the workers' gradients or directions), a *compressor* or *wire
format* (encodes the tensors that are sent), and an *outer optimizer* (computes new parameters from an average). This
module has the protocols. `syncline.optim.method` has the loop that calls the parts; the other modules have the parts.

The methods as combinations of parts; `syncline.methods` has their specs:

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

``ddp``, ``local``, ``diloco``, ``mt-dao`` and ``dion`` also take a compressor. "Any" rule may be a ``torch.optim``
optimizer (`TorchRule`); of its states, those that the user names are averaged.

Every tensor has a leading worker axis of ``R`` rows, so that no code loops over workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from syncline.comm import Communicator, WireFormat

Hyperparameters = Mapping[str, Any]
"""One of torch's parameter groups. A part reads its hyperparameters from it, so that schedulers can change them."""


@runtime_checkable
class UpdateRule(Protocol):
    """A rule by which each worker computes the direction of its step from its gradient.

    To save calls, a rule may also have ``directions(rows, t)``, which returns the directions of several `ParamRow` at
    once, or ``fused_step(rows, t)``, which moves their parameters and returns True, or False if it cannot.
    """

    @property
    def states(self) -> tuple[str, ...]:
        """Return the names of the tensors that the rule keeps for each parameter, such as ``momentum_1``.

        Workers may average these tensors.
        """
        ...

    def hyperparameters(self) -> dict[str, Any]:
        """Return the rule's hyperparameters by name, which become the defaults of the parameter groups."""
        ...

    def split_group(self, group: dict[str, Any], worker_axes: int) -> list[tuple[UpdateRule, dict[str, Any]]]:
        """Return pairs (rule, part of the parameter group); ``worker_axes`` is 1 if parameters have a worker axis."""
        return [(self, group)]

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return the initial states of a parameter by name, equal on all workers; by default zeros.

        Args:
            x: the parameter of R workers, ``(R, *shape)``.
            param_index: index of the parameter in the method, from 0.
        """
        return {name: torch.zeros_like(x) for name in self.states}

    def direction(self, g: Tensor, state: dict[str, Tensor], h: Hyperparameters, t: int) -> Tensor | None:
        """Return the direction ``d`` of ``x <- x - lr d`` at step ``t`` (from 0), and update ``state`` in place.

        The result is None if the parameter does not move in this step, as in ADOPT's first step.
        """
        ...


@runtime_checkable
class SteppingRule(UpdateRule, Protocol):
    """An update rule that moves parameters itself, by objects called steppers, instead of returning directions."""

    def steppers(self, method: Any, worker_axis: bool) -> Any:
        """Return an object that moves the parameters of a method, and keeps state from step to step.

        It has three functions: ``step(rows)`` moves the parameters of `ParamRow` rows by their gradients, in place.
        ``copy_private_state(source_row, target_row)`` copies one worker's state outside the method's tensors, such as
        step counters, to another worker. Both are given by their rows on the worker axis. ``zero_state(row, name)``
        returns zeros ``(R, *state)`` for a state that a parameter does not have before its first gradient, or None if
        it will not have this state.
        """
        ...


@runtime_checkable
class SyncPolicy(Protocol):
    """A schedule of the states that are averaged over the workers."""

    def states_due(self, t: int) -> tuple[str, ...]:
        """Return the names of the states that are exchanged in step ``t`` (from 0).

        ``gradient`` is exchanged before the update rule uses it, ``direction`` before it moves the parameters, and
        other states after the parameters have moved.
        """
        ...

    def check(self, available: tuple[str, ...]) -> None:
        """Raise a SpecError if the policy averages a state that is not ``available``; by default, accept any rule."""
        return


@runtime_checkable
class Reducer(Protocol):
    """A reduction that combines the gradients, or the directions, of all workers when they are exchanged."""

    def hyperparameters(self) -> dict[str, Any]:
        """Return the reducer's hyperparameters by name, by default none; they become defaults of parameter groups."""
        return {}

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return the tensors that the reducer keeps for parameter ``x (R, *s)``, by name; by default none."""
        return {}

    def reduce(self, rows: list[ParamRow], comm: Communicator, wire: WireFormat, t: int) -> Sequence[Tensor | None]:
        """Combine the workers' gradients, or directions, of each parameter at step ``t``; return one result for each.

        None means that the parameter is not updated in this step, neither by its rule nor by weight decay.
        """
        ...


@runtime_checkable
class OuterOptimizer(Protocol):
    """An optimizer that acts on the average of the workers' parameters."""

    def hyperparameters(self) -> dict[str, Any]:
        """Return the outer optimizer's hyperparameters by name; they become defaults of the parameter groups."""
        ...

    def init(self, x: Tensor) -> dict[str, Tensor]:
        """Return the tensors that the outer optimizer stores for parameter ``x``, such as its momentum, by name."""
        ...

    def payload(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Return the tensor to average over the workers, such as the change of ``x`` since the last average."""
        ...

    def apply_average(self, x: Tensor, average: Tensor, state: dict[str, Tensor], h: Hyperparameters) -> None:
        """Update parameter ``x`` in place from the average of the workers' payloads."""
        ...


class ParamRow(NamedTuple):
    """One parameter on all R local workers, with its gradient, states and hyperparameters.

    Attributes:
        x: the parameter ``(R, *s)``; for a parameter without a worker axis a view with R = 1.
        g: its gradient or direction, ``(R, *s)``.
        state: tensors that rule, reducer and outer optimizer keep for the parameter, by name.
        group: hyperparameters.
        rule: the update rule.
        param_index: index of the parameter in the method, from 0.
    """

    x: Tensor
    g: Tensor
    state: dict[str, Tensor]
    group: dict[str, Any]
    rule: UpdateRule
    param_index: int

    def state_or_zeros(self, name: str) -> Tensor:
        """Return the named state of the parameter, which is created with zeros if it does not exist yet."""
        if name not in self.state:
            self.state[name] = torch.zeros_like(self.x)
        return self.state[name]
