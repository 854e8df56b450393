"""Anyone's module and data as a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import nn

from syncline.errors import SpecError, one_of
from syncline.problems.base import LARGEST_SIZE, Rows, check_sizes
from syncline.problems.network import shape_only
from syncline.problems.per_worker import How
from syncline.problems.torch_batches import BatchLoss
from syncline.problems.torch_look import Look
from syncline.problems.torch_modules import MakeModel, word_for
from syncline.problems.torch_sources import Reading, reading_of
from syncline.problems.torch_task import TorchTask
from syncline.problems.torch_validation import Evaluate
from syncline.randomness import preserved, seed_all
from syncline.units import is_whole

HOWS = ("auto", "loop", "vmap")
BUFFERS = ("auto", "own")


@dataclass(frozen=True, eq=False, repr=False)
class TorchProblem:
    """A torch module, trained on data by minimising a loss.

    Args:
        make_model: a function that makes the module with fresh weights, which it draws from torch's global generator as
            any module does; here that stands on the seed of a replica, and is put back. Or a module, whose weights
            every seed starts from.
        train_set: a data set with a length, an iterable that can be gone through again, a DataLoader of either, or a
            tuple of tensors. Of the batches, all but the last part are the module's arguments and the last is the
            target; mappings are handed over by keywords.
        loss: ``loss(output, target)``, the mean over a batch. None: the module gets the whole batch and returns an
            object with ``.loss``, as those of Hugging Face do, or the loss itself.
        evaluate: ``evaluate(output, target)`` of a batch of the validation data: a number, which is called by the
            function's name, or a dictionary of numbers. They are averaged over batches by their items.
        batch_size: items of a worker's batch; of a DataLoader it is the loader's own.
        validation: data of evaluations; without, the same 1,024 items at most of ``train_set`` for all seeds.
        accumulate: batches (micro-batches) of a step, whose gradients are averaged.
        shuffle: whether the order of a data set is drawn anew for each epoch.
        drop_last: whether the last batch of an epoch is left out when it is not full.
        name: for tables; that of ``make_model`` if none.
        how: ``loop`` goes through the workers of this process one by one, ``vmap`` computes all in one batched pass;
            ``auto`` chooses.
        buffers: ``auto``: after a step in which gradients are averaged all workers have those of worker 0, as torch's
            ``broadcast_buffers`` has it before the next forward pass; where parameters are averaged, the buffers that
            are floating-point numbers are, too. ``own``: each worker keeps its own.
        matrices: names of the parameters that rules for matrices take. None: trainable ones of two dimensions or more,
            but for tables of embeddings and the last of the others by order of registration, the output head, unless
            that is tied to a table.

    Raises:
        SpecError: a value out of range, or data that cannot be read.

    State of a module outside parameters and buffers is shared by the workers of a process. A parameter that took no
    part in a step has a gradient of zero.
    """

    make_model: MakeModel
    train_set: Any
    loss: BatchLoss | None = None
    evaluate: Evaluate | None = None
    batch_size: int = 32
    validation: Any = None
    _: KW_ONLY
    accumulate: int = 1
    shuffle: bool = True
    drop_last: bool = True
    name: str = ""
    how: How = "auto"
    buffers: Literal["auto", "own"] = "auto"
    matrices: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for field in ("batch_size", "accumulate"):
            if not is_whole(getattr(self, field)):
                raise SpecError(f"problem.{field}", getattr(self, field), "a whole number")
        check_sizes(self, "batch_size", "accumulate", largest=LARGEST_SIZE)
        for field, choices in (("how", HOWS), ("buffers", BUFFERS)):
            choice = getattr(self, field)
            if not isinstance(choice, str) or choice not in choices:
                raise SpecError(f"problem.{field}", choice, one_of(choices, choice))
        for field in ("make_model", *(f for f in ("loss", "evaluate") if getattr(self, f) is not None)):
            if not callable(getattr(self, field)):
                raise SpecError(f"problem.{field}", getattr(self, field), "a function")
        if not isinstance(self.name, str):
            raise SpecError("problem.name", self.name, "text")
        if not self.name:
            word = word_for(self.make_model)
            object.__setattr__(self, "name", word if word.isidentifier() else "torch")
        reading = self.reading()
        self.validated_on(reading)
        object.__setattr__(self, "_notes", list(reading.notes))
        object.__setattr__(self, "batch_size", reading.batch_size)

    def __repr__(self) -> str:
        return f"TorchProblem({self.name!r})"

    def build(self, rows: Rows, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> TorchTask:
        """Return the task of ``rows``; takes one batch through the module.

        Raises:
            SpecError: what the module or the data cannot do, in one line.
        """
        return TorchTask(self, rows, dtype, torch.device(device))

    def notes(self) -> list[str]:
        """Return the settings of a DataLoader that replaced arguments, a line each."""
        return list(getattr(self, "_notes", ()))

    def reading(self) -> Reading:
        """Return the way to read the training data."""
        return reading_of(self.train_set, "problem.train_set", self.batch_size, self.shuffle, self.drop_last)

    def validated_on(self, reading: Reading) -> tuple[Reading, bool]:
        """Return the way to read the evaluation data, and whether it is part of the training data."""
        if self.validation is None:
            return reading, True
        return reading_of(self.validation, "problem.validation", reading.batch_size, False, False), False

    def module(self) -> nn.Module | None:
        """Return the module without memory, on the meta device, made once; None if it cannot be made there."""
        if self not in _MODULES:
            _MODULES[self] = self._without_memory()
        return _MODULES[self]

    def _without_memory(self) -> nn.Module | None:
        cpu = torch.device("cpu")
        if isinstance(self.make_model, nn.Module):
            return self.make_model
        try:
            with preserved(cpu):
                seed_all(cpu, 0, "weights")
                return shape_only(self.make_model)
        except Exception:  # whatever a module does with numbers that are not there
            return None

    def looks(self) -> dict[Any, Look]:
        """Return the module's measured properties, by number format and kind of device."""
        return _LOOKS.setdefault(self, {})


_MODULES: WeakKeyDictionary[TorchProblem, nn.Module | None] = WeakKeyDictionary()
_LOOKS: WeakKeyDictionary[TorchProblem, dict[Any, Look]] = WeakKeyDictionary()
