"""Anyone's module and data as a problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from syncline.errors import SpecError, one_of
from syncline.problems.base import LARGEST_SIZE, Rows, check_sizes
from syncline.problems.network import MANY_ROWS, SMALL_PARAMETERS, How, shape_only
from syncline.problems.torch_data import Reading, Shards, reading_of, replica_and_worker, sharded, stack_rows
from syncline.problems.torch_flops import ModuleProperties, measure_module
from syncline.problems.torch_modules import (
    BatchLoss,
    MakeModel,
    TensorHolders,
    build_module,
    check_module,
    error_clause,
    matrix_names,
    per_replica,
    placed_loss,
    type_name,
)
from syncline.problems.torch_passes import Evaluate, Means, Stacked, Validation, by_loop, by_vmap, metrics_of, put_row
from syncline.randomness import preserved, seed_all
from syncline.units import is_whole

HOWS = ("auto", "loop", "vmap")
BUFFERS = ("auto", "own")


SMALL_FLOPS = 2**24
"""Of a row's step, up to which a batched pass pays on a CPU; measured with convolutions on 8 and on 28 pixels."""

TRIAL_ROWS = 2
TRIAL_TOLERANCE = 1e-3
"""How many rows are tried in one batched pass, and how far their losses may be from the loop's, relatively."""


@dataclass(frozen=True, eq=False, repr=False)
class TorchProblem:
    """A torch module, trained on data by minimising a loss.

    Args:
        make_model: a function that makes the module with fresh weights from torch's global generator, which is set to
            the seed of the replica and restored afterwards; or a module, from whose weights all seeds start.
        train_set: a data set with a length, an iterable that can be repeated, a DataLoader of either, or a tuple of
            tensors. The last part of a batch is the target, and the other parts are the module's arguments; a mapping
            is passed as keyword arguments.
        loss: ``loss(output, target)``, the mean over a batch. None: the module gets the whole batch and returns an
            object with ``.loss``, as those of Hugging Face do, or the loss itself.
        evaluate: function ``evaluate(output, target)`` of a batch of the validation data. It returns a metric, which
            gets the function's name, or a dictionary of metrics. A metric is averaged over all items.
        batch_size: number of items in a worker's batch; a DataLoader has its own batch size.
        validation: data of evaluations; by default at most 1,024 items of ``train_set``, the same for all seeds.
        accumulate: number of batches (micro-batches) per step, whose gradients are averaged.
        shuffle: whether the order of a data set is drawn anew for each epoch.
        drop_last: whether the last batch of an epoch is left out if it is not full.
        name: name in tables; by default that of ``make_model``.
        how: how gradients are computed: ``loop``, for one worker of this process after another; ``vmap``, for all in
            one batched pass; ``auto``, the better of both.
        buffers: how workers share the module's buffers. ``auto``: after a step that averages gradients, all workers
            adopt the buffers of worker 0, as with torch's ``broadcast_buffers``; when parameters are averaged,
            floating-point buffers are averaged too. ``own``: each worker keeps its own buffers.
        matrices: names of the parameters that rules for matrices update. By default, all trainable parameters of two
            dimensions or more, except tables of embeddings and the output head. The head is the last of the others in
            order of registration, unless it is tied to a table.

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
            word = type_name(self.make_model)
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

    def looks(self) -> dict[Any, ModuleProperties]:
        """Return the module's measured properties, by number format and kind of device."""
        return _LOOKS.setdefault(self, {})


_MODULES: WeakKeyDictionary[TorchProblem, nn.Module | None] = WeakKeyDictionary()
_LOOKS: WeakKeyDictionary[TorchProblem, dict[Any, ModuleProperties]] = WeakKeyDictionary()


class TorchTask:
    """All rows of one module.

    Attributes:
        params: trainable parameters, ``(R, *s)``.
        buffers: the module's buffers, ``(R, *s)``, after each worker's batches.
        shares_buffers: whether workers exchange buffers in steps in which they exchange parameters or gradients.
        matrices: names of the parameters that rules for matrices update, see `TorchProblem`.
        flops_per_step: FLOPs of one worker in one step, see `syncline.problems.torch_flops`.
        how: how gradients are computed, ``loop`` or ``vmap``.
        why: reason for this choice.
    """

    def __init__(self, problem: TorchProblem, rows: Rows, dtype: torch.dtype, device: torch.device) -> None:
        self.rows, self._problem, self._device = rows, problem, device
        modules = [build_module(problem.make_model, seed, device) for seed in rows.seeds]
        for module in modules[:1]:
            check_module(module)
        self.matrices = matrix_names(modules[0], problem.matrices)
        states = [TensorHolders(module) for module in modules]
        self.params = rows.parameters(
            lambda seed: {name: p.detach() for name, p in states[rows.seeds.index(seed)].trained.items()}, dtype, device
        )
        frozen = {name: per_replica([s.frozen[name].data for s in states], device, dtype) for name in states[0].frozen}
        self.buffers = {
            name: torch.stack([_placed(state.buffers[name], device, dtype) for state in states]).repeat_interleave(
                len(rows.workers), 0
            )
            for name in states[0].buffers
        }
        self.shares_buffers = problem.buffers == "auto"
        self._tensors = Stacked(self.params, frozen, self.buffers)
        self._places = TensorHolders(modules[0].to(device, dtype))
        self._loss = placed_loss(problem.loss, device, dtype)
        self._training = [(part, part.training) for part in modules[0].modules()]
        self._data: Shards
        with preserved(device):
            reading = problem.reading()
            self._data = sharded(reading, rows, problem.accumulate, device=device, dtype=dtype)
            self._validation = Validation(*problem.validated_on(reading), device, dtype)
            seen = self._looked()
            self.flops_per_step = None if seen.flops is None else seen.flops * problem.accumulate
            self.how, self.why = self._chosen(seen)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` on each row's batches of this step; ``.grad`` is the gradient of each."""
        with preserved(self._device):
            batches = self._data.of_all(step) if self.how == "vmap" else None
            if batches is not None:
                return by_vmap(self._places, self._tensors, batches, self.rows, self._loss)
            return by_loop(self._places, self._tensors, self._data, self.rows, step, self._loss, self._device)

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return ``loss`` and the user's metrics of mean parameters and buffers ``(S, *s)`` on the validation data."""
        replicas = range(len(self.rows.seeds))
        sums = [Means() for _ in replicas]
        like = next(iter(self.params.values()))
        with preserved(self._device), self._evaluating():
            for batch, items in self._validation.batches():
                for replica in replicas:
                    buffers_of = {name: value[replica] for name, value in means.items()}
                    self._places.put(buffers_of | self._tensors.of_replica(replica))
                    self._places.put_buffers({
                        name: buffers_of.get(name, buffer.unflatten(0, (len(replicas), -1))[replica, 0]).clone()
                        for name, buffer in self.buffers.items()
                    })  # fmt: skip
                    metrics = metrics_of(self._places.module, batch, self._loss, self._problem.evaluate, like)
                    sums[replica].add(metrics, items)
        values = [mean.values() for mean in sums]
        return {name: torch.stack([mean[name] for mean in values]) for name in values[0]}

    def trace(self) -> dict[str, Tensor]:
        """Return no diagnostics, because a pass over the weights of all workers would cost as much as a step."""
        return {}

    def describe(self) -> dict[str, object]:
        """Return counts of one worker, how gradients are computed and why, and what is to be known."""
        trained = sum(p[0].numel() for p in self.params.values())
        frozen = sum(values[0].numel() for values in self._tensors.frozen.values())
        buffer_elements = sum(buffer[0].numel() for buffer in self.buffers.values())
        counts = {"parameters": trained, "frozen_parameters": frozen, "buffer_elements": buffer_elements}
        return {"name": self._problem.name, **counts, "how": self.how, "why": self.why, "notes": self._problem.notes()}

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Set the module to evaluation for a block, then restore the mode of each part."""
        self._places.module.eval()
        try:
            yield
        finally:
            for part, training in self._training:
                part.training = training

    def _looked(self) -> ModuleProperties:
        """Measure the module on the first batch of the first row, once for all tasks of a problem."""
        place = (self.params[next(iter(self.params))].dtype, self._device.type)
        looks = self._problem.looks()
        if place not in looks:
            batch = self._data.of_row(0, 0)[0]
            put_row(self._places, self._tensors, self.rows, 0)
            self._places.put_buffers({name: buffer[0].clone() for name, buffer in self.buffers.items()})
            seed, worker = replica_and_worker(self.rows, 0)
            seed_all(self._device, seed, "module", worker, 0)
            looks[place] = measure_module(self._places, batch, self._loss, self._device)
        return looks[place]

    def _chosen(self, properties: ModuleProperties) -> tuple[str, str]:
        """Return ``loop`` or ``vmap``, and the reason.

        Raises:
            SpecError: the user requests vmap, and the module cannot be batched.
        """
        option = self._problem.how
        if option == "loop":
            return "loop", "asked for"
        if option == "auto":
            row = sum(param[0].numel() for param in self.params.values())
            small = row < SMALL_PARAMETERS and (self.flops_per_step or 0) < SMALL_FLOPS
            if self._device.type != "cuda" and len(self.rows) < MANY_ROWS:
                return "loop", f"fewer than {MANY_ROWS} rows"
            if self._device.type != "cuda" and not small:
                return "loop", "rows large enough to be quicker one by one"
        obstacle = "the module draws random numbers" if properties.draws else self._tried()
        if obstacle is None:
            return "vmap", "asked for" if option == "vmap" else "many small rows, which torch can batch"
        if option == "vmap":
            raise SpecError("problem.how", option, f"loop or auto, as {obstacle}")
        return "loop", obstacle

    def _tried(self) -> str | None:
        """Return the reason why the rows cannot be computed in one batched pass; None if they can."""
        if len(self.rows) == 1:
            return None
        workers = min(len(self.rows.workers), TRIAL_ROWS)
        rows = Rows(self.rows.seeds[: TRIAL_ROWS // workers], self.rows.workers[:workers], self.rows.world_size)
        few = Stacked(
            {name: torch.nn.Parameter(p.detach()[:TRIAL_ROWS]) for name, p in self.params.items()},
            {name: values[: len(rows.seeds)] for name, values in self._tensors.frozen.items()},
            {name: buffer[:TRIAL_ROWS].clone() for name, buffer in self.buffers.items()},
        )
        joined = stack_rows([self._data.of_row(row, 0) for row in range(TRIAL_ROWS)])
        if joined is None:
            return "batches hold what is no tensor, or differ in shape"
        alone = by_loop(self._places, few, self._data, rows, 0, self._loss, self._device)
        for name, buffer in few.buffers.items():
            buffer.copy_(self.buffers[name][:TRIAL_ROWS])
        try:
            together = by_vmap(self._places, few, joined, rows, self._loss)
        except Exception as error:  # torch's, of many kinds
            return f"torch cannot batch the module; {error_clause(error)}"
        if not torch.allclose(alone, together, rtol=TRIAL_TOLERANCE, atol=TRIAL_TOLERANCE):
            return "batched, the module gives another loss"
        return None


def _placed(x: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return x.detach().to(device, dtype) if x.is_floating_point() else x.detach().to(device)
