"""Steps of torch's optimizers that are counted once, because the inputs of a step determine its operations.

Half of the operations of a small model are the optimizer's. Each takes some microseconds, and so does counting it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.hooks import RemovableHandle

REGULAR = frozenset({
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.Adadelta,
    torch.optim.Adamax, torch.optim.NAdam, torch.optim.RMSprop,
})  # fmt: skip
"""Optimizers whose operations depend only on shapes, options, and whether a state exists.

The operations of other optimizers depend on values or on the number of steps.
"""

Costs = list[tuple[float, float]]


class KnownSteps:
    """A context that switches a counter off during optimizer steps that it has counted before.

    Args:
        counter: the active counter.
        note: called with the FLOPs and bytes of the operations of a step that is not counted again.
        listens: returns whether operations are counted now.
        others: returns a number that changes if a step does anything besides computation.
    """

    def __init__(
        self,
        counter: TorchDispatchMode,
        note: Callable[[Costs], None],
        listens: Callable[[], bool],
        others: Callable[[], int],
    ) -> None:
        self.counter, self.note, self.listens, self.others = counter, note, listens, others
        self.counted: Costs | None = None
        """The costs of the step that is being counted; None outside such a step."""
        self._known: dict[Any, Costs] = {}
        self._begun: tuple[Any, int] | None = None
        self._is_off = False
        self._plain: Any = None
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> KnownSteps:
        self._hooks = [register_optimizer_step_pre_hook(self._begins), register_optimizer_step_post_hook(self._ends)]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begins(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._is_off:  # the previous step raised an error, and the script went on
            self._on()
        self._begun = self.counted = None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if type(optimizer) not in REGULAR or closure is not None or _get_current_dispatch_mode() is not self.counter:
            return
        if not self.listens():
            return
        key = step_key(optimizer)
        costs = self._known.get(key)
        if costs is None:
            self._begun, self.counted = (key, self.others()), []
            return
        self.note(costs)
        self._is_off = True
        self.counter.__exit__(None, None, None)
        self._plain = torch._C.DisableTorchFunction()  # function modes need not see the step either
        self._plain.__enter__()

    def _ends(self, *_: Any) -> None:
        if self._is_off:
            self._on()
        elif self._begun is not None and self.counted is not None:
            key, others = self._begun
            if self.others() == others:
                self._known[key] = self.counted
        self._begun = self.counted = None

    def _on(self) -> None:
        self._is_off = False
        self._plain.__exit__(None, None, None)
        self.counter.__enter__()


def step_key(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """Return a key of everything that the operations of a step depend on.

    The learning rate is only a factor, so its type counts and its value does not.
    """
    state = optimizer.state
    key: list[Any] = [id(optimizer)]
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name == "lr":
                key.append(type(value))
            elif name != "params":
                key.append(value if isinstance(value, int | float | str | tuple | None) else type(value))
        for parameter in group["params"]:
            gradient = parameter.grad
            key += parameter.shape, None if gradient is None else gradient.layout, len(state.get(parameter, ()))
    return tuple(key)
