"""A communicator with a stopwatch is the communicator: every kind of method, each collective timed once."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from syncline.comm import Communicator, ProcessGroupCommunicator, SimulatedCommunicator
from syncline.costmodel import Call
from syncline.measure.launching.launch import PRELOAD
from syncline.measure.launching.rank_files import separate_streams
from syncline.measure.processes.rendezvous import Place, group, host_store, join_store
from syncline.measure.processes.stopwatch import (
    Lap,
    MeasuredCommunicator,
    MeasuredTask,
    Stopwatch,
    time_optimizer_steps,
)
from syncline.measure.processes.watchdog import Progress, run_watched
from syncline.training import parameter_groups, rows_of
from tests.comm.worlds import all_calls, in_simulator
from tests.methods.table import METHODS, first_of_kinds
from tests.methods.worlds import BOWLS

STEPS, PROCESSES = 13, 2

OF_KINDS = first_of_kinds()


class Ended(NamedTuple):
    """What a process ended with."""

    params: dict[str, torch.Tensor]
    records: list[Call]
    laps: list[Lap]


def trained(name: str, comm: Communicator, watch: Stopwatch | None = None) -> Ended:
    task = BOWLS.build(rows_of(comm, (0,)))
    if watch:
        task = MeasuredTask(task, watch)
    method = METHODS[name].spec.build(parameter_groups(task), comm)
    if watch:
        time_optimizer_steps(method, watch)
    for t in range(STEPS):
        task.step_gradients(t)
        method.step()
    return Ended(
        {key: p.detach() for key, p in task.params.items()}, comm.ledger.records, watch.take_laps() if watch else []
    )


def train_all(rank: int, port: int, folder: Path) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    watch = Stopwatch(Progress.shared(folder / "progress", PROCESSES, rank))
    with group(join_store(port, 60.0), Place(rank, PROCESSES), "gloo", 60.0):
        found = {
            name: trained(name, MeasuredCommunicator(ProcessGroupCommunicator(reproducible=True), watch), watch)
            for name in OF_KINDS
        }
        torch.distributed.barrier()
    torch.save(found, folder / f"{rank}.pt")


def test_every_call_has_the_values_and_the_ledger_of_the_wrapped_communicator() -> None:
    watch = Stopwatch(Progress.private(1, 0))
    values, records = all_calls(MeasuredCommunicator(SimulatedCommunicator(3), watch))
    expected_values, expected_records = in_simulator(3)
    assert records == expected_records
    assert all(torch.equal(values[name], expected) for name, expected in expected_values.items())
    transfers = [lap.what for lap in watch.take_laps() if lap.stream == "network"]
    assert transfers.count("send") == transfers.count("reduce") == 2  # with each of two wire formats


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Ended]]:
    folder = tmp_path_factory.mktemp("measured")
    store, progress = host_store(), Progress.shared(folder / "progress", PROCESSES)
    assert run_watched(train_all, PROCESSES, (store.port, folder), progress, folder, 60.0, preload=PRELOAD) is None
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(PROCESSES)]


@pytest.mark.parametrize("name", OF_KINDS)
def test_nothing_changes_and_each_collective_is_timed(name: str, ended: list[dict[str, Ended]]) -> None:
    expected = trained(name, SimulatedCommunicator(PROCESSES))
    for key, tensor in expected.params.items():
        found = torch.cat([of[name].params[key] for of in ended])
        torch.testing.assert_close(found, tensor, rtol=0, atol=1e-6)
    for of in ended:
        assert of[name].records == expected.records
        network = sorted((lap for lap in of[name].laps if lap.stream == "network"), key=lambda lap: lap.start_ns)
        carried = [(lap.step, lap.what, lap.nbytes, lap.label) for lap in network]
        # What streams at the end is not waited for any more.
        under_way = expected.records[len(carried) :]
        sent = [(call.step, call.collective, call.payload_bytes, call.label) for call in expected.records]
        assert carried == sent[: len(carried)]
        assert all(record.step >= STEPS - 2 for record in under_way) and (not under_way or "streaming" in name)
        for _, lane in itertools.groupby(sorted(separate_streams(of[name].laps)), key=lambda lap: lap[0]):
            in_time = sorted((lap[3], lap[4]) for lap in lane)
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(in_time))
