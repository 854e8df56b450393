"""The parts of a launch by themselves: stopwatch, progress, devices, meeting, lanes."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from syncline.comm.devices import devices
from syncline.costmodel import Call
from syncline.errors import SpecError, SynclineError
from syncline.measure.launching.launch import PRELOAD
from syncline.measure.launching.pipeline import _Sender
from syncline.measure.launching.rank_files import separate_streams
from syncline.measure.processes.rendezvous import (
    LOOPBACK,
    Place,
    agree,
    clock_offset_ns,
    group,
    host_store,
    join_store,
    store_of_environment,
)
from syncline.measure.processes.stopwatch import Stopwatch
from syncline.measure.processes.watchdog import CHANGED_NS, NUM_COUNTERS, Failure, Progress, run_watched
from syncline.sim.pipelines.schedules import PipelineTask


def own_progress(processes: int = 1, rank: int = 0) -> Progress:
    return Progress(np.zeros((processes, NUM_COUNTERS), dtype=np.int64), rank)


def test_a_step_is_cut_at_its_boundaries() -> None:
    times = iter([10, 30, 70])
    watch = Stopwatch(own_progress(), clock=lambda: next(times))
    watch.begin(4)
    watch.begin_optimizer()
    watch.record_wait(40, 60, "gradient")
    watch.record_transfer(35, 60, Call(4, "all_reduce", 8, range(2), label="gradient"))
    watch.end()
    assert [(lap.stream, lap.what, lap.label, lap.start_ns, lap.end_ns, lap.nbytes) for lap in watch.take_laps()] == [
        ("compute", "compute", "compute", 10, 30, 0),
        ("compute", "optimizer", "optimizer", 30, 40, 0),
        ("compute", "wait", "gradient", 40, 60, 0),
        ("network", "all_reduce", "gradient", 35, 60, 8),
        ("compute", "optimizer", "optimizer", 60, 70, 0),
    ]
    assert (watch.begun_ns, watch.ended_ns, watch.steps_done, watch.take_laps()) == (10, 70, 1, [])


def test_a_wait_between_steps_is_not_noted() -> None:
    watch = Stopwatch(own_progress())
    watch.record_wait(1, 2, "evaluation")
    assert watch.take_laps() == []


def test_no_sender_waits_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the device in the sender's thread would be waiting for whatever the other thread computes by then."""
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(dist, "send", lambda x, target, **options: None)
    times = itertools.count(10, 10)
    watch = Stopwatch(own_progress(), "cuda:0", clock=lambda: next(times))
    sender = _Sender(watch)
    sender.send(torch.zeros(3), 1, 7, PipelineTask("forward", 5))
    sender.finish()
    (lap,) = watch.take_laps()
    assert (lap.stream, lap.label, lap.end_ns - lap.start_ns, lap.nbytes, lap.step) == ("send", "forward", 10, 12, 5)
    assert waited == []


class Gpu:
    """A GPU that the host outruns: work takes milliseconds, and calls return at once."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.done_ms, self.host_ms, self.waits = 0.0, 0.0, 0
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self, stream: object) -> None:
                self.ms = max(gpu.done_ms, gpu.host_ms)

            def elapsed_time(self, end: Event) -> float:
                return end.ms - self.ms

        patched.setattr(torch.cuda, "Event", Event)
        patched.setattr(torch.cuda, "current_stream", lambda device: None)
        patched.setattr(torch.cuda, "synchronize", self.wait)

    def work(self, ms: float) -> None:
        self.done_ms = max(self.done_ms, self.host_ms) + ms

    def wait(self, device: torch.device) -> None:
        self.waits, self.host_ms = self.waits + 1, max(self.host_ms, self.done_ms)


def test_boundaries_within_a_step_on_a_gpu_are_its_own_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    watch = Stopwatch(own_progress(), "cuda:0", clock=lambda: round(gpu.host_ms * 1e6))
    for step in range(2):
        call = Call(step, "all_reduce", 8, range(2), label="gradient")
        gpu.host_ms += 1.0  # between steps
        watch.begin(step)
        gpu.work(30.0)
        watch.begin_optimizer()
        start = watch.instant()
        gpu.work(8.0)
        watch.record_wait(start, watch.instant(), "gradient")
        watch.record_transfer(start, watch.instant(), call)
        gpu.work(2.0)
        watch.end()
    laps = [(lap.step, lap.stream, lap.what, lap.start_ns / 1e6, lap.end_ns / 1e6) for lap in watch.take_laps()]
    assert laps == [
        (step, stream, what, begin + zero, end + zero)
        for step, zero in ((0, 1), (1, 42))
        for stream, what, begin, end in (
            ("compute", "compute", 0, 30),
            ("compute", "wait", 30, 38),
            ("network", "all_reduce", 30, 38),
            ("compute", "optimizer", 38, 40),
        )
    ]
    assert gpu.waits == 4 and (watch.begun_ns, watch.ended_ns) == (42e6, 82e6)  # at the begin and the end of each step


def test_a_collective_of_a_gpu_may_end_in_a_later_step(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    watch = Stopwatch(own_progress(), "cuda:0", clock=lambda: round(gpu.host_ms * 1e6))
    watch.begin(0)
    gpu.work(5.0)
    start = watch.instant()
    gpu.work(5.0)
    watch.end()
    watch.begin(1)
    gpu.work(4.0)
    watch.record_transfer(start, watch.instant(), Call(0, "all_reduce", 8, range(2)))
    gpu.work(1.0)
    watch.end()
    (lap,) = [lap for lap in watch.take_laps() if lap.stream == "network"]
    assert (lap.start_ns, lap.end_ns) == (5e6, 14e6)


def test_collectives_under_way_together_have_streams_of_their_own() -> None:
    laps = [("network", "all_reduce", name, start, end, 1, 0) for name, start, end in
            [("a", 0, 10), ("b", 5, 12), ("c", 10, 11), ("d", 20, 21)]]  # fmt: skip
    streams = {lap[2]: lap[0] for lap in separate_streams(laps)}
    assert streams == {"a": "network", "b": "network 2", "c": "network", "d": "network"}


def test_who_is_behind() -> None:
    words = np.zeros((3, NUM_COUNTERS), dtype=np.int64)
    ranks = [Progress(words, rank) for rank in range(3)]
    for rank in ranks:
        rank.record_step(0, 0)
        rank.enter_collective()
    assert ranks[0].lagging_ranks() == [0, 1, 2]  # all in the same collective
    for rank in ranks:
        rank.leave_collective()
    ranks[0].enter_collective()
    ranks[2].enter_collective()
    assert ranks[0].lagging_ranks() == [1]
    words[:, CHANGED_NS] = [4_000_000_000, 2_000_000_000, 3_000_000_000]
    assert ranks[0].quiet_s(now_ns=5_000_000_000) == 1.0


def test_which_device_and_backend() -> None:
    assert devices("auto", "auto", 4, gpus=0)[:2] == ("cpu", "gloo")
    shared = devices("auto", "auto", 4, gpus=2)
    assert shared[:2] == ("cuda", "gloo")
    assert [shared.for_process(rank).index for rank in range(4)] == [0, 1, 0, 1]
    assert devices("cpu", "auto", 4, gpus=8)[:2] == ("cpu", "gloo")
    if dist.is_nccl_available():
        assert devices("auto", "auto", 4, gpus=4)[:2] == ("cuda", "nccl")


@pytest.mark.parametrize(
    ("device", "backend", "gpus", "line"),
    [
        ("cuda", "auto", 0, "device: got 'cuda'; expected cpu, as torch finds no GPU here"),
        ("auto", "nccl", 0, "backend: got 'nccl'; expected gloo, as torch finds no GPU here"),
        ("cpu", "nccl", 4, "backend: got 'nccl'; expected gloo, as the device is cpu"),
        ("auto", "nccl", 1, "backend: got 'nccl'; expected gloo, as NCCL needs a GPU for each of the 2 processes, and "
         "this machine has 1 GPU"),
        ("gpu", "auto", 1, "device: got 'gpu'; expected one of 'auto', 'cpu', 'cuda' (did you mean 'cpu'?)"),
    ],
)  # fmt: skip
def test_a_device_that_is_missing(device: str, backend: str, gpus: int, line: str) -> None:
    with pytest.raises(SpecError) as caught:
        devices(device, backend, 2, gpus)
    assert str(caught.value) == line


def test_ranks_must_be_alike_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.measure.processes.rendezvous.HEARD_S", 0.01)

    def told_by_rank_1(**other: str) -> str:
        store = dist.HashStore()
        mine = {"spec": "1a", "torch": "2.9"}
        with pytest.raises(SynclineError):  # rank 1 has come first
            agree(store, Place(1, 2), mine | other, 0.01, other.pop("mistake", None))
        with pytest.raises(SynclineError) as caught:
            agree(store, Place(0, 2), mine, 0.01)
        return str(caught.value)

    assert told_by_rank_1(torch="2.8") == "rank 1: torch is 2.8, and rank 0 has 2.9; all ranks need the same"
    assert told_by_rank_1(spec="2b") == "rank 1: spec is 2b, and rank 0 has 1a; all ranks need the same"
    with pytest.raises(SynclineError, match="rank 1 did not join"):
        agree(dist.HashStore(), Place(0, 2), {"spec": "1a"}, 0.01)
    store = dist.HashStore()
    with pytest.raises(SynclineError):
        agree(store, Place(1, 2), {}, 0.01, "device: got 'cuda'")
    with pytest.raises(SynclineError, match=r"^rank 1: device: got 'cuda'$"):
        agree(store, Place(0, 2), {}, 0.01)


def ask_the_time(rank: int, port: int, folder: Path) -> None:
    import os
    import time

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    Progress.shared(folder / "progress", 3, rank).record_step(0, 0)
    place = Place(rank, 3)
    with group(join_store(port, 30.0), place, "gloo", 30.0):
        machines = {0: "a", 1: "a", 2: "b"}
        ahead_ns = 5_000_000_000 if rank == 2 else 0
        found = clock_offset_ns(place, machines, clock=lambda: time.monotonic_ns() + ahead_ns)
        (folder / f"{rank}.offset").write_text(str(found))
        dist.barrier()


def test_a_clock_that_is_ahead_is_found(tmp_path: Path) -> None:
    """Of processes on one machine, one of which says it is elsewhere and adds five seconds."""
    store, progress = host_store(), Progress.shared(tmp_path / "progress", 3)
    assert run_watched(ask_the_time, 3, (store.port, tmp_path), progress, tmp_path, 30.0, preload=PRELOAD) is None
    offsets = [int((tmp_path / f"{rank}.offset").read_text()) for rank in range(3)]
    assert offsets[:2] == [0, 0]
    assert offsets[2] == pytest.approx(5e9, abs=20e6)


def end_badly(rank: int, how: str, folder: Path) -> None:
    import os
    import time

    progress = Progress.shared(folder / "progress", 2, rank)
    progress.record_step(7, 7)
    if rank == 1:
        time.sleep(0.2)
        if how == "exit":
            os._exit(3)
        if how == "raise":
            raise ValueError("no more\nof this")
        if how == "refuse":
            raise SpecError("problem.hidden", 0, "at least 1")
    progress.enter_collective()
    time.sleep(60)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("exit", "rank 1 died (exit code 3) in step 7"),
        ("raise", "rank 1 failed (ValueError: no more) in step 7"),
        ("refuse", "problem.hidden: got 0; expected at least 1"),
        ("hang", "rank 1 did nothing for 0.5 s, and the others waited for it, in step 7"),
    ],
)
def test_who_ends_the_others(how: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.measure.processes.watchdog.GRACE_S", 0.2)  # the other rank has nothing to say
    progress = Progress.shared(tmp_path / "progress", 2)
    target, timeout_s = (sleep_on_one, 0.5) if how == "hang" else (end_badly, 60.0)  # a busy machine may take long
    failure = run_watched(target, 2, (how, tmp_path), progress, tmp_path, timeout_s)
    assert isinstance(failure, Failure)
    assert str(failure) == line and failure.mistake == (how == "refuse")


def sleep_on_one(rank: int, how: str, folder: Path) -> None:
    import time

    progress = Progress.shared(folder / "progress", 2, rank)
    progress.record_step(7, 7)
    if rank == 0:
        progress.enter_collective()
    time.sleep(60)


def test_a_store_is_reached_from_its_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback has many addresses, of which a socket that listens on every interface has all."""
    store = host_store()
    with socket.create_server((LOOPBACK, 0)) as free:
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": LOOPBACK, "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    mine, place = store_of_environment(5.0)
    assert place == Place(0, 1)
    for host, known in ((store, store.port), (mine, port)):
        host.set("key", "value")
        assert join_store(known, 5.0).get("key") == b"value"
        with pytest.raises(OSError, match=r"refused|timed out|reach"):
            socket.create_connection(("127.0.0.2", known), timeout=5.0)


def test_a_port_that_is_taken() -> None:
    taken = host_store()
    with pytest.raises(SpecError, match=f"port: got {taken.port}; expected a free port"):
        host_store(taken.port)
    assert torch.distributed.is_available()
