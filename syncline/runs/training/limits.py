"""Trainings that cannot succeed, refused before they start: too large for the machine, or stopped by failures."""

from __future__ import annotations

import math
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from syncline.costmodel import TensorShape
from syncline.costmodel.failures import group_mtbf_s
from syncline.errors import SpecError
from syncline.methods.parts.asynchronous import asynchronous_of
from syncline.sim.failures.costs import no_progress
from syncline.specs import MethodBase, Training
from syncline.specs.failures import FailuresSpec
from syncline.units import format_bytes, format_seconds

IN_VAIN = math.log(1000)
"""Ratio of the needed time to the time between two failures at which a thousand attempts are made on average."""

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files in which Linux has the memory limit of a container; in version 2 and 1."""


PROCESS_BYTES = 50e6
"""Memory counted for each process of a training. A choice, not a measurement, that refuses absurd numbers at once."""

PROCESSES_PER_CORE = 64
"""Largest number of processes per core, a choice: more would take turns, and distort each other's measurements."""


def check_processes(field: str, processes: int) -> None:
    """Refuse more processes at once than this machine can start.

    Raises:
        SpecError: too many processes for ``field``.
    """
    has, (open_files, _) = memory_bytes(), resource.getrlimit(resource.RLIMIT_NOFILE)
    largest = PROCESSES_PER_CORE * (os.cpu_count() or 1)
    if has is not None:
        largest = min(largest, int(has / PROCESS_BYTES))
    if open_files != resource.RLIM_INFINITY:  # each process has a connection to every other
        largest = min(largest, open_files // 2)
    if processes > largest:
        raise SpecError(
            field, processes, f"at most {largest} processes on this machine, by its cores, memory and files"
        )


def check_training(spec: Training, *methods: MethodBase) -> None:
    """Refuse a training without enough memory or with failures that stop it, or a method that cannot train the model.

    Raises:
        SpecError: the training needs more memory than there is, lacks something, or makes no progress.
    """
    on_gpu = False
    if spec.device != "cpu":
        from syncline.comm.devices import training_device  # only here: torch is slow to load

        on_gpu = training_device(spec.device).type == "cuda"
    if spec.execution == "graph" and not on_gpu:
        raise SpecError("execution", spec.execution, "eager or compiled, as only a CUDA device keeps graphs")
    for method in methods if spec.failures is not None else ():
        check_progress(spec, method)
    tensors = tensors_of_problem(spec.problem)
    if tensors is None:
        return
    for method in methods:
        method.check_model(tensors)
        _check_memory(spec, method, tensors, on_gpu)


BYTES = {"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
"""Bytes of a number, by the spec's ``dtype``."""


def _check_memory(spec: Training, method: MethodBase, tensors: list[TensorShape], on_gpu: bool) -> None:
    """Refuse a training whose parameters, gradients, state and batches need more memory than there is."""
    rows = spec.workers * len(spec.seeds)
    parameters = sum(tensor.elements for tensor in tensors)
    # A parameter, its gradient, and the state of the method.
    models = BYTES[spec.dtype] * rows * (2 * parameters + method.kept_elements(tensors, spec.workers))
    batches = rows * batch_bytes(spec.problem, tensors)
    has = gpu_memory_bytes() if on_gpu else memory_bytes()
    if has is None or models + batches <= has:
        return
    if batches > models:
        field, value = "problem.batch_size", spec.problem.batch_size
    elif spec.workers == 1 == len(spec.seeds):
        field, value = "problem", spec.problem.name
    else:
        field, value = ("workers", spec.workers) if spec.workers >= len(spec.seeds) else ("seeds", len(spec.seeds))
    needs = f"{format_bytes(models + batches)} of memory at least ({parameters:,} parameters, {rows:,} copies)"
    where = "GPU" if on_gpu else "machine"
    expected = f"a training that fits: this one needs {needs}, and the {where} has {format_bytes(has)}"
    raise SpecError(field, value, expected)


def tensors_of_problem(problem: Any) -> list[TensorShape] | None:
    """Return the parameters of one worker, without building them; None for a problem that cannot list them."""
    module = problem.module() if hasattr(problem, "module") else None
    if module is not None:
        named = module.named_parameters()
        return [TensorShape(name, tuple(p.shape), p.ndim > 1) for name, p in named if p.requires_grad]
    if hasattr(problem, "start_point"):
        return [TensorShape("x", tuple(problem.start_point().shape))]
    return None


def batch_bytes(problem: Any, tensors: list[TensorShape]) -> float:
    """Return a lower bound of the bytes of one worker's batch and of the draws that it is made of, for any network.

    For a user's own module it is 0, because its data is not read yet.
    """
    if hasattr(problem, "train_set"):
        return 0.0
    size = getattr(problem, "batch_size", 0)
    inputs = getattr(problem, "context", None) or next((t.shape[1] for t in tensors if len(t.shape) == 2), 0)
    return float(size) * (8 + 4 * inputs)


def gpu_memory_bytes() -> float:
    """Return the memory of the GPU that a training would run on, in bytes."""
    import torch

    return float(torch.cuda.get_device_properties(0).total_memory)


def memory_bytes() -> float | None:
    """Return the memory that this process can have: the least of several limits; None if no limit is known."""
    limits = []
    with suppress(OSError, ValueError):  # a system without this information
        limits.append(float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, CGROUPS):
        text = path.read_text(encoding="ascii").strip() if path.is_file() else ""
        limits += [float(text)] if text.isdecimal() else []  # "max" means no limit
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    limits += [float(limit)] if limit != resource.RLIM_INFINITY and limit > 0 else []
    return min(limits, default=None)


def check_progress(spec: Training, method: MethodBase) -> None:
    """Refuse a training that makes no progress, as far as is known: failures faster than restarts, or too few machines.

    The time of a step counts if it is known.

    Raises:
        SpecError: the kind of failures, and the reason.
    """
    failures, asynchronous = spec.failures, asynchronous_of(method)
    if failures is None:
        return
    step_s = spec.compute.seconds or 0.0
    if asynchronous is None and failures.recovery == "elastic":
        mtbf_s, needed_s = failures.mtbf_s(spec.workers), failures.detection_timeout + failures.regroup_time + step_s
        _check_rate(needed_s, mtbf_s, f"something of {spec.workers} workers fails every {format_seconds(mtbf_s)}")
        _check_places(failures, spec.workers, spec.steps * step_s, failures.min_workers, "")
        return
    if asynchronous is None:  # all workers return to the last checkpoint: a restart, loading, and at least one step
        checkpoint, mtbf_s = failures.checkpoint, failures.mtbf_s(spec.workers)
        load_s = checkpoint.restore_time if checkpoint.restore_time is not None else checkpoint.write_time or 0.0
        interval = checkpoint.interval
        work_s = max(step_s, interval) if isinstance(interval, float) and step_s else step_s
        event = f"something of {spec.workers} workers fails every {format_seconds(mtbf_s)}"
        _check_rate(failures.restart_time + load_s + work_s, mtbf_s, event)
        _check_places(failures, spec.workers, spec.steps * step_s, spec.workers, "")
        return
    own_s = group_mtbf_s(failures.failure_rates(), 1)  # for one worker: a failure of a shared part stops it, too
    _check_rate(failures.restart_time + step_s, own_s, f"a worker of {method.name} fails every {format_seconds(own_s)}")
    _check_places(failures, spec.workers, 0.0, 1, f" for {method.name}")  # the others do not wait for an absent worker


def _check_rate(needed_s: float, mtbf_s: float, event: str) -> None:
    """Refuse failures that come so often that work which needs ``needed_s`` seconds is hardly ever finished."""
    if needed_s > IN_VAIN * mtbf_s:
        needed = format_seconds(needed_s)
        expected = f"less often: no progress possible, as to begin again and make steps takes {needed}"
        raise SpecError("failures.rates", event, expected)


def _check_places(failures: FailuresSpec, workers: int, until_s: float, needed: int, suffix: str) -> None:
    """Check the listed outages: too few workers may be left after machines leave for good."""
    is_away = np.zeros(workers, dtype=bool)
    for outage in sorted(failures.outages, key=lambda event: event.start):
        if outage.end is not None or outage.start > until_s:
            continue
        first, stop = outage.workers(failures.workers_per_node, failures.workers_per_site(workers))
        is_away[first:stop] = True
        num_left = workers - int(is_away.sum()) + failures.spares
        if num_left < needed:
            why = no_progress(outage.start, f"{num_left} workers are left, and {needed} are needed{suffix}")
            expected = f"machines that come back, or spares: {why}"
            raise SpecError("failures.outages", f"{int(is_away.sum())} of {workers} away for good", expected)
