"""The command ``python -m syncline.measure.validation.cases PLAN``: a process that runs several trainings.

A plan is a JSON file that all processes read. Each case is a run's spec. The group trains it alternately through
memory, see `syncline.comm.SharedMemory`, and over the network: a step without a network shows the time of the software,
and a machine that is slower for a while slows both. The first turn is a warm-up. The measurements are in the folders
``CASE/software/TURN`` and ``CASE/measured/TURN`` of the plan, in the format of `syncline.measure.launching.rank_files`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from syncline.comm import CarriedCollective, ProcessGroupCommunicator, SharedMemory
from syncline.costmodel import Call, Link
from syncline.costmodel.collectives.gloo import gloo_s
from syncline.measure.launching.process import Launch, agree_on_spec, train_seed
from syncline.measure.launching.rank_files import RankFile, tensors_to_json
from syncline.measure.processes.rendezvous import Place, group, store_of_environment
from syncline.measure.processes.stopwatch import MeasuredCommunicator, Stopwatch
from syncline.measure.processes.watchdog import Progress
from syncline.runs.folders.result_files import json_value
from syncline.runs.training.trained import build_task, task_tensors
from syncline.specs import RunSpec
from syncline.specs.cluster.links import parse_link
from syncline.training import rows_of

FEWEST_WARM_BYTES, MOST_WARM_BYTES = 2**16, 2**21
"""Limits of the bytes sent to each other process before any timing, so that connections open their windows."""

WARM_S = 0.2
"""Seconds that sending these bytes may take on a link."""


@dataclass(frozen=True)
class Case:
    """A training to time.

    Args:
        spec: fields of a ``RunSpec``; its first seed is trained.
        repeats: number of turns that count.
    """

    name: str
    spec: dict[str, Any]
    repeats: int

    @property
    def run(self) -> RunSpec:
        """Return the spec of the training that this case launches."""
        return RunSpec.model_validate(self.spec)


@dataclass(frozen=True)
class CasePlan:
    """The trainings that the processes of a group run, and the link between the processes.

    Args:
        link: fields of each process's link. They determine the length of the warm-up; in trainings through memory,
            processes wait for the time that gloo would take on this link.
    """

    folder: Path
    cases: tuple[Case, ...]
    timeout_s: float = 120.0
    link: dict[str, Any] = field(default_factory=lambda: {"latency": 0.0, "bandwidth": 125e6})

    def write(self) -> Path:
        """Write the plan into its folder, and return the file's path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "plan.json"
        file.write_text(json.dumps(dataclasses.asdict(self), default=str), encoding="utf-8")
        return file

    @classmethod
    def read(cls, file: Path) -> CasePlan:
        """Return the plan in a file that `write` has written."""
        fields = json.loads(file.read_text(encoding="utf-8"))
        cases = tuple(Case(**case) for case in fields["cases"])
        return cls(Path(fields["folder"]), cases, fields["timeout_s"], fields["link"])


class _TransferRecorder:
    """A recorder of the transfers that the collectives of a step request from a transport through memory."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._previous_total_ns = memory.stood_in_ns  # time of all transfers through memory before the current call
        self._step_transfer_ns = 0
        self._carried: list[list[Any]] = []
        memory.take_carried()  # drops earlier transfers

    def __call__(self, call: Call | None) -> None:
        """Note the transfers of a collective and their time, unless the ledger leaves the collective out."""
        transfers, total_ns = self._memory.take_carried(), self._memory.stood_in_ns
        if call is not None:  # None: a collective of an evaluation, between two steps
            self._step_transfer_ns += total_ns - self._previous_total_ns
            self._carried.append([call, transfers])
        self._previous_total_ns = total_ns

    def take_step(self) -> dict[str, Any]:
        """Return the transfers of this step as ``carried``, and the time that they took as ``stood_in_ns``."""
        traffic_fields = {"carried": self._carried, "stood_in_ns": self._step_transfer_ns}
        self._carried, self._step_transfer_ns = [], 0
        return traffic_fields


def sent_bytes_field() -> dict[str, Any]:
    """Return ``device_bytes``, the bytes that gloo's device has sent so far; no field for the shared loopback."""
    device = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    if device == "lo":
        return {}
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.strip().partition(":")
        if name == device:
            return {"device_bytes": int(counts.split()[8])}  # the ninth count has the sent bytes
    return {}


SOFTWARE, MEASURED = "software", "measured"
"""Folders of trainings through memory, and of trainings over the network."""


def run_case(case: Case, plan: CasePlan, place: Place, memory: SharedMemory) -> None:
    """Train a case's first seed over both transports, once for warming up and then ``case.repeats`` times.

    The transports are memory, which gives the times of the software, and the network.
    """
    spec = case.run
    seed = spec.seeds[0]
    for turn in ("warm", *map(str, range(case.repeats))):  # the first turn does not count
        for transport in (SOFTWARE, MEASURED):
            folder = plan.folder / case.name / transport / turn
            folder.mkdir(parents=True, exist_ok=True)
            watch = Stopwatch(Progress.private(place.processes, place.rank))
            extra_fields: Callable[[], dict[str, Any]]
            if transport == SOFTWARE:
                recorder = _TransferRecorder(memory)
                comm = MeasuredCommunicator(ProcessGroupCommunicator(transport=memory), watch, recorder)
                extra_fields = recorder.take_step
            else:
                comm = MeasuredCommunicator(ProcessGroupCommunicator(), watch)
                extra_fields = sent_bytes_field
            task = build_task(spec.problem, rows_of(comm, (seed,)), torch.device("cpu"), spec.dtype)
            rank_file = RankFile(folder, place.rank)
            rank_file.write_line({
                "rank": comm.local_workers[0], "pid": os.getpid(), "offset_ns": 0, "machine": "", "device": "cpu",
                "problem": json_value(task.describe()), "flops_per_step": task.flops_per_step,
                "tensors": tensors_to_json(task_tensors(task)),
            })  # fmt: skip
            train_seed(spec, seed, task, comm, watch, rank_file, wait_for_all=memory.barrier, extra_fields=extra_fields)
            rank_file.close()


@contextmanager
def memory_file(folder: Path) -> Iterator[Path]:
    """Yield the path of a file through which the processes of a plan share memory, and remove the file at the end.

    The file is in ``/dev/shm`` if the system has it, and else in the plan's ``folder``. The path of that folder gives
    the file a name that no other plan has.
    """
    memory = Path("/dev/shm")
    name = "syncline-" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    file = memory / name if memory.is_dir() else folder / name
    file.unlink(missing_ok=True)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def warm_up_connections(link: Link, place: Place) -> None:
    """Send data between all processes, so that TCP opens the windows of their connections before any timing."""
    affordable_bytes = WARM_S * float(link.goodput_bytes_per_s) / place.processes
    nbytes = int(np.clip(affordable_bytes, FEWEST_WARM_BYTES, MOST_WARM_BYTES))
    sent_tensor = torch.zeros(place.processes * nbytes, dtype=torch.uint8)
    for _ in range(2):
        dist.all_to_all_single(torch.empty_like(sent_tensor), sent_tensor)
        dist.all_reduce(sent_tensor)


def take_part_in_plan(arguments: Sequence[str]) -> None:
    """Run all cases of a plan as one process of its group; the first argument is the plan's path."""
    plan = CasePlan.read(Path(arguments[0]))
    options = Launch(device="cpu", backend="gloo", timeout_s=plan.timeout_s)
    store, place = store_of_environment(options.meeting_s)
    first_run = plan.cases[0].run  # ranks that agree on the first run have the same plan
    agree_on_spec(first_run, options, store, place)
    link = parse_link(plan.link, "link")

    # The memory carries the data at once, and each worker then waits for the seconds that gloo would take.
    def idle_s(transfer: CarriedCollective) -> float:
        return float(gloo_s(transfer.collective, place.processes, transfer.nbytes, link))

    torch.set_num_threads(first_run.threads)
    with group(store, place, backend="gloo", timeout_s=plan.timeout_s):
        warm_up_connections(link, place)
        with memory_file(plan.folder) as file:
            dist.barrier()  # now every older file of that name is removed
            memory = SharedMemory(file, place.processes, place.rank, idle_s=idle_s)
            for case in plan.cases:
                run_case(case, plan, place, memory)
        dist.barrier()  # no process leaves while others still communicate


if __name__ == "__main__":
    take_part_in_plan(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # torch may abort while the interpreter shuts down
