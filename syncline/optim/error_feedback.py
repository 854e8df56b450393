"""Error feedback: what a compressor left out is sent later.

Around any compressor ``C``: of gradients, as a reducer, and of states that are averaged now and then, as differences
from a reference that all workers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, WireFormat
from syncline.optim.base import Reducer, Row
from syncline.optim.compressors import Compressor

ERROR, REFERENCE = "error", "reference"


@runtime_checkable
class BoundedStates(Protocol):
    """A rule with states that cannot be what a sum of parts may say."""

    def lower_bounds(self, state: Mapping[str, Tensor], h: Mapping[str, Any], t: int) -> dict[str, Tensor]:
        """Return the lower bounds of states after step ``t``, by name, for the states that have one."""
        ...


@dataclass(frozen=True)
class CompressedMean(Reducer):
    """A reducer: ``m = g + e;  g <- mean of all workers' C(m);  e <- m - C(m)``, or without error feedback ``m = g``.

    Whatever arrives and whatever is still owed adds up to all gradients so far. With a compressor that leaves nothing
    out it is data parallelism.

    Args:
        compressor: C, the compressor.
        error_feedback: whether e is kept.

    Source: Stich et al. (2018) for top-k with memory; Alistarh et al. (2017) for QSGD, without.
    """

    compressor: Compressor
    error_feedback: bool = True

    def init(self, x: Tensor, number: int) -> dict[str, Tensor]:
        """Return no states; an error starts when its gradient is first sent, because some gradients are never sent."""
        return {}

    @override
    def reduce(self, rows: list[Row], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor]:
        # The compressor says what travels; ``wire`` is not used.
        names = [f"gradient {row.number}" for row in rows]
        if not self.error_feedback:
            return self.compressor.mean([row.g for row in rows], names, comm, t, "gradient").means
        errors = [row.state_or_zeros(ERROR) for row in rows]
        corrected = [row.g + error for row, error in zip(rows, errors, strict=True)]
        means, sent_parts = self.compressor.mean(corrected, names, comm, t, "gradient")
        for error, m, sent in zip(errors, corrected, sent_parts, strict=True):
            torch.sub(m, sent, out=error)
        return means


@dataclass(frozen=True)
class CompressedAverages:
    """Averages of states ``Z`` now and then, through a compressor.

        delta = Z - Z_ref + e;   Z_ref <- Z_ref + mean of all workers' C(delta);   e <- delta - C(delta);   Z <- Z_ref

    ``Z_ref`` is the same on all workers and begins where they all began; without error feedback ``e`` stays 0. An outer
    optimizer's payload is a difference already: it has an error and no reference. Whatever the workers' mean has moved
    is in the reference or owed: ``Z_ref + mean(e)`` is what a plain average would be.

    Args:
        compressor: C, the compressor.
        error_feedback: whether e is kept.
    """

    compressor: Compressor
    error_feedback: bool = True

    def init(self, name: str, z: Tensor, has_reference: bool) -> dict[str, Tensor]:
        """Return ``error_<name>`` and ``reference_<name>``, as far as they are kept."""
        states = {_state_name(ERROR, name): torch.zeros_like(z)} if self.error_feedback else {}
        return states | ({_state_name(REFERENCE, name): z.detach().clone()} if has_reference else {})

    def means(
        self, due: Sequence[tuple[str, Row]], tensors: Sequence[Tensor], comm: Communicator, t: int, label: str
    ) -> list[Tensor]:
        """Return the replacement of each tensor, all in one call.

        Args:
            due: name of the state and row of each tensor.
            tensors: tensors to average, ``(R, *s)``.
            comm: the group of workers.
            t: number of the step.
            label: description of the tensors in the ledger.
        """
        deltas = [
            z - row.state.get(_state_name(REFERENCE, name), 0.0) + row.state.get(_state_name(ERROR, name), 0.0)
            for (name, row), z in zip(due, tensors, strict=True)
        ]
        means, sent_parts = self.compressor.mean(deltas, [f"{name} {row.number}" for name, row in due], comm, t, label)
        out = []
        for (name, row), delta, mean, sent in zip(due, deltas, means, sent_parts, strict=True):
            if self.error_feedback:
                torch.sub(delta, sent, out=row.state[_state_name(ERROR, name)])
            reference = row.state.get(_state_name(REFERENCE, name))
            out.append(mean if reference is None else reference.add_(mean))
        return out

    def mend(self, rows: Iterable[Row], t: int) -> None:
        """Raise what was put together from parts to what it must be beside the references, and owe the difference.

        A second moment of which little arrived can be negative, or next to nothing beside a momentum that did arrive:
        Adam would then step by ``u / eps``.

        Args:
            rows: rows of which a state was averaged in this step.
            t: number of the step.
        """
        for row in rows:
            if not isinstance(row.rule, BoundedStates) or not any(
                _state_name(REFERENCE, s) in row.state for s in row.rule.states
            ):
                continue
            shared = {name: row.state.get(_state_name(REFERENCE, name), row.state[name]) for name in row.rule.states}
            for name, bound in row.rule.lower_bounds(shared, row.group, t).items():
                raised = torch.maximum(row.state[name], bound)
                if _state_name(ERROR, name) in row.state:
                    row.state[_state_name(ERROR, name)].sub_(raised - row.state[name])
                row.state[name].copy_(raised)


def _state_name(kind: str, name: str) -> str:
    return f"{kind}_{name}"
