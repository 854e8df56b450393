"""One process of a launched training: its workers, its stopwatch, and its file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import torch
import torch.distributed as dist
from torch.distributed import Store

from syncline.backend.devices import Devices, devices
from syncline.backend.measured import MeasuredCommunicator, MeasuredTask, timed
from syncline.backend.meeting import Place, agree, clock_offset_ns, group, identity, join_store
from syncline.backend.progress import Progress
from syncline.backend.stopwatch import Stopwatch
from syncline.backend.watchdog import START_S
from syncline.comm import ProcessGroupCommunicator
from syncline.errors import SpecError, SynclineError
from syncline.experiments.launching.parts import RankPart, written_tensors
from syncline.experiments.plain import plain
from syncline.experiments.trained import build_task, optimizer_s, task_tensors
from syncline.files import whole_file
from syncline.specs import PipelineSpec, RunSpec
from syncline.training import parameter_groups, rows_of, train

if TYPE_CHECKING:
    from syncline.problems import Task


@dataclass(frozen=True)
class Launch:
    """How a spec runs on processes.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``, see `syncline.backend.devices`.
        backend: ``auto``, ``gloo`` or ``nccl``.
        timeout_s: for how long nobody may come to a new step or collective.
        reproducible: whether sums are made in the simulator's order, see `syncline.comm.ProcessGroupCommunicator`.
        port: of the store where processes meet; 0: any that is free.
        keep_parameters: whether the folder gets the parameters that each worker ended with, ``parameters.pt``.
        workers_per_process: R, the workers that live in each process, as rows of its tensors.
        rejoins: of workers at their own pace, how often the process of each is started again when it dies.

    Raises:
        SpecError: a timeout below a second, no port, no worker in a process, or fewer rejoins than none.
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
        """How many processes hold so many workers.

        Raises:
            SpecError: some process would hold fewer workers than others.
        """
        if workers % self.workers_per_process:
            expected = f"a multiple of the {self.workers_per_process} workers of each process"
            raise SpecError("workers", workers, expected)
        return workers // self.workers_per_process

    @property
    def meeting_s(self) -> float:
        """How long processes wait for each other before the training."""
        return max(self.timeout_s, START_S)

    def of(self, spec: RunSpec | PipelineSpec) -> Launch:
        """The same on the spec's device, where that is ``cuda`` and this one does not say."""
        said = getattr(spec, "device", "cpu")
        return replace(self, device=said) if self.device == "auto" and said == "cuda" else self

    def devices(self, local_processes: int) -> Devices:
        """What the processes of one machine run on."""
        return devices(self.device, self.backend, local_processes)


def rank_process(rank: int, packed: bytes, how: Launch, port: int, folder: Path) -> None:
    """A process of ``syncline launch``; the spec is packed by cloudpickle, as it may hold what a notebook made."""
    # gloo binds the interface of the host's name, which may not resolve on a laptop; local processes meet on loopback.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    spec: RunSpec = cloudpickle.loads(packed)
    store = join_store(port, how.meeting_s)
    processes = how.processes(spec.workers)
    place = Place(rank, processes, rank, processes)
    progress = Progress.shared(folder / "progress", processes, rank)
    take_part(spec, how, store, place, meet(spec, how, store, place), progress, folder)


def meet(spec: RunSpec | PipelineSpec, how: Launch, store: Store, place: Place) -> dict[int, str]:
    """Find out, before anything is done, whether all processes can run the same; the machine of each.

    Raises:
        SynclineError: why not; the same on every process.
    """
    # A process that cannot take part tells the others, who would wait for it.
    mine, mistake = None, None
    try:
        mine = how.devices(place.local_processes)
    except SynclineError as error:
        mistake = str(error)
    run_as = {"reproducible": how.reproducible, "workers_per_process": how.workers_per_process}
    same = identity(spec.model_dump(mode="json") | run_as)
    same |= {"device": mine.kind, "backend": mine.backend} if mine else {"device": "", "backend": ""}
    return agree(store, place, same, how.meeting_s, mistake)


def take_part(
    spec: RunSpec, how: Launch, store: Store, place: Place, machines: dict[int, str], progress: Progress, folder: Path
) -> None:
    """Join the others, train, and write this process's lines into the folder.

    Raises:
        SynclineError: what only the problem can tell, before training.
    """
    torch.set_num_threads(spec.threads)  # a sum's bits depend on it, so the spec fixes it
    mine = how.devices(place.local_processes)
    device = mine.of(place.local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Who watches ends a training that stands still; this is for when nobody does.
    with group(store, place, mine.backend, 1.5 * how.timeout_s + 10.0):
        offset_ns = clock_offset_ns(place, machines)
        part, watch = RankPart(folder, place.rank), Stopwatch(progress, device)
        facts: dict[str, Any] = {"machine": machines[place.rank], "device": _name(device), "backend": mine.backend}
        for number, seed in enumerate(spec.seeds):
            group_of_all = ProcessGroupCommunicator(how.workers_per_process, reproducible=how.reproducible)
            comm = MeasuredCommunicator(group_of_all, watch)
            built = build_task(spec.problem, rows_of(comm, (seed,)), device, spec.dtype, spec.execution)
            if number == 0:
                shapes = task_tensors(built)
                optimizer_s(spec, spec.method, shapes, built.flops_per_step)  # refused now rather than after it
                facts |= {
                    "problem": plain(built.describe()),
                    "flops_per_step": built.flops_per_step,
                    "tensors": written_tensors(shapes),
                }
                part.facts(rank=place.rank, pid=os.getpid(), offset_ns=offset_ns, **facts)
            train_seed(spec, seed, built, comm, watch, part, dist.barrier)
            if how.keep_parameters and number == 0:
                kept = {name: p.detach().cpu() for name, p in built.params.items()}
                with whole_file(folder / f"{place.rank}.pt") as working:
                    torch.save(kept, working)
        dist.barrier()  # nobody leaves while others still talk


def train_seed(
    spec: RunSpec,
    seed: int,
    built: Task,
    comm: MeasuredCommunicator,
    watch: Stopwatch,
    part: RankPart,
    meet: Callable[[], object],
    also: Callable[[], dict[str, Any]] = dict,
) -> None:
    """Train one seed; each step's laps and traffic become a line of ``part``.

    Args:
        spec: what to train.
        seed: of its ``seeds``.
        built: its problem, of this process's workers.
        comm: what joins the workers.
        watch: the one that times ``comm``.
        part: where the lines go.
        meet: waits for all processes.
        also: called after every step for what else its line tells.
    """
    before = watch.done
    noted = len(comm.ledger)

    def on_evaluation(metrics: dict[str, torch.Tensor]) -> None:
        values = {name: float(value[0]) for name, value in metrics.items()}
        part.evaluated(seed, watch.done - before, values)

    first = comm.local_workers[0] == 0
    task = MeasuredTask(built, watch, on_evaluation if first else None, meet)
    optimizer = spec.method.in_precision(spec.number_format).build(parameter_groups(task), comm)
    timed(optimizer, watch)
    schedule = spec.schedule.build(optimizer, spec.steps)

    def on_step(done: int) -> None:
        nonlocal noted
        if done:
            calls, readbacks = comm.ledger.records[noted:], comm.ledger.readbacks[done - 1]
            noted = len(comm.ledger)
            part.step(seed, done - 1, float(task.loss.mean()), watch, calls, readbacks=readbacks, **also())

    train(task, optimizer, (seed,), spec.steps, eval_every=spec.eval_every, schedule=schedule, on_step=on_step)


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
