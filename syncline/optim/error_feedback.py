"""Error feedback: each worker stores what a compressor left out of a tensor, and adds it to the next tensor.

It applies to gradients, and to states that are averaged periodically.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from syncline.comm import Communicator, WireFormat
from syncline.optim.base import ParamRow, Reducer
from syncline.optim.compressors import Compressor

ERROR, REFERENCE = "error", "reference"


@dataclass(frozen=True)
class CompressedMean(Reducer):
    """A reducer that averages compressed gradients, with an error e of each worker.

        m = g + e;    g <- mean of all workers' C(m);    e <- m - C(m)

    Without error feedback e is 0. The sent tensors and the errors together sum to all gradients so far.

    Args:
        compressor: C, the compressor.
        error_feedback: whether e is kept.

    Source: Stich et al. (2018) for top-k with memory; Alistarh et al. (2017) for QSGD, without.
    """

    compressor: Compressor
    error_feedback: bool = True

    def init(self, x: Tensor, param_index: int) -> dict[str, Tensor]:
        """Return no states: a parameter gets its error when its gradient is first sent."""
        return {}

    @override
    def reduce(self, rows: list[ParamRow], comm: Communicator, wire: WireFormat, t: int) -> list[Tensor]:
        """Return the means of the compressed gradients; with error feedback, update each worker's error."""
        # ``wire`` is not used, because the compressor encodes the tensors.
        names = [f"gradient {row.param_index}" for row in rows]
        if not self.error_feedback:
            return self.compressor.mean([row.g for row in rows], names, comm, t, label="gradient").means
        errors = [row.state_or_zeros(ERROR) for row in rows]
        corrected = [row.g + error for row, error in zip(rows, errors, strict=True)]
        means, sent_parts = self.compressor.mean(corrected, names, comm, t, label="gradient")
        for error, gradient, sent_part in zip(errors, corrected, sent_parts, strict=True):
            torch.sub(gradient, sent_part, out=error)
        return means


@dataclass(frozen=True)
class CompressedAverages:
    """Periodic averages of a state Z through a compressor C, as differences from a reference that all workers share.

        delta = Z - Z_ref + e;   Z_ref <- Z_ref + mean of all workers' C(delta);   e <- delta - C(delta);   Z <- Z_ref

    ``Z_ref`` is equal on all workers and starts as the initial Z; without error feedback e is 0. An outer optimizer's
    payload is a difference already, so it has an error and no reference. ``Z_ref + mean(e)`` is the uncompressed
    average.

    Args:
        compressor: C, the compressor.
        error_feedback: whether e is kept.
    """

    compressor: Compressor
    error_feedback: bool = True

    def init(self, name: str, z: Tensor, has_reference: bool) -> dict[str, Tensor]:
        """Return by name the initial error and the initial reference of the state ``name``, whose value is ``z``."""
        states = {}
        if self.error_feedback:
            states[_state_name(ERROR, name)] = torch.zeros_like(z)
        if has_reference:
            states[_state_name(REFERENCE, name)] = z.detach().clone()
        return states

    def means(
        self, due: Sequence[tuple[str, ParamRow]], tensors: Sequence[Tensor], comm: Communicator, t: int, label: str
    ) -> list[Tensor]:
        """Return the averages that replace the tensors, sent through the compressor in one call.

        Args:
            due: for each tensor, the name of the state and the row.
            tensors: tensors to average, ``(R, *s)``.
            label: description of the tensors in the ledger.
        """
        # The payload of an outer optimizer has no reference, and without error feedback there is no error.
        references = [row.state.get(_state_name(REFERENCE, name)) for name, row in due]
        errors = [row.state.get(_state_name(ERROR, name)) for name, row in due]
        deltas = []
        for z, reference, error in zip(tensors, references, errors, strict=True):
            deltas.append(z - (0.0 if reference is None else reference) + (0.0 if error is None else error))
        names = [f"{name} {row.param_index}" for name, row in due]
        means, sent_parts = self.compressor.mean(deltas, names, comm, t, label)
        averages = []
        for delta, mean, sent_part, reference, error in zip(deltas, means, sent_parts, references, errors, strict=True):
            if error is not None:
                torch.sub(delta, sent_part, out=error)
            averages.append(mean if reference is None else reference.add_(mean))
        return averages

    def raise_to_lower_bounds(self, rows: Iterable[ParamRow], t: int) -> None:
        """Raise averaged states to their lower bounds, and subtract the difference from their errors.

        Without this a second moment could be negative after compression, or almost 0 next to a momentum u, so that Adam
        would step by ``u / eps``.

        Args:
            rows: rows with a state that was averaged in this step.
        """
        for row in rows:
            # Only states with a reference are averaged through the compressor.
            has_reference = any(_state_name(REFERENCE, name) in row.state for name in row.rule.states)
            lower_bounds = getattr(row.rule, "lower_bounds", None)  # see `MomentumRule.lower_bounds`
            if not has_reference or lower_bounds is None:
                continue
            # References are equal on all workers: bounds from them keep averaged states equal.
            shared_states = {}
            for name in row.rule.states:
                shared_states[name] = row.state.get(_state_name(REFERENCE, name), row.state[name])
            for name, bound in lower_bounds(shared_states, row.group, t).items():
                state, error = row.state[name], row.state.get(_state_name(ERROR, name))
                raised = torch.maximum(state, bound)
                if error is not None:  # a later average must not add this difference again
                    error.sub_(raised - state)
                state.copy_(raised)


def _state_name(kind: str, name: str) -> str:
    """Return the name of the error or the reference (``kind``) of state ``name``, such as ``error_params``."""
    return f"{kind}_{name}"
