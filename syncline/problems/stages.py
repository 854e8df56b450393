"""Stages of a pipeline: the cut of a model into stages, and a task whose gradients belong to older parameters.

In an asynchronous pipeline with weight stashing, the i-th gradient of stage k belongs to the weights that the stage had
tau_k updates before, ``x_k(i - min(i, tau_k))``. `DelayedTask` imitates this without a schedule: it keeps old
parameters and computes gradients at them. The delays are the same for all rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from syncline.costmodel.layouts.pipelines import block_stages, even_parts
from syncline.errors import SpecError, require_one_of
from syncline.problems.base import Task
from syncline.problems.gpt import GPT


def parameter_stages(names: Iterable[str], stages: int) -> dict[str, int]:
    """Return the stage of each GPT parameter by name: blocks in even parts, embeddings first, norm and head last."""
    names = list(names)
    # Blocks have names such as ``blocks.3.attention.qkv.weight``.
    block_of_name = {name: int(name.split(".")[1]) for name in names if name.startswith("blocks.")}
    num_blocks = len(set(block_of_name.values()))
    if not num_blocks:
        raise SpecError("problem", names[:3], "text-gpt, whose blocks can be stages, or a landscape's coordinates")
    if stages > 1 and "head.weight" not in names:
        raise SpecError("problem.tied", True, "false in a pipeline: its first and its last stage each have a table")
    stage_of_block = {}
    for stage, blocks in enumerate(block_stages(num_blocks, stages)):
        for block in blocks:
            stage_of_block[block] = stage
    stage_of_name = {}
    for name in names:
        if name in block_of_name:
            stage_of_name[name] = stage_of_block[block_of_name[name]]
        else:
            stage_of_name[name] = 0 if name.startswith(("token.", "position.")) else stages - 1
    return stage_of_name


class GPTStage(nn.Module):
    """A stage of a GPT: consecutive blocks; the first stage has the embedding, the last one norm and head.

    Its parameters have the names that they have in the whole model.
    """

    def __init__(self, model: GPT, blocks: range, *, first: bool, last: bool) -> None:
        super().__init__()
        self.first, self.last = first, last
        self.blocks = nn.ModuleDict({str(block): model.blocks[block] for block in blocks})
        if first:
            self.token, self.position = model.token, model.position
        if last:
            self.norm, self.head = model.norm, model.head

    def forward(self, x: Tensor) -> Tensor:
        """Return the stage's activations, or logits if it is the last; the first stage takes tokens as input."""
        if self.first:
            embedded: Tensor = self.token(x)
            x = embedded + self.position.weight[: x.shape[-1]]
        for block in self.blocks.values():
            x = block(x)
        if not self.last:
            return x
        table = self.token.weight if self.head is None else self.head.weight
        return nn.functional.linear(self.norm(x), table)


def split_into_stages(model: GPT, stages: int) -> list[nn.Module]:
    """Return the stages of a GPT as modules that share its parameters."""
    names = [name for name, _ in model.named_parameters()]
    parameter_stages(names, stages)  # raises an error for a model that cannot be split
    modules: list[nn.Module] = []
    for stage, blocks in enumerate(block_stages(len(model.blocks), stages)):
        modules.append(GPTStage(model, blocks, first=stage == 0, last=stage == stages - 1))
    return modules


def coordinate_delays(coordinates: int, stages: int, delays: Iterable[int]) -> Tensor:
    """Return the delay of each coordinate of a landscape, ``(d,)``, if its coordinates are cut into even stages.

    Args:
        coordinates: d, number of coordinates.
        delays: delay of each stage, in updates.
    """
    coordinates_of_stage = [len(part) for part in even_parts(coordinates, stages)]
    return torch.tensor(list(delays)).repeat_interleave(torch.tensor(coordinates_of_stage))


LateSteps = int | Tensor
"""Delay of a parameter's gradient in updates: one number, or one per coordinate, broadcast to the shape ``(R, *s)``."""


class DelayedTask:
    """A task whose ``.grad`` at step t is the gradient at the parameters of step ``t - min(t, tau)``.

    Args:
        delays: tau of each parameter by name, in updates; parameters without an entry have no delay.
        predict: weight prediction: a function from a parameter's name and current value to the weights of a forward
            pass. None for no prediction.

    Attributes:
        stale: the parameters that the last gradient belongs to, by name.
    """

    def __init__(
        self, task: Task, delays: Mapping[str, LateSteps], predict: Callable[[str, Tensor], Tensor] | None = None
    ) -> None:
        for name, delay in delays.items():
            require_one_of("delays", name, task.params)
            if int(torch.as_tensor(delay).min()) < 0:  # one delay, or one for each coordinate
                raise SpecError(f"delays.{name}", delay, "updates, at least 0")
        self._task, self._predict = task, predict
        self.delays = {name: delays.get(name, 0) for name in task.params}
        self._history: dict[str, deque[Tensor]] = {}
        self._masks: dict[str, list[tuple[int, Tensor]]] = {}
        for name, delay in self.delays.items():
            # A delay of tau steps needs the present parameters and the tau versions before them.
            self._history[name] = deque(maxlen=int(torch.as_tensor(delay).max()) + 1)
            if isinstance(delay, Tensor):
                # Make the mask of each delay's coordinates only once, because ``unique`` waits for the GPU.
                device = task.params[name].device
                self._masks[name] = [(int(tau), (delay == tau).to(device)) for tau in delay.unique()]
        self.stale: dict[str, Tensor] = {}

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the task without delay."""
        return getattr(self._task, name)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` at the delayed parameters, and set ``.grad`` to the gradients there."""
        params = self._task.params
        current = {name: p.data for name, p in params.items()}
        for name, p in params.items():
            # A later step returns the gradient at these weights.
            used_weights = p.detach().clone() if self._predict is None else self._predict(name, p.detach())
            self._history[name].append(used_weights)
        self.stale = {name: self._stale_parameter(name) for name in params}
        try:
            for name, p in params.items():
                p.data = self.stale[name]
            return self._task.step_gradients(step)
        finally:
            for name, p in params.items():
                p.data = current[name]

    def _stale_parameter(self, name: str) -> Tensor:
        """Return a parameter's value of ``delay`` updates ago, or its first value after fewer updates."""
        history, delay = self._history[name], self.delays[name]
        latest = len(history) - 1
        if isinstance(delay, int):  # one delay for all coordinates
            return history[max(latest - delay, 0)]
        stale = history[latest]
        for tau, mask in self._masks[name]:
            stale = torch.where(mask, history[max(latest - tau, 0)], stale)
        return stale
