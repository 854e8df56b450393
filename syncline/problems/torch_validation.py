"""Evaluation data of a module, and the means over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from syncline.errors import SpecError
from syncline.problems.streams import torch_generator
from syncline.problems.torch_batches import Answer, BatchLoss, answer, loss_of, to_device
from syncline.problems.torch_modules import type_name
from syncline.problems.torch_sources import Reading
from syncline.randomness import seed_all

Evaluate = Callable[[Any, Any], Any]
"""``evaluate(output, target)`` of one batch: a number, or numbers by name; means over its items."""

PART_OF_TRAINING = 1024
"""Items of the training data that take the place of a validation set."""


class Validation:
    """Batches that all evaluations share.

    Args:
        reading: reader of the validation data, all of it in order; without validation data, of the training data.
        is_training_data: whether ``reading`` reads the training data, of which at most 1,024 items are used, the same
            for every seed.
    """

    def __init__(self, reading: Reading, is_training_data: bool, device: torch.device, dtype: torch.dtype) -> None:
        self._reading, self._part = reading, PART_OF_TRAINING if is_training_data else None
        self._device, self._dtype = device, dtype
        self._numbers = None if reading.is_stream else self._chosen(is_training_data)
        self._tensors = None if reading.tensors is None else to_device(list(reading.tensors), device, dtype)
        if self._numbers is not None and not len(self._numbers):
            raise SpecError(reading.field, "no items", "at least one item")

    def _chosen(self, is_training_data: bool) -> Tensor:
        every = torch.arange(len(self._reading.data))
        if self._reading.sampler is not None:
            every = self._reading.order(self._device, 0, "evaluation", "items")
        if not is_training_data:
            return every
        every = every.unique()
        return every[torch.randperm(len(every), generator=torch_generator(0, "evaluation"))][:PART_OF_TRAINING]

    def batches(self) -> Iterator[tuple[Any, int]]:
        """Yield each validation batch with its number of items.

        The method seeds the random generators. Call it inside `preserved`, which restores their states.
        """
        seed_all(self._device, 0, "evaluation")
        size = self._reading.batch_size
        if self._numbers is None:
            yield from self._of_stream(size)
            return
        for numbers in self._numbers.split(size):
            if self._tensors is not None:
                yield [tensor[numbers.to(self._device)] for tensor in self._tensors], len(numbers)
            else:
                yield to_device(self._reading.fetch(numbers.tolist()), self._device, self._dtype), len(numbers)

    def _of_stream(self, size: int) -> Iterator[tuple[Any, int]]:
        items = islice(self._reading.run(0), self._part)
        while part := list(islice(items, size)):
            yield to_device(self._reading.batch_of(part), self._device, self._dtype), len(part)


def metrics_of(
    module: Callable[..., Any], batch: Any, loss: BatchLoss | None, evaluate: Evaluate | None, like: Tensor
) -> dict[str, Tensor]:
    """Return ``loss`` and the user's metrics of a batch, as scalars.

    Raises:
        SpecError: a metric is not a number, or has the name of another metric.
    """
    result = answer(module, batch, loss)
    metrics = {"loss": loss_of(result, loss)}
    if evaluate is not None:
        metrics |= _user_metrics(evaluate, result)
    return {name: torch.as_tensor(value, device=like.device).double() for name, value in metrics.items()}


def _user_metrics(evaluate: Evaluate, result: Answer) -> dict[str, Any]:
    evaluated = evaluate(*result)
    name = getattr(evaluate, "__name__", type(evaluate).__name__)
    values = (
        dict(evaluated) if isinstance(evaluated, Mapping) else {name if name.isidentifier() else "metric": evaluated}
    )
    for key, value in values.items():
        if not isinstance(key, str) or key == "loss":
            raise SpecError("problem.evaluate", key, "metrics by name, none of which is loss")
        if isinstance(value, str) or torch.as_tensor(value).dim():
            raise SpecError("problem.evaluate", type_name(value), f"a number for {key}: the mean over the batch")
    return values


class Means:
    """Means over all items of batches of different sizes."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._items = 0

    def add(self, metrics: Mapping[str, Tensor], items: int) -> None:
        """Add the metrics of a batch, weighted by its number of items."""
        self._items += items
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * items

    def values(self) -> dict[str, Tensor]:
        """Return the mean of each quantity."""
        return {name: total / self._items for name, total in self._sums.items()}
