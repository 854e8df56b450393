"""Real math of a schedule: forwards, backwards and updates of stages, in the order of the events.

Each task of a schedule gets an effect. A forward keeps its graph until its backward; ``backward_weights`` selects the
weights of the backward:

- ``stashed``: the very weights of the forward, kept for as long as they are needed;
- ``current``: the weights at that time (activations are still the forward's): a wrong gradient, and no memory;
- ``corrected``: an estimate of the forward's, from the current ones and their mean velocity: ``w - s delta`` with s
  the updates since the forward.

Source: D. Narayanan et al., "PipeDream" (2019), section 3.3 (stashing); B. Yang et al., "PipeMare" (2021), section 3.2
(discrepancy correction).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from syncline.errors import SpecError, one_of
from syncline.sim.pipelines.schedules import PipelineTask, Schedule

Weights = Literal["stashed", "current", "corrected"]
WEIGHTS = ("stashed", "current", "corrected")

CORRECTION_DECAY = 0.1
"""D: the velocity's average forgets all but this part over the delay. Source: PipeMare, section 3.2 (its default)."""


class _Kept(NamedTuple):
    """The data that a forward keeps for its backward: input, weights, output, and the version of the weights."""

    x: Tensor
    weights: dict[str, Tensor]
    y: Tensor
    version: int


class PipelineMath:
    """The math of a schedule's tasks.

    Args:
        schedule: the order of tasks, and the times of updates.
        parts: the model's parts in order; with v chunks stage k has parts k, K + k, ...
        inputs: function that returns the input of a micro-batch.
        loss: function of the last part's output and the micro-batch that returns the loss.
        optimizers: one optimizer per stage, for the parameters of its parts.
        backward_weights: weights of the backward passes, one of ``WEIGHTS``.
        after_update: function called after each update with the stage and its number of updates, for learning-rate
            schedules or evaluations.

    Attributes:
        losses: loss of each micro-batch, in the order in which they were computed.
        delays: per stage, the delay of each gradient in updates.

    Raises:
        SpecError: a number of parts that the schedule does not have, or unknown weights.
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
        if backward_weights not in WEIGHTS:
            raise SpecError("backward_weights", backward_weights, one_of(WEIGHTS, backward_weights))
        self.schedule, self.parts, self.optimizers, self.mode = schedule, parts, optimizers, backward_weights
        self.inputs, self.loss, self.after_update = inputs, loss, after_update
        self.losses: dict[int, Tensor] = {}
        self.delays: list[list[int]] = [[] for _ in optimizers]
        self._version = [0] * self.stages
        self._stash: list[tuple[int, dict[str, Tensor]] | None] = [None] * len(parts)
        self._velocity: list[dict[str, Tensor]] = [{} for _ in parts]
        self._activation: dict[tuple[int, int], Tensor] = {}
        self._gradient: dict[tuple[int, int], Tensor | None] = {}
        self._kept: dict[tuple[int, int], _Kept] = {}
        self._left = [schedule.microbatches * schedule.chunks] * self.stages

    def effect(self, stage: int, task: PipelineTask) -> Callable[[], None]:
        """Return the function that does a task's math when the task completes."""
        part = task.chunk * self.stages + stage
        match task.kind:
            case "forward":
                return lambda: self._forward(stage, part, task.microbatch)
            case "backward":
                return lambda: self._backward(stage, part, task.microbatch)
            case _:
                return lambda: self._weight(stage, part, task.microbatch)

    def outgoing(self, stage: int, task: PipelineTask) -> Tensor:
        """Return a task's output for another stage and forget it here, for stages in separate processes."""
        i, part = task.microbatch, task.chunk * self.stages + stage
        if task.kind == "forward":
            return self._activation.pop((i, part + 1))
        gradient = self._gradient.pop((i, part - 1))
        assert gradient is not None  # only the last part's forward leaves none
        return gradient

    def incoming(self, stage: int, task: PipelineTask, x: Tensor) -> None:
        """Store another stage's output as the input of a task."""
        part = task.chunk * self.stages + stage
        (self._activation if task.kind == "forward" else self._gradient)[task.microbatch, part] = x

    def _forward(self, stage: int, part: int, i: int) -> None:
        x = self.inputs(i) if part == 0 else self._activation.pop((i, part)).requires_grad_()
        weights = self._forward_weights(stage, part)
        y: Tensor = functional_call(self.parts[part], weights, (x,))
        if part == len(self.parts) - 1:
            y = self.loss(y, i)
            self.losses[i] = y.detach()
            self._gradient[i, part] = None
        else:
            self._activation[i, part + 1] = y.detach()
        self._kept[i, part] = _Kept(x, weights, y, self._version[stage])

    def _forward_weights(self, stage: int, part: int) -> dict[str, Tensor]:
        named = dict(self.parts[part].named_parameters())
        if self.mode != "stashed":
            # Shares the storage but not the version counter: an update in place changes the backward's weights.
            return {name: p.data.requires_grad_() for name, p in named.items()}
        stash = self._stash[part]
        if stash is None or stash[0] != self._version[stage]:
            stash = self._version[stage], {name: p.detach().clone().requires_grad_() for name, p in named.items()}
            self._stash[part] = stash
        return stash[1]

    def _backward(self, stage: int, part: int, i: int) -> None:
        forward, split = self._kept[i, part], self.schedule.splits_backward
        wanted = ([forward.x] if part else []) + ([] if split else list(forward.weights.values()))
        if wanted:
            grads = self._differentiate(stage, part, i, wanted, keep=split)
            if part:
                self._gradient[i, part - 1] = grads[0]
            if not split:
                self._take(stage, part, i, grads[1 if part else 0 :])

    def _weight(self, stage: int, part: int, i: int) -> None:
        wanted = list(self._kept[i, part].weights.values())
        self._take(stage, part, i, self._differentiate(stage, part, i, wanted, keep=False))

    def _differentiate(self, stage: int, part: int, i: int, wanted: list[Tensor], keep: bool) -> Sequence[Tensor]:
        """Return a part's gradients by its input or weights; ``keep`` the graph for another call."""
        forward, outer = self._kept[i, part], self._gradient[i, part]
        delay = self._version[stage] - forward.version
        if self.mode != "corrected" or not delay or not self._velocity[part]:
            return torch.autograd.grad(forward.y, wanted, outer, retain_graph=keep)
        named = dict(self.parts[part].named_parameters())
        present = {name: p.detach().clone() for name, p in named.items()}
        try:
            for name, p in named.items():
                p.data.sub_(self._velocity[part][name], alpha=delay)
            return torch.autograd.grad(forward.y, wanted, outer, retain_graph=keep)
        finally:
            for name, p in named.items():
                p.data.copy_(present[name])

    def _take(self, stage: int, part: int, i: int, grads: Sequence[Tensor]) -> None:
        """Add a micro-batch's gradient of one part, and update at once or after the last micro-batch."""
        forward = self._kept.pop((i, part))
        self._gradient.pop((i, part))
        updates_always = self.schedule.updates == "every"
        share = 1.0 if updates_always else 1.0 / self.schedule.microbatches
        for p, g in zip(self.parts[part].parameters(), grads, strict=True):
            p.grad = g * share if p.grad is None else p.grad.add_(g, alpha=share)
        self._left[stage] -= 1
        if updates_always or self._left[stage] == 0:
            self._update(stage, self._version[stage] - forward.version)

    def _update(self, stage: int, delay: int) -> None:
        self.delays[stage].append(delay)
        mine = range(stage, len(self.parts), self.stages)
        before = [{n: p.detach().clone() for n, p in self.parts[j].named_parameters()} for j in mine]
        self.optimizers[stage].step()
        self.optimizers[stage].zero_grad()
        if self.mode == "corrected":
            self._follow(stage, delay, before)
        self._version[stage] += 1
        if self.after_update is not None:
            self.after_update(stage, self._version[stage])

    def _follow(self, stage: int, delay: int, before: list[dict[str, Tensor]]) -> None:
        """Update the mean velocity of the weights.

        It is ``delta <- gamma delta + (1 - gamma)(w' - w)`` with ``gamma = D^(1 / tau)``.
        """
        decay = CORRECTION_DECAY ** (1 / delay) if delay else 0.0
        for old, part in zip(before, range(stage, len(self.parts), self.stages), strict=True):
            for name, p in self.parts[part].named_parameters():
                moved = p.detach() - old[name]
                velocity = self._velocity[part].get(name, torch.zeros_like(moved))
                self._velocity[part][name] = velocity.mul(decay).add(moved, alpha=1 - decay)
