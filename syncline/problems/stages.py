"""Models cut into stages: which part of a pipeline a parameter belongs to.

A delay line: the same task, whose gradient is of parameters some updates old.

In an asynchronous pipeline with weight stashing, the i-th gradient of stage k belongs to the weights that stage had
tau_k updates before, ``x_k(i - min(i, tau_k))``, and every other stage took part with its own stale weights. That needs
no schedule and no clock: this wrapper keeps old parameters and hands them to the task. All rows are late alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from syncline.costmodel.layouts.pipelines import block_stages, even_parts
from syncline.errors import (
    SpecError,
    one_of,
)
from syncline.problems.base import Task
from syncline.problems.gpt import GPT


def parameter_stages(names: Iterable[str], stages: int) -> dict[str, int]:
    """Return each GPT parameter's stage: blocks in even parts, embeddings in the first, norm and head in the last.

    Raises:
        SpecError: more stages than blocks, or a model whose output layer is its embedding, which cannot be cut.
    """
    listed = list(names)
    numbers = {int(name.split(".")[1]) for name in listed if name.startswith("blocks.")}
    if not numbers:
        raise SpecError("problem", listed[:3], "text-gpt, whose blocks can be stages, or a landscape's coordinates")
    of_block = {block: stage for stage, part in enumerate(block_stages(len(numbers), stages)) for block in part}
    if stages > 1 and "head.weight" not in listed:
        raise SpecError("problem.tied", True, "false in a pipeline: its first and its last stage each have a table")
    return {
        name: of_block[int(name.split(".")[1])]
        if name.startswith("blocks.")
        else (0 if name.startswith(("token.", "position.")) else stages - 1)
        for name in listed
    }


class GPTStage(nn.Module):
    """Consecutive blocks of a GPT; the first also embeds, the last also unembeds. Names are the whole model's."""

    def __init__(self, model: GPT, blocks: range, *, first: bool, last: bool) -> None:
        super().__init__()
        self.first, self.last = first, last
        self.blocks = nn.ModuleDict({str(block): model.blocks[block] for block in blocks})
        if first:
            self.token, self.position = model.token, model.position
        if last:
            self.norm, self.head = model.norm, model.head

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens or activations to activations, or in the last stage to logits."""
        if self.first:
            embedded: Tensor = self.token(x)
            x = embedded + self.position.weight[: x.shape[-1]]
        for block in self.blocks.values():
            x = block(x)
        if not self.last:
            return x
        table = self.token.weight if self.head is None else self.head.weight
        return nn.functional.linear(self.norm(x), table)


def cut(model: GPT, stages: int) -> list[nn.Module]:
    """Return the stages of a GPT as modules that, one after another, are the model, and share its parameters.

    Raises:
        SpecError: as `parameter_stages`.
    """
    parameter_stages([name for name, _ in model.named_parameters()], stages)
    parts = block_stages(len(model.blocks), stages)
    return [GPTStage(model, part, first=k == 0, last=k == stages - 1) for k, part in enumerate(parts)]


def coordinate_delays(coordinates: int, stages: int, delays: Iterable[int]) -> Tensor:
    """Return the delay of each coordinate of a landscape, cut into even parts like blocks, ``(d,)``."""
    of_part = list(delays)
    return torch.cat([
        torch.full((len(part),), of_part[stage]) for stage, part in enumerate(even_parts(coordinates, stages))
    ])  # fmt: skip


LateSteps = int | Tensor
"""Updates by which a parameter's gradient is late: one number, or one per coordinate, of a shape that broadcasts to the
parameter's ``(R, *s)``."""

Backward = Literal["stashed", "current"]
"""Which weights the backward pass uses: those of the forward pass, or those there are by then."""


class DelayedTask:
    """A task whose ``.grad`` at step t is of the parameters at step ``t - min(t, tau)``.

    Args:
        task: the task without delay.
        delays: tau of each parameter by name, in updates; parameters without an entry have no delay.
        predict: weight prediction: a function of a parameter's name and current value, which returns the weights that a
            forward pass uses. None for no prediction.

    Attributes:
        stale: the parameters that the last gradient belongs to, by name.

    Raises:
        SpecError: a delay of no such parameter, or one that is negative.
    """

    def __init__(
        self,
        task: Task,
        delays: Mapping[str, LateSteps],
        predict: Callable[[str, Tensor], Tensor] | None = None,
    ) -> None:
        for name, delay in delays.items():
            if name not in task.params:
                raise SpecError("delays", name, one_of(task.params, name))
            if int(torch.as_tensor(delay).min()) < 0:
                raise SpecError(f"delays.{name}", delay, "updates, at least 0")
        self._task, self._predict = task, predict
        self.delays = {name: delays.get(name, 0) for name in task.params}
        deepest = {name: int(torch.as_tensor(delay).max()) for name, delay in self.delays.items()}
        self._history = {name: deque[Tensor](maxlen=depth + 1) for name, depth in deepest.items()}
        # Where each delay is, found once: nothing is read back to the host in a step.
        self._places = {
            name: [(int(tau), (delay == tau).to(task.params[name].device)) for tau in delay.unique()]
            for name, delay in self.delays.items()
            if isinstance(delay, Tensor)
        }
        self.stale: dict[str, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the task without delay."""
        return getattr(self._task, name)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` at the stale parameters; ``.grad`` is the gradient there."""
        params = self._task.params
        present = {name: p.data for name, p in params.items()}
        for name, p in params.items():
            seen = p.detach().clone() if self._predict is None else self._predict(name, p.detach())
            self._history[name].append(seen)
        self.stale = {name: self._stale_parameter(name) for name in params}
        try:
            for name, p in params.items():
                p.data = self.stale[name]
            return self._task.step_gradients(step)
        finally:
            for name, p in params.items():
                p.data = present[name]

    def _stale_parameter(self, name: str) -> Tensor:
        """Return the parameter with each coordinate delayed by its own delay; before that, its first value."""
        history, delay = self._history[name], self.delays[name]
        if isinstance(delay, int):
            return history[max(len(history) - 1 - delay, 0)]
        out = history[-1]
        for tau, where in self._places[name]:
            out = torch.where(where, history[max(len(history) - 1 - tau, 0)], out)
        return out
