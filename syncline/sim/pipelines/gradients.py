"""Real math of a schedule: forwards, backwards and updates of stages, in the order of the events.

Each task of a schedule gets an effect. A forward keeps its graph until its backward; ``backward_weights`` selects the
weights of the backward:

- ``stashed``: the weights of the forward, stored until the backward has used them;
- ``current``: the weights at the time of the backward, with the forward's activations: a wrong gradient, and no memory;
- ``corrected``: an estimate of the forward's weights from the current weights w and their mean change per update,
  delta: ``w - s delta`` with s the number of updates since the forward.

Source: D. Narayanan et al., "PipeDream" (2019), section 3.3 (stashing); B. Yang et al., "PipeMare" (2021), section 3.2
(discrepancy correction).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from syncline.errors import SpecError, require_one_of
from syncline.sim.pipelines.orders import PipelineTask, Schedule, part_of

Weights = Literal["stashed", "current", "corrected"]
WEIGHTS = ("stashed", "current", "corrected")

CORRECTION_DECAY = 0.1
"""D: after as many updates as the delay, a change has this weight in the mean change. Source: PipeMare, section 3.2."""


class _ForwardState(NamedTuple):
    """The values that a forward stores for its backward: input, weights, output, and the version of the weights."""

    x: Tensor
    weights: dict[str, Tensor]
    y: Tensor
    version: int


class PipelineMath:
    """The math of a schedule's tasks: forwards, backwards and updates of the stages of a model.

    A *part* is a chunk of a stage, in the order of the model; each micro-batch passes all parts.

    Args:
        schedule: the order of tasks, and the times of updates.
        parts: the model's parts in order; with v chunks stage k has parts k, K + k, ...
        inputs: function that returns the input of a micro-batch.
        loss: function of the last part's output and the micro-batch that returns the loss.
        optimizers: one optimizer per stage, for the parameters of its parts.
        backward_weights: model weights that the backward passes use, one of ``WEIGHTS``, see the module.
        after_update: function called after each update with the stage and its number of updates, for learning-rate
            schedules or evaluations.

    Attributes:
        losses: loss of each micro-batch, in the order in which they were computed.
        delays: per stage, the delay of each gradient in updates.
    """

    def __init__(
        self,
        schedule: Schedule,
        parts: Sequence[nn.Module],
        inputs: Callable[[int], Tensor],
        loss: Callable[[Tensor, int], Tensor],
        optimizers: Sequence[Optimizer],
        backward_weights: Weights = "stashed",
        after_update: Callable[[int, int], object] | None = None,
    ) -> None:
        self.stages = len(optimizers)
        if len(parts) != self.stages * schedule.chunks:
            raise SpecError("parts", len(parts), f"{self.stages * schedule.chunks}: stages times chunks")
        require_one_of("backward_weights", backward_weights, WEIGHTS)
        self.schedule, self.parts, self.optimizers = schedule, parts, optimizers
        self.backward_weights = backward_weights
        self.inputs, self.loss, self.after_update = inputs, loss, after_update
        self.losses: dict[int, Tensor] = {}
        self.delays: list[list[int]] = [[] for _ in optimizers]
        self._version = [0] * self.stages  # number of updates of each stage's weights
        self._stash: list[dict[str, Tensor]] = [{} for _ in parts]
        self._stashed_version = [-1] * len(parts)
        # The mean change of each weight in an update, delta in the module, by part and name.
        self._mean_change: list[dict[str, Tensor]] = [{} for _ in parts]
        self._part_input: dict[tuple[int, int], Tensor] = {}  # by micro-batch and part, as the next two
        self._output_gradient: dict[tuple[int, int], Tensor | None] = {}
        self._forward_states: dict[tuple[int, int], _ForwardState] = {}
        self._remaining_gradients = [schedule.microbatches * schedule.chunks] * self.stages

    def effect(self, stage: int, task: PipelineTask) -> Callable[[], None]:
        """Return the function that does the math of a stage's task, to be called when the task completes."""
        do_math = {"forward": self._forward, "backward": self._backward, "weight": self._weight}[task.kind]
        return partial(do_math, stage, part_of(task, stage, self.stages), task.microbatch)

    def outgoing(self, stage: int, task: PipelineTask) -> Tensor:
        """Remove and return a task's output for another stage, for stages in separate processes."""
        part = part_of(task, stage, self.stages)
        if task.kind == "forward":
            return self._part_input.pop((task.microbatch, part + 1))
        gradient = self._output_gradient.pop((task.microbatch, part - 1))
        assert gradient is not None  # only the last part's forward leaves none
        return gradient

    def incoming(self, stage: int, task: PipelineTask, x: Tensor) -> None:
        """Store another stage's output as the input of a task."""
        part = part_of(task, stage, self.stages)
        if task.kind == "forward":
            self._part_input[task.microbatch, part] = x
        else:
            self._output_gradient[task.microbatch, part] = x

    def _forward(self, stage: int, part: int, microbatch: int) -> None:
        """Run a part forward, and store its output, or the loss after the last part."""
        x = self.inputs(microbatch) if part == 0 else self._part_input.pop((microbatch, part)).requires_grad_()
        weights = self._forward_weights(stage, part)
        y: Tensor = functional_call(self.parts[part], weights, (x,))
        if part == len(self.parts) - 1:
            y = self.loss(y, microbatch)
            self.losses[microbatch] = y.detach()
            self._output_gradient[microbatch, part] = None  # torch differentiates the loss itself
        else:
            self._part_input[microbatch, part + 1] = y.detach()
        self._forward_states[microbatch, part] = _ForwardState(x, weights, y, version=self._version[stage])

    def _forward_weights(self, stage: int, part: int) -> dict[str, Tensor]:
        """Return the weights with which a part runs forward, by name; for ``stashed`` a copy of the current version."""
        named_params = dict(self.parts[part].named_parameters())
        if self.backward_weights != "stashed":
            # ``data`` shares the storage but not torch's version counter. So the backward uses the weights that later
            # updates have changed in place.
            return {name: p.data.requires_grad_() for name, p in named_params.items()}
        if self._stashed_version[part] != self._version[stage]:
            self._stash[part] = {name: p.detach().clone().requires_grad_() for name, p in named_params.items()}
            self._stashed_version[part] = self._version[stage]
        return self._stash[part]

    def _backward(self, stage: int, part: int, microbatch: int) -> None:
        """Compute the gradients of a part's input and, unless the schedule splits the backward, of its weights."""
        forward = self._forward_states[microbatch, part]
        has_input_gradient = part > 0  # the input of the first part is data
        has_weight_gradients = not self.schedule.splits_backward
        variables = [forward.x] if has_input_gradient else []
        if has_weight_gradients:
            variables += forward.weights.values()
        if not variables:  # the first part, whose weight gradients are a later task
            return
        # A later task computes the weights' gradients from the same graph.
        gradients = list(self._differentiate(stage, part, microbatch, variables, retain_graph=not has_weight_gradients))
        if has_input_gradient:
            self._output_gradient[microbatch, part - 1] = gradients.pop(0)
        if has_weight_gradients:
            self._accumulate(stage, part, microbatch, gradients)

    def _weight(self, stage: int, part: int, microbatch: int) -> None:
        """Compute the gradient of a part's weights for a micro-batch, in a schedule that splits the backward."""
        variables = list(self._forward_states[microbatch, part].weights.values())
        gradients = self._differentiate(stage, part, microbatch, variables, retain_graph=False)
        self._accumulate(stage, part, microbatch, gradients)

    def _differentiate(
        self, stage: int, part: int, microbatch: int, variables: list[Tensor], retain_graph: bool
    ) -> Sequence[Tensor]:
        """Return a part's gradients by these variables, at the weights that ``backward_weights`` selects."""
        forward = self._forward_states[microbatch, part]
        output_gradient = self._output_gradient[microbatch, part]
        delay = self._version[stage] - forward.version
        if self.backward_weights != "corrected" or not delay or not self._mean_change[part]:
            return torch.autograd.grad(forward.y, variables, output_gradient, retain_graph=retain_graph)
        parameters = dict(self.parts[part].named_parameters())
        current_weights = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        # The graph shares the parameters' storage. So the backward uses the weights w - delay * mean change.
        try:
            for name, parameter in parameters.items():
                parameter.data.sub_(self._mean_change[part][name], alpha=delay)
            return torch.autograd.grad(forward.y, variables, output_gradient, retain_graph=retain_graph)
        finally:
            for name, parameter in parameters.items():
                parameter.data.copy_(current_weights[name])

    def _accumulate(self, stage: int, part: int, microbatch: int, gradients: Sequence[Tensor]) -> None:
        """Add a micro-batch's gradient of one part, and update at once or after the last micro-batch."""
        forward = self._forward_states.pop((microbatch, part))
        self._output_gradient.pop((microbatch, part))
        updates_always = self.schedule.updates == "every"
        weight = 1.0 if updates_always else 1.0 / self.schedule.microbatches
        for parameter, gradient in zip(self.parts[part].parameters(), gradients, strict=True):
            accumulated = parameter.grad
            if accumulated is None:
                parameter.grad = gradient * weight
            else:
                accumulated.add_(gradient, alpha=weight)
        self._remaining_gradients[stage] -= 1
        if updates_always or self._remaining_gradients[stage] == 0:
            self._update(stage, self._version[stage] - forward.version)

    def _update(self, stage: int, delay: int) -> None:
        """Update a stage's weights by a gradient that is ``delay`` updates old."""
        self.delays[stage].append(delay)
        stage_parts = range(stage, len(self.parts), self.stages)
        old_weights: dict[int, dict[str, Tensor]] = {}  # by part
        if self.backward_weights == "corrected":
            for part in stage_parts:
                named_parameters = self.parts[part].named_parameters()
                old_weights[part] = {name: parameter.detach().clone() for name, parameter in named_parameters}
        self.optimizers[stage].step()
        self.optimizers[stage].zero_grad()
        # mean change <- gamma mean change + (1 - gamma)(w' - w), with gamma = D^(1 / delay), and 0 without a delay.
        decay = CORRECTION_DECAY ** (1 / delay) if delay else 0.0
        for part, weights in old_weights.items():
            for name, parameter in self.parts[part].named_parameters():
                change = parameter.detach() - weights[name]
                mean_change = self._mean_change[part].get(name, torch.zeros_like(change))
                self._mean_change[part][name] = mean_change.mul(decay).add(change, alpha=1 - decay)
        self._version[stage] += 1
        if self.after_update is not None:
            self.after_update(stage, self._version[stage])
