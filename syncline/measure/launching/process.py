"""One process of a launched training: its workers, its stopwatch, and its file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist
from torch.distributed import Store

from syncline.comm import ProcessGroupCommunicator
from syncline.comm.devices import Devices, devices, name_of_device
from syncline.errors import SpecError, SynclineError
from syncline.files import atomic_path
from syncline.measure.launching.rank_files import RankFile, tensors_to_json
from syncline.measure.processes.rendezvous import Place, agree, clock_offset_ns, group, identity, join_store
from syncline.measure.processes.stopwatch import MeasuredCommunicator, MeasuredTask, Stopwatch, time_optimizer_steps
from syncline.measure.processes.watchdog import START_S, Progress
from syncline.problems import Task
from syncline.runs.folders.result_files import json_value
from syncline.runs.training.train_and_time import optimizer_s
from syncline.runs.training.trained import build_task, task_tensors
from syncline.specs import PipelineSpec, RunSpec
from syncline.training import parameter_groups, rows_of, train


@dataclass(frozen=True)
class Launch:
    """Options of a spec's run on real processes.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``, see `syncline.comm.devices`.
        backend: ``auto``, ``gloo`` or ``nccl``.
        timeout_s: seconds without a new step or collective on any process after which the run fails.
        reproducible: whether sums are made in the simulator's order, see `syncline.comm.ProcessGroupCommunicator`.
        port: port of the store at which processes meet; 0: any free port.
        keep_parameters: whether to write the final parameters of each worker to ``parameters.pt``.
        workers_per_process: number of workers R in each process, as rows of its tensors.
        rejoins: maximum number of restarts of each worker's process; only for workers at their own pace.
    """

    device: str = "auto"
    backend: str = "auto"
    timeout_s: float = 120.0
    reproducible: bool = False
    port: int = 0
    keep_parameters: bool = False
    workers_per_process: int = 1
    rejoins: int = 3

    def __post_init__(self) -> None:
        if not self.timeout_s >= 1:
            raise SpecError("timeout", self.timeout_s, "at least 1 s")
        if not 0 <= self.port <= 65535:
            raise SpecError("port", self.port, "a free port up to 65535; 0 for any")
        if self.workers_per_process < 1:
            raise SpecError("workers_per_process", self.workers_per_process, "an integer of at least 1")
        if self.rejoins < 0:
            raise SpecError("rejoins", self.rejoins, "an integer of at least 0")

    def processes(self, workers: int) -> int:
        """Return the number of processes for a number of workers."""
        if workers % self.workers_per_process:
            expected = f"a multiple of the {self.workers_per_process} workers of each process"
            raise SpecError("workers", workers, expected)
        return workers // self.workers_per_process

    @property
    def meeting_s(self) -> float:
        """Return the seconds that processes wait for each other before the training."""
        return max(self.timeout_s, START_S)

    @property
    def group_timeout_s(self) -> float:
        """Return the timeout of process groups: longer than ``timeout_s``, so that the watching process acts first."""
        return 1.5 * self.timeout_s + 10.0

    def for_spec(self, spec: RunSpec | PipelineSpec) -> Launch:
        """Return the options, with the device ``cuda`` in place of ``auto`` if the spec asks for it."""
        spec_device = getattr(spec, "device", "cpu")  # a pipeline's spec has none
        return replace(self, device="cuda") if self.device == "auto" and spec_device == "cuda" else self

    def devices(self, local_processes: int) -> Devices:
        """Return the devices of the processes of one machine."""
        return devices(self.device, self.backend, local_processes)

    def use_device(self, local_rank: int, local_processes: int) -> torch.device:
        """Return the device of a process of one machine; if it is a GPU, make it torch's current GPU."""
        device = self.devices(local_processes).for_process(local_rank)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return device


def join_local_processes(rank: int, processes: int, port: int, options: Launch) -> tuple[Store, Place]:
    """Return the store and the place of a process whose peers are all on this machine."""
    # gloo binds the interface of the host's name, which may not resolve on a laptop; local processes meet on loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    place = Place(rank, processes, local_rank=rank, local_processes=processes)
    return join_store(port, options.meeting_s), place


def rank_process(rank: int, packed: bytes, options: Launch, port: int, folder: Path) -> None:
    """Run a process of ``syncline launch``, with the spec pickled by cloudpickle as ``packed``."""
    spec: RunSpec = cloudpickle.loads(packed)
    processes = options.processes(spec.workers)
    store, place = join_local_processes(rank, processes, port, options)
    progress = Progress.shared(folder / "progress", processes, rank)
    machines = agree_on_spec(spec, options, store, place)
    train_as_rank(spec, options, store, place, machines, progress, folder)


def agree_on_spec(spec: RunSpec | PipelineSpec, options: Launch, store: Store, place: Place) -> dict[int, str]:
    """Check, before the training, that all processes can run the same spec, and return the machine of each."""
    run_as = {"reproducible": options.reproducible, "workers_per_process": options.workers_per_process}
    return agree_on(spec.model_dump(mode="json") | run_as, options, store, place)


def agree_on(
    settings: Mapping[str, Any], options: Launch, store: Store, place: Place, mistake: str | None = None
) -> dict[int, str]:
    """Check that all processes have the same settings, devices and software, and return the machine of each.

    Args:
        mistake: why this process cannot take part, besides a missing device; None if it can.
    """
    common_values = identity(settings) | {"device": "", "backend": ""}
    try:
        local_devices = options.devices(place.local_processes)
        common_values |= {"device": local_devices.kind, "backend": local_devices.backend}
    except SynclineError as error:  # the other processes must know, because they would wait for this one
        mistake = str(error)
    return agree(store, place, values=common_values, timeout_s=options.meeting_s, mistake=mistake)


def train_as_rank(
    spec: RunSpec,
    options: Launch,
    store: Store,
    place: Place,
    machines: dict[int, str],
    progress: Progress,
    folder: Path,
) -> None:
    """Join the other processes, train every seed, and write this process's lines into the folder."""
    torch.set_num_threads(spec.threads)  # the rounding of a sum depends on it
    backend = options.devices(place.local_processes).backend
    device = options.use_device(place.local_rank, place.local_processes)
    with group(store, place, backend, timeout_s=options.group_timeout_s):
        offset_ns = clock_offset_ns(place, machines)
        rank_file, watch = RankFile(folder, place.rank), Stopwatch(progress, device)
        for index, seed in enumerate(spec.seeds):
            process_group = ProcessGroupCommunicator(options.workers_per_process, reproducible=options.reproducible)
            comm = MeasuredCommunicator(process_group, watch)
            task = build_task(spec.problem, rows_of(comm, (seed,)), device, **spec.arithmetic)
            if index == 0:
                shapes = task_tensors(task)
                # An optimizer's unknown time fails now rather than in the simulation after the training.
                optimizer_s(spec, spec.method, shapes, task.flops_per_step)
                rank_file.write_line({
                    "rank": place.rank, "pid": os.getpid(), "offset_ns": offset_ns, "machine": machines[place.rank],
                    "device": name_of_device(device), "backend": backend, "problem": json_value(task.describe()),
                    "flops_per_step": task.flops_per_step, "tensors": tensors_to_json(shapes),
                })  # fmt: skip
            train_seed(spec, seed, task, comm, watch, rank_file, wait_for_all=dist.barrier)
            if options.keep_parameters and index == 0:
                parameters = {name: p.detach().cpu() for name, p in task.params.items()}
                with atomic_path(folder / f"{place.rank}.pt") as working:
                    torch.save(parameters, working)
        dist.barrier()  # no process leaves while others still communicate


def train_seed(
    spec: RunSpec,
    seed: int,
    task: Task,
    comm: MeasuredCommunicator,
    watch: Stopwatch,
    rank_file: RankFile,
    wait_for_all: Callable[[], object],
    extra_fields: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Train one seed, and write a line with the laps and the traffic of each step.

    Args:
        extra_fields: function that returns further fields of a step's line.
    """
    steps_of_earlier_seeds = watch.steps_done
    num_written_calls = len(comm.ledger)

    def write_evaluation(metrics: dict[str, torch.Tensor]) -> None:
        values = {name: float(value[0]) for name, value in metrics.items()}
        rank_file.write_evaluation(seed, watch.steps_done - steps_of_earlier_seeds, values)

    is_evaluator = comm.local_workers[0] == 0  # one process writes the metrics for all
    on_evaluation = write_evaluation if is_evaluator else None
    task = MeasuredTask(task, watch, on_evaluation=on_evaluation, wait_for_all=wait_for_all)
    optimizer = spec.method.in_precision(spec.number_format).build(parameter_groups(task), comm)
    time_optimizer_steps(optimizer, watch)
    schedule = spec.schedule.build(optimizer, spec.steps)

    def on_step(steps_done: int) -> None:
        """Write the line of a completed step with the calls that it made."""
        nonlocal num_written_calls
        if steps_done:  # `train` calls this also before the first step
            step = steps_done - 1
            calls = comm.ledger.records[num_written_calls:]
            num_written_calls = len(comm.ledger)
            step_fields = {"readbacks": comm.ledger.readbacks[step]} | extra_fields()
            rank_file.write_step(seed, step, float(task.loss.mean()), watch, calls, **step_fields)

    train(task, optimizer, (seed,), spec.steps, eval_every=spec.eval_every, schedule=schedule, on_step=on_step)
