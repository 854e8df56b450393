"""Checks before a training starts: it must fit into memory, and failures must not stop its progress."""

from __future__ import annotations

import math
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from syncline.costmodel import TensorShape
from syncline.costmodel.failures import group_mtbf_s
from syncline.errors import SpecError
from syncline.methods import MethodBase
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.sim.failures.costs import no_progress_line
from syncline.specs import Training
from syncline.specs.failures import FailuresSpec
from syncline.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from syncline.optim import Method

MAX_TIME_PER_MTBF = math.log(1000)
"""Largest accepted ratio of a work's time to the mean time between failures.

With exponential times between failures, work of ratio r needs exp(r) attempts on average: here a thousand.
"""

CGROUP_LIMIT_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files with a container's memory limit on Linux, of cgroups version 2 and 1."""

PROCESS_BYTES = 50e6
"""Memory in bytes that is counted for each process, a choice to refuse absurd numbers at once."""

MOST_COPIES_OF_OPTIMIZER = 100_000
"""Largest number of copies for which the check asks the optimizer what it stores; above, all copies count."""

PROCESSES_PER_CORE = 64
"""Largest number of processes per core, a choice: more would distort each other's measurements."""


def check_processes(field: str, processes: int) -> None:
    """Refuse more processes at once than this machine can start; the error names ``field``."""
    largest = PROCESSES_PER_CORE * (os.cpu_count() or 1)
    available_bytes = memory_bytes()
    if available_bytes is not None:
        largest = min(largest, int(available_bytes / PROCESS_BYTES))
    max_open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if max_open_files != resource.RLIM_INFINITY:  # each process has a file for its connection to every other
        largest = min(largest, max_open_files // 2)  # half of the files are for other uses
    if processes > largest:
        expected = f"at most {largest} processes on this machine, by its cores, memory and files"
        raise SpecError(field, processes, expected)


def check_training(spec: Training, *methods: MethodBase) -> None:
    """Refuse a training that needs too much memory, whose failures stop it, or whose method cannot train the model."""
    on_gpu = False
    if spec.device != "cpu":
        from syncline.comm.devices import training_device  # only here: torch is slow to load

        on_gpu = training_device(spec.device).type == "cuda"
    if spec.execution == "graph" and not on_gpu:
        raise SpecError("execution", spec.execution, "eager or compiled, as only a CUDA device keeps graphs")
    for method in methods:
        check_progress(spec, method)
    tensors = tensors_of_problem(spec.problem)
    if tensors is None:
        return
    for method in methods:
        method.check_model(tensors)
    available_bytes = gpu_memory_bytes() if on_gpu else memory_bytes()
    if available_bytes is None:
        return
    quick_bound_bytes = most_activation_bytes(spec, tensors)
    for method in methods:
        needed = needed_bytes(spec, method, tensors, activation_bytes=quick_bound_bytes, on_gpu=on_gpu)
        if needed.total > available_bytes:  # the bound is too high, but the exact number takes a second
            activation_bytes = step_activation_bytes(spec, tensors)
            needed = needed_bytes(spec, method, tensors, activation_bytes=activation_bytes, on_gpu=on_gpu)
        if needed.total > available_bytes:
            raise _memory_error(spec, needed, tensors, available_bytes, on_gpu)


DTYPE_BYTES = {"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
"""Bytes of a number by the spec's ``dtype``."""


def _memory_error(
    spec: Training, needed: NeededBytes, tensors: list[TensorShape], available_bytes: float, on_gpu: bool
) -> SpecError:
    """Return the error of a training that needs more memory than there is."""
    copies = spec.workers * len(spec.seeds)
    # The error names the field whose reduction saves most memory.
    if needed.batches > needed.models:
        field, value = "problem.batch_size", spec.problem.batch_size
    elif copies == 1:
        field, value = "problem", spec.problem.name
    elif spec.workers >= len(spec.seeds):
        field, value = "workers", spec.workers
    else:
        field, value = "seeds", len(spec.seeds)
    parameters = sum(tensor.elements for tensor in tensors)
    needs = f"{format_bytes(needed.total)} of memory at least ({parameters:,} parameters, {copies:,} copies)"
    where = "GPU" if on_gpu else "machine"
    expected = f"a training that fits: this one needs {needs}, and the {where} has {format_bytes(available_bytes)}"
    return SpecError(field, value, expected)


class NeededBytes(NamedTuple):
    """The fewest bytes that a training needs.

    Attributes:
        models: parameters, gradients and states of the method, of all copies.
        batches: the data of a step, and a pass's activations, less the memory that gradients take after them.
    """

    models: float
    batches: float

    @property
    def total(self) -> float:
        """Return the bytes of models and batches."""
        return self.models + self.batches


def needed_bytes(
    spec: Training, method: MethodBase, tensors: list[TensorShape], activation_bytes: float, on_gpu: bool
) -> NeededBytes:
    """Return the fewest bytes that a training needs at once; each worker has a copy of the model for each seed.

    A pass has the activations of a single copy, because a loop computes one copy after another, and because batched
    passes are halved if memory is short. With ``execution: graph`` it has those of all copies, in memory that the graph
    keeps. Activations of compiled passes are not counted. Parameters, states and gradients that are equal on all
    workers are stored once; the parameters of all workers exist before the first step.

    Args:
        activation_bytes: bytes of the activations of one copy.
        on_gpu: whether the training runs on a GPU, which adds up the gradients of copies as it computes them.
    """
    copies = spec.workers * len(spec.seeds)
    model_bytes = DTYPE_BYTES[spec.dtype] * sum(tensor.elements for tensor in tensors)
    state_bytes = DTYPE_BYTES[spec.dtype] * method.kept_elements(tensors, spec.workers)
    stored_copies = gradient_copies = copies
    if copies <= MOST_COPIES_OF_OPTIMIZER and asynchronous_of(method) is None and spec.pipeline is None:
        optimizer = _optimizer_on_meta(spec, method, tensors)
        if optimizer.stores_one_copy:
            stored_copies = 1
        adds_gradients_up = spec.execution == "loop" or (spec.execution == "eager" and on_gpu)
        if optimizer.reads_only_mean_gradient and adds_gradients_up:
            gradient_copies = 1
    gradient_bytes = model_bytes * gradient_copies
    before_first_step_bytes, training_bytes = copies * model_bytes, stored_copies * (model_bytes + state_bytes)
    models = gradient_bytes + max(before_first_step_bytes, training_bytes)
    batches = copies * batch_bytes(spec.problem, tensors)
    if spec.execution == "graph":
        return NeededBytes(models, batches + max(gradient_bytes, copies * activation_bytes))
    # The last copy's gradients are computed while its activations are freed.
    return NeededBytes(models, batches + max(0.0, activation_bytes - model_bytes))


def _optimizer_on_meta(spec: Training, method: MethodBase, tensors: list[TensorShape]) -> Method:
    """Return the optimizer of a training for parameters on torch's device ``meta``, which take no memory."""
    import torch

    from syncline.comm import SimulatedCommunicator  # only here: torch is slow to load

    copies = spec.workers * len(spec.seeds)
    groups = []
    for tensor in tensors:
        parameter = torch.nn.Parameter(torch.empty(1, *tensor.shape, device="meta").expand(copies, *tensor.shape))
        groups.append({"params": [(tensor.name, parameter)], "matrix": tensor.is_matrix})
    comm = SimulatedCommunicator(spec.workers, len(spec.seeds), spec.faults.membership(spec.workers))
    optimizer: Method = method.build(groups, comm)
    return optimizer


def most_activation_bytes(spec: Training, tensors: list[TensorShape]) -> float:
    """Return a quick upper bound of the bytes that the forward pass of one copy stores.

    The bound is three times the bytes of the inputs and outputs of all matrices; GPTs store 1 to 1.1 times those bytes.
    `step_activation_bytes` is exact, and takes a second to import a compiler.
    """
    tokens = getattr(spec.problem, "batch_size", 0) * getattr(spec.problem, "context", 1)
    inputs_and_outputs = sum(sum(tensor.shape) for tensor in tensors if len(tensor.shape) == 2)
    return 3.0 * DTYPE_BYTES[spec.dtype] * tokens * inputs_and_outputs


def step_activation_bytes(spec: Training, tensors: list[TensorShape]) -> float:
    """Return the fewest bytes that the forward pass of one copy stores; 0 for a user's module and for a landscape.

    The bytes are also 0 for compiled passes, whose activations the compiler chooses, and for pipelines.
    """
    problem = spec.problem
    is_users_module = hasattr(problem, "train_set")
    if spec.execution == "compiled" or spec.pipeline is not None or is_users_module or not hasattr(problem, "module"):
        return 0.0
    import torch

    from syncline.problems.row_passes import activation_bytes  # only here: torch is slow to load

    module, dtype = problem.module(), getattr(torch, spec.dtype if spec.autocast == "none" else spec.autocast)
    if hasattr(problem, "context"):  # the embedding stores no activations, only the text's indices
        input_shape = problem.batch_size, problem.context, problem.width
        return activation_bytes(module, module.after_embedding, input_shape, dtype)
    return activation_bytes(module, module, (problem.batch_size, _input_size(tensors)), dtype)


def tensors_of_problem(problem: Any) -> list[TensorShape] | None:
    """Return the shapes of one worker's parameters without building a task; None if the problem does not list them."""
    module = problem.module() if hasattr(problem, "module") else None
    if module is not None:
        named_params = module.named_parameters()
        return [TensorShape(name, tuple(p.shape), is_matrix=p.ndim > 1) for name, p in named_params if p.requires_grad]
    if hasattr(problem, "start_point"):  # a landscape
        return [TensorShape("x", tuple(problem.start_point().shape))]
    return None


def batch_bytes(problem: Any, tensors: list[TensorShape]) -> float:
    """Return a lower bound of the bytes of one worker's batch: 8 per index of a sample, and 4 per input.

    The bound is 0 for a user's own module, because its data is not read yet.
    """
    is_users_module = hasattr(problem, "train_set")
    if is_users_module:
        return 0.0
    batch_size = getattr(problem, "batch_size", 0)
    inputs_per_sample = getattr(problem, "context", None) or _input_size(tensors)  # tokens of a text, else features
    return float(batch_size) * (8 + 4 * inputs_per_sample)


def _input_size(tensors: list[TensorShape]) -> int:
    """Return the number of inputs of a model's first matrix; 0 without a matrix."""
    for tensor in tensors:
        if len(tensor.shape) == 2:
            return tensor.shape[1]
    return 0


def gpu_memory_bytes() -> float:
    """Return the memory of the GPU that a training would run on, in bytes."""
    import torch

    return float(torch.cuda.get_device_properties(0).total_memory)


def memory_bytes() -> float | None:
    """Return the memory in bytes that this process can have, the smallest of several limits; None if none is known."""
    limits_bytes = []
    with suppress(OSError, ValueError):  # a system without this information
        limits_bytes.append(float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, CGROUP_LIMIT_FILES):
        text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        if text.isdecimal():  # "max" means no limit
            limits_bytes.append(float(text))
    address_space_bytes, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space_bytes != resource.RLIM_INFINITY and address_space_bytes > 0:
        limits_bytes.append(float(address_space_bytes))
    return min(limits_bytes, default=None)


def check_progress(spec: Training, method: MethodBase) -> None:
    """Refuse a training that failures keep from progress: they come faster than restarts, or leave too few workers.

    The seconds of a step count only if the spec states them.
    """
    failures = spec.failures
    if failures is None:
        return
    step_s = spec.compute.seconds or 0.0
    if asynchronous_of(method) is not None:  # the other workers do not wait for an absent worker
        # Failures of a shared node or site stop the worker, too.
        worker_mtbf_s = group_mtbf_s(failures.failure_rates(), workers=1)
        event = f"a worker of {method.name} fails every {format_seconds(worker_mtbf_s)}"
        _check_rate(failures.restart_time + step_s, worker_mtbf_s, event)
        # Only outages at the start: the simulation reports later losses of all workers.
        _check_outages(failures, spec.workers, until_s=0.0, needed=1, suffix=f" for {method.name}")
        return
    if failures.recovery == "elastic":
        needed_s = failures.detection_timeout + failures.regroup_time + step_s
        min_workers = failures.min_workers
    else:  # all workers return to the last checkpoint: a restart, loading, and the steps up to a new checkpoint
        checkpoint, min_workers = failures.checkpoint, spec.workers
        load_s = checkpoint.restore_time
        if load_s is None:  # by default as long as writing
            load_s = checkpoint.write_time or 0.0
        work_s = step_s
        if step_s and isinstance(checkpoint.interval, float):  # else "best" or "never"
            work_s = max(step_s, checkpoint.interval)
        needed_s = failures.restart_time + load_s + work_s
    mtbf_s = failures.mtbf_s(spec.workers)
    _check_rate(needed_s, mtbf_s, f"something of {spec.workers} workers fails every {format_seconds(mtbf_s)}")
    _check_outages(failures, spec.workers, until_s=spec.steps * step_s, needed=min_workers, suffix="")


def _check_rate(needed_s: float, mtbf_s: float, event: str) -> None:
    """Refuse failures that come so often that work of ``needed_s`` seconds is hardly ever finished between two.

    Args:
        needed_s: seconds of work that must pass without a failure.
        mtbf_s: mean seconds between failures.
        event: what fails, for the error's text.
    """
    if needed_s > MAX_TIME_PER_MTBF * mtbf_s:
        needed_text = format_seconds(needed_s)
        expected = f"less often: no progress is possible, as a restart and the steps to a checkpoint take {needed_text}"
        raise SpecError("failures.rates", event, expected)


def _check_outages(failures: FailuresSpec, workers: int, until_s: float, needed: int, suffix: str) -> None:
    """Refuse listed outages that leave too few workers for good.

    Args:
        until_s: seconds of the training that count; outages that begin later are ignored.
        needed: number of workers that must remain.
        suffix: end of the error line.
    """
    is_away = np.zeros(workers, dtype=bool)
    for outage in sorted(failures.outages, key=lambda event: event.start):
        comes_back = outage.end is not None
        if comes_back or outage.start > until_s:
            continue
        first, stop = outage.workers(failures.workers_per_node, failures.workers_per_site(workers))
        is_away[first:stop] = True
        num_away = int(is_away.sum())
        num_left = workers - num_away + failures.spares
        if num_left < needed:
            reason = no_progress_line(outage.start, f"{num_left} workers are left, and {needed} are needed{suffix}")
            expected = f"machines that come back, or spares: {reason}"
            raise SpecError("failures.outages", f"{num_away} of {workers} lost for good", expected)
