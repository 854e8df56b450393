"""Networks: classification by an ordinary module, one set of weights per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from syncline.problems.base import Rows
from syncline.problems.per_worker import How, gradients_by

T = TypeVar("T")


class Data(Protocol):
    """The source of a network's examples."""

    validation: tuple[Tensor, Tensor]
    """Inputs and targets that all evaluations share."""

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``(R, batch, ...)`` of one step, drawn for each row on its own."""
        ...


def shape_only(module: Callable[[], T]) -> T:
    """Build a module without memory: weights on the meta device, and no draw from torch's global generator."""
    with torch.device("meta"):
        return module()


def parameter_count(module: torch.nn.Module) -> int:
    """Return the number of parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


class WithWeights:
    """A module that is called with weights that are not its own, as ``torch.func.functional_call`` does.

    Where each weight belongs is looked up once, not in every call, which for a small module takes as long as the call.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        name_of: dict[int, str] = {id(p): name for name, p in module.named_parameters()}  # a tied one once
        self._places = [
            (part._parameters, key, p, name_of[id(p)])
            for part in module.modules()
            for key, p in part._parameters.items()
            if p is not None
        ]

    def __call__(self, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Return the module's output for inputs with these weights, by name."""
        try:
            for holder, key, _, name in self._places:
                holder[key] = weights[name]  # type: ignore[assignment]
            out: Tensor = self._module(inputs)
        finally:
            for holder, key, p, _ in self._places:
                holder[key] = p
        return out


class NetworkTask:
    """All rows of one classifier, with the mean cross-entropy (nats per target) as the loss.

    Args:
        module: an ordinary module without a worker axis and without buffers. Its own weights are never read: those of a
            row are put in their place for each call.
        params: weights of all rows by name, ``(R, *s)``.
        data: the batches and the validation set.
        rows: the rows to train.
        matrices: names of the weights between hidden layers.
        flops_per_step: FLOPs of one worker in one step.
        facts: facts that ``describe`` returns in addition to the parameter count.
        execution: how gradients are computed, see ``gradients_by``.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        params: dict[str, torch.nn.Parameter],
        data: Data,
        rows: Rows,
        *,
        matrices: tuple[str, ...],
        flops_per_step: float,
        facts: Mapping[str, object],
        execution: How,
    ) -> None:
        self.rows = rows
        self.module = module
        self.params = params
        self.matrices = matrices
        self.flops_per_step: float | None = flops_per_step
        self._data, self._facts = data, facts
        self._at_work = WithWeights(module)
        self._gradients = gradients_by(execution, self._loss, next(iter(params.values())).device)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` on each row's batch of this step; ``.grad`` is the gradient of each."""
        return self._gradients(self.params, *self._data.batch(step))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets ``(R, batch, ...)`` of a step."""
        return self._data.batch(step)

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return ``loss`` and ``accuracy`` of the mean parameters ``(S, *s)`` on the validation set."""
        inputs, targets = self._data.validation
        metrics = []
        for replica in range(len(self.rows.seeds)):
            logits = self._logits({name: mean[replica] for name, mean in means.items()}, inputs)
            hits = logits.argmax(-1) == targets
            metrics.append(torch.stack((_cross_entropy(logits, targets), hits.to(logits.dtype).mean())))
        loss, accuracy = torch.stack(metrics, dim=-1)
        return {"loss": loss, "accuracy": accuracy}

    def trace(self) -> dict[str, Tensor]:
        """Return no diagnostics, because a pass over the weights of all workers would cost as much as a step."""
        return {}

    def describe(self) -> dict[str, object]:
        """Return the parameters of one worker and the facts of the data."""
        return {"parameters": parameter_count(self.module), **self._facts}

    def _logits(self, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return self._at_work(weights, inputs)

    def _loss(self, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return _cross_entropy(self._logits(weights, inputs), targets)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy over all targets, of logits ``(..., classes)`` and targets ``(...)``."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
