"""A torch module and data of the user as a problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from syncline.errors import SpecError, one_of
from syncline.problems import torch_modules
from syncline.problems.base import LARGEST_SIZE, Rows, check_sizes
from syncline.problems.network import MANY_ROWS, SMALL_PARAMETERS, Execution, shape_only
from syncline.problems.row_passes import may_keep_mean
from syncline.problems.torch_data import DataReader, Shards, data_reader, make_shards, seed_and_worker, stack_batches
from syncline.problems.torch_flops import ModuleProperties, measure_module
from syncline.problems.torch_passes import (
    Evaluate,
    MetricMeans,
    PassSettings,
    RowTensors,
    Validation,
    compute_metrics,
    gradients_by_loop,
    gradients_by_vmap,
    load_row,
)
from syncline.randomness import preserved, seed_all
from syncline.units import is_whole

EXECUTIONS = ("auto", "loop", "vmap")
BUFFERS = ("auto", "own")


SMALL_FLOPS = 2**24
"""On a CPU a batched pass is faster up to so many FLOPs per row and step; measured on images of 8 and 28 pixels."""

TRIAL_ROWS, TRIAL_TOLERANCE = 2, 1e-3
"""Number of rows of the trial of a batched pass, and relative tolerance of their losses against those of the loop."""


@dataclass(frozen=True, eq=False, repr=False)
class TorchProblem:
    """The training of a torch module on data by minimising a loss.

    Args:
        make_model: a function that makes the module with weights from torch's global generator, for which each replica
            has a seed; or a module whose weights all seeds start from.
        train_set: a data set with a length, an iterable that can be repeated, a DataLoader, or a tuple of tensors. The
            last part of a batch is the target, and the other parts are the module's arguments; a mapping is passed as
            keyword arguments.
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
            dimensions or more, except tables of embeddings and the output head. The head is the last of these
            parameters, unless it is tied to a table.

    The workers of a process share any state of the module outside parameters and buffers. A parameter that took no part
    in a step has a gradient of zero.
    """

    make_model: torch_modules.MakeModel
    train_set: Any
    loss: torch_modules.BatchLoss | None = None
    evaluate: Evaluate | None = None
    batch_size: int = 32
    validation: Any = None
    _: KW_ONLY
    accumulate: int = 1
    shuffle: bool = True
    drop_last: bool = True
    name: str = ""
    how: Execution = "auto"
    buffers: Literal["auto", "own"] = "auto"
    matrices: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for field in ("batch_size", "accumulate"):
            if not is_whole(getattr(self, field)):
                raise SpecError(f"problem.{field}", getattr(self, field), "a whole number")
        check_sizes(self, "batch_size", "accumulate", largest=LARGEST_SIZE)
        for field, choices in (("how", EXECUTIONS), ("buffers", BUFFERS)):
            choice = getattr(self, field)
            if not isinstance(choice, str) or choice not in choices:
                raise SpecError(f"problem.{field}", choice, one_of(choices, choice))
        for field in ("make_model", "loss", "evaluate"):
            function = getattr(self, field)
            is_left_out = function is None and field in ("loss", "evaluate")
            if not callable(function) and not is_left_out:
                raise SpecError(f"problem.{field}", function, "a function")
        if not isinstance(self.name, str):
            raise SpecError("problem.name", self.name, "text")
        if not self.name:  # the class is frozen, so the name is set by ``object``
            word = torch_modules.type_name(self.make_model)
            object.__setattr__(self, "name", word if word.isidentifier() else "torch")
        reader = self.training_reader()
        self.validation_reader(reader)  # raises an error for data that cannot be read
        object.__setattr__(self, "_notes", list(reader.notes))
        object.__setattr__(self, "batch_size", reader.batch_size)  # a DataLoader has its own

    def __repr__(self) -> str:
        return f"TorchProblem({self.name!r})"

    def build(
        self,
        rows: Rows,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        execution: Execution = "auto",
        autocast: torch.dtype | None = None,
    ) -> TorchTask:
        """Return the task of ``rows``, after a forward and a backward pass of the module on one batch.

        Args:
            execution: how gradients are computed; with ``auto``, as the problem's own ``how`` says.
            autocast: type in which the products of gradients are computed; None: that of the parameters.

        Raises:
            SpecError: the module cannot be trained, or the data cannot be read.
        """
        if execution not in EXECUTIONS:
            raise SpecError("execution", execution, "eager or loop, as a user's module is not recorded")
        return TorchTask(self, rows, dtype, torch.device(device), execution=execution, autocast=autocast)

    def notes(self) -> list[str]:
        """Return the settings of a DataLoader that replaced arguments, a line each."""
        return list(getattr(self, "_notes", ()))

    def training_reader(self) -> DataReader:
        """Return the reader of the training data."""
        return data_reader(self.train_set, "problem.train_set", self.batch_size, self.shuffle, self.drop_last)

    def validation_reader(self, training: DataReader) -> tuple[DataReader, bool]:
        """Return the reader of the evaluation data, and whether it reads the training data."""
        if self.validation is None:
            return training, True
        reader = data_reader(self.validation, "problem.validation", training.batch_size, shuffle=False, drop_last=False)
        return reader, False

    def module(self) -> nn.Module | None:
        """Return the module on the meta device, without memory, made once; None if it cannot be made there."""
        if self not in _MODULES:  # a frozen problem can be a key
            _MODULES[self] = self._meta_module()
        return _MODULES[self]

    def _meta_module(self) -> nn.Module | None:
        """Return a new module on the meta device, or the user's module; None if it cannot be made there."""
        if isinstance(self.make_model, nn.Module):
            return self.make_model
        cpu = torch.device("cpu")
        try:
            with preserved(cpu):  # a user's function may draw numbers of its own
                seed_all(cpu, 0, "weights")
                return shape_only(self.make_model)
        except Exception:  # any error of a user's function that needs the values of tensors
            return None


_MODULES: WeakKeyDictionary[TorchProblem, nn.Module | None] = WeakKeyDictionary()
_PROPERTIES: WeakKeyDictionary[TorchProblem, dict[Any, ModuleProperties]] = WeakKeyDictionary()


class TorchTask:
    """The task of a module: parameters, gradients and losses of all workers.

    Attributes:
        params: trainable parameters, ``(R, *s)``.
        buffers: the module's buffers, ``(R, *s)``, after each worker's batches.
        shares_buffers: whether workers exchange buffers in steps in which they exchange parameters or gradients.
        matrices: names of the parameters that rules for matrices update, see `TorchProblem`.
        flops_per_step: FLOPs of one worker in one step, see `measure_module`; None if they cannot be counted.
        how: how gradients are computed, ``loop`` or ``vmap``.
        why: reason for this choice.
    """

    def __init__(
        self,
        problem: TorchProblem,
        rows: Rows,
        dtype: torch.dtype,
        device: torch.device,
        *,
        execution: str,
        autocast: torch.dtype | None,
    ) -> None:
        self.rows, self._problem, self._device = rows, problem, device
        modules = [torch_modules.build_module(problem.make_model, seed, device) for seed in rows.seeds]
        torch_modules.check_module(modules[0])
        self.matrices = torch_modules.matrix_names(modules[0], problem.matrices)
        replicas = [torch_modules.SwappableModule(module) for module in modules]
        replica_of_seed = dict(zip(rows.seeds, replicas, strict=True))
        self.params = rows.parameters(
            lambda seed: {name: p.detach() for name, p in replica_of_seed[seed].trained.items()}, dtype, device
        )
        frozen, self.buffers = {}, {}
        for name in replicas[0].frozen:
            frozen[name] = torch_modules.merge_equal_replicas(
                [replica.frozen[name].data for replica in replicas], device, dtype
            )
        for name in replicas[0].buffers:
            values = [torch_modules.to_device(replica.buffers[name].detach(), device, dtype) for replica in replicas]
            self.buffers[name] = torch.stack(values).repeat_interleave(len(rows.workers), dim=0)
        self.shares_buffers = problem.buffers == "auto"
        self._tensors = RowTensors(self.params, frozen, self.buffers)
        self._swappable = torch_modules.SwappableModule(modules[0].to(device, dtype))
        self._execution = execution
        self._settings = PassSettings(torch_modules.loss_on_device(problem.loss, device, dtype), device, autocast)
        self._training_modes = [(part, part.training) for part in modules[0].modules()]
        self._data: Shards
        with preserved(device):  # readers and modules may draw from the global generators
            reader = problem.training_reader()
            self._data = make_shards(reader, rows, problem.accumulate, device=device, dtype=dtype)
            validation_reader, is_training_data = problem.validation_reader(reader)
            self._validation = Validation(validation_reader, is_training_data, device, dtype)
            properties = self._measure_once()
            self.flops_per_step = None if properties.flops is None else properties.flops * problem.accumulate
            self.how, self.why = self._choose_how(problem.how if execution == "auto" else execution, properties)

    def step_gradients(self, step: int) -> Tensor:
        """Return the losses ``(R,)`` on each worker's batches of this step, and set ``.grad`` to the gradients."""
        with preserved(self._device):
            batches = self._data.stacked_batches(step) if self.how == "vmap" else None
            if batches is not None:
                return gradients_by_vmap(self._swappable, self._tensors, batches, self.rows, self._settings)
            return gradients_by_loop(self._swappable, self._tensors, self._data, self.rows, step, self._settings)

    def keep_mean_gradient(self) -> bool:
        """Store only the mean of the rows' gradients from now on, if `may_keep_mean` allows it; return its answer."""
        self._settings.keeps_mean = may_keep_mean(self._execution, self._device)
        return self._settings.keeps_mean

    @torch.no_grad()
    def evaluate(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return ``loss`` and the user's metrics of mean parameters and buffers ``(S, *s)`` on the validation data."""
        replicas = range(len(self.rows.seeds))
        metric_means = [MetricMeans() for _ in replicas]
        device = next(iter(self.params.values())).device
        with preserved(self._device), self._evaluating():
            for batch, items in self._validation.batches():
                for replica in replicas:
                    replica_means = {name: value[replica] for name, value in means.items()}
                    self._swappable.set_parameters(replica_means | self._tensors.frozen_params(replica))
                    buffers = {}
                    for name, buffer in self.buffers.items():
                        # For a buffer without a mean, such as a counter, take the first worker's.
                        first_worker_buffer = buffer[replica * len(self.rows.workers)]
                        buffers[name] = replica_means.get(name, first_worker_buffer).clone()  # the module may change it
                    self._swappable.set_buffers(buffers)
                    module, loss = self._swappable.module, self._settings.loss
                    metrics = compute_metrics(module, batch, loss, self._problem.evaluate, device)
                    metric_means[replica].add(metrics, items)
        values = [mean.values() for mean in metric_means]
        return {name: torch.stack([replica_values[name] for replica_values in values]) for name in values[0]}

    def trace(self) -> dict[str, Tensor]:
        """Return no diagnostics, because a pass over the weights of all workers would cost as much as a step."""
        return {}

    def describe(self) -> dict[str, object]:
        """Return the sizes of one worker's model, how gradients are computed and why, and notes on the data."""
        trained = sum(p[0].numel() for p in self.params.values())
        frozen = sum(values[0].numel() for values in self._tensors.frozen.values())
        buffer_elements = sum(buffer[0].numel() for buffer in self.buffers.values())
        counts = {"parameters": trained, "frozen_parameters": frozen, "buffer_elements": buffer_elements}
        gradients = {"how": self.how, "why": self.why}
        return {"name": self._problem.name, **counts, **gradients, "notes": self._problem.notes()}

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Return a context with the module in evaluation mode; at its end, each part has its former mode again."""
        self._swappable.module.eval()
        try:
            yield
        finally:
            for part, training in self._training_modes:
                part.training = training

    def _measure_once(self) -> ModuleProperties:
        """Return the properties of the module, measured on the first batch of the first row, once for all tasks."""
        cache = _PROPERTIES.setdefault(self._problem, {})
        first_param = next(iter(self.params.values()))
        key = (first_param.dtype, self._device.type)
        if key not in cache:
            first_batch, *_ = self._data.row_batches(row=0, step=0)
            load_row(self._swappable, self._tensors, self.rows, row=0)
            # Copies of the buffers, because the pass changes them, and the training has not begun.
            self._swappable.set_buffers({name: buffer[0].clone() for name, buffer in self.buffers.items()})
            seed, worker = seed_and_worker(self.rows, row=0)
            seed_all(self._device, seed, "module", worker, 0)  # the seed of step 0
            cache[key] = measure_module(self._swappable, first_batch, self._settings.loss, self._device)
        return cache[key]

    def _choose_how(self, option: str, properties: ModuleProperties) -> tuple[str, str]:
        """Return how gradients are computed, ``loop`` or ``vmap``, for an option of `EXECUTIONS`, and the reason."""
        if option == "loop":
            return "loop", "asked for"
        if option == "auto" and self._device.type != "cuda":
            parameters = sum(param[0].numel() for param in self.params.values())
            flops = self.flops_per_step or 0
            if len(self.rows) < MANY_ROWS:
                return "loop", f"fewer than {MANY_ROWS} rows"
            if parameters >= SMALL_PARAMETERS or flops >= SMALL_FLOPS:
                return "loop", "rows large enough to be quicker one by one"
        # A batched pass would not draw a worker's random numbers from the worker's own stream.
        obstacle = "the module draws random numbers" if properties.is_random else self._find_batching_obstacle()
        if obstacle is None:
            return "vmap", "asked for" if option == "vmap" else "many small rows, which torch can batch"
        if option == "vmap":
            raise SpecError("problem.how", option, f"loop or auto, as {obstacle}")
        return "loop", obstacle

    def _find_batching_obstacle(self) -> str | None:
        """Return the reason why one batched pass cannot compute the rows; None if a trial shows that it can."""
        if len(self.rows) == 1:
            return None
        # Two rows: two workers of one replica, or the only worker of two replicas.
        num_workers = min(len(self.rows.workers), TRIAL_ROWS)
        num_replicas = TRIAL_ROWS // num_workers
        rows = Rows(self.rows.seeds[:num_replicas], self.rows.workers[:num_workers], self.rows.world_size)
        trial = RowTensors(
            params={name: torch.nn.Parameter(p.detach()[:TRIAL_ROWS]) for name, p in self.params.items()},
            frozen={name: values[:num_replicas] for name, values in self._tensors.frozen.items()},
            buffers={name: buffer[:TRIAL_ROWS].clone() for name, buffer in self.buffers.items()},
        )
        batches = stack_batches([self._data.row_batches(row, step=0) for row in range(TRIAL_ROWS)])
        if batches is None:
            return "batches contain other objects than tensors, or differ in shape"
        loop_losses = gradients_by_loop(self._swappable, trial, self._data, rows, step=0, settings=self._settings)
        for name, buffer in trial.buffers.items():  # undo the changes by the loop
            buffer.copy_(self.buffers[name][:TRIAL_ROWS])
        try:
            vmap_losses = gradients_by_vmap(self._swappable, trial, batches, rows, self._settings)
        except Exception as error:  # torch raises errors of many types
            return f"torch cannot batch the module; {torch_modules.error_clause(error)}"
        if not torch.allclose(loop_losses, vmap_losses, rtol=TRIAL_TOLERANCE, atol=TRIAL_TOLERANCE):
            return "the batched module gives a different loss"
        return None
