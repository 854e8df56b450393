"""The server of a launch among workers that send what they may not: each counts as lost, and the others go on."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from syncline.measure.launching.process import Launch
from syncline.measure.launching.served.events import ServerLines
from syncline.measure.launching.served.server import _Server
from syncline.measure.launching.served.worker import JoinRequest, RoundReport, longest_head, read_head
from syncline.measure.processes.messages import MalformedMessage, WorkerSocket, make_keys
from syncline.measure.processes.rejoining import Register
from syncline.measure.processes.rendezvous import open_listener
from syncline.specs import RunSpec, validate

WAIT_S = 60.0

REPORT: dict[str, Any] = {
    "begun_ns": 110,
    "steps": [[3, 6, 6, 120, 130], [4, 8, 7, 130, 140]],
    "losses": [[0.5], [float("nan")]],
    "laps": [["compute", "recv", "model 0", 5, 110, 8, 3]],
}


def check(**fields: Any) -> None:
    report = read_head(RoundReport, json.dumps(REPORT | fields).encode())
    report.check(range(3, 5), 9, 1, 100)


def test_a_report_of_the_steps_that_were_given_is_taken() -> None:
    check()


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": []},
        {"steps": REPORT["steps"][:1]},
        {"steps": [[2, 6, 6, 120, 130], [3, 8, 7, 130, 140]]},  # not its own
        {"steps": [[3, 6, 6, 120, 130], [4, 9, 7, 130, 140]]},  # a place that no step has
        {"steps": [[3, 8, 6, 120, 130], [4, 8, 7, 130, 140]]},
        {"steps": [[3, 6, 7, 120, 130], [4, 8, 7, 130, 140]]},
        {"steps": [[3, 6, 6, 120, 130], [4, 8, 7, 130, 2**62]]},
        {"steps": [[3, 6, 6, 120, 130], [4, 8, 7, 130, 2**70]]},
        {"steps": [[3, 6, 6, 120, 130], [4, 8, 7, 130.5, 140]]},
        {"steps": [[3, 6, 6, 120, 130], [4, 8, 7, 130]]},
        {"steps": "34"},
        {"begun_ns": 99},
        {"begun_ns": -1},
        {"losses": [[0.5]]},
        {"losses": [[0.5, 1.0], [0.5, 1.0]]},
        {"losses": [["0.5"], [1.0]]},
        {"laps": [["compute", "recv", "model 0", 110, 5, 8, 3]]},
        {"laps": [["x" * 201, "recv", "model 0", 5, 110, 8, 3]]},
        {"laps": [{}]},
        {"worker": 1},
    ],
)
def test_a_report_of_anything_else_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        check(**fields)


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 4090, b"[" * 10**6, b'{"pid": "\\ud800"}', b"\xff", b"null", b'{"pid": -1}', b'{"pid": 1e999}'],
)
def test_a_head_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_head(JoinRequest, content)


def test_the_longest_head_has_room_for_its_steps() -> None:
    laps = [["compute", what, "model 1234567", 2**62, 2**62, 2**62, 2**62] for what in ("recv", "compute", "optimizer")]
    report = {"begun_ns": 2**62, "steps": [[2**62] * 5] * 1000, "losses": [[-1e-300] * 3] * 1000, "laps": laps * 1000}
    assert len(json.dumps(report)) < longest_head(1000, 3)


class Training:
    """A server in a thread, and two workers that the test plays."""

    def __init__(self, folder: Path) -> None:
        problem = {"kind": "quadratic", "spectrum": [1.0, 2.0]}
        method = {"kind": "diloco", "lr": 0.1, "period": 2, "asynchronous": {}}
        fields = {"kind": "run", "name": "served", "problem": problem, "method": method, "workers": 2, "steps": 4}
        fields |= {"network": "wan"}
        spec = validate(RunSpec, fields | {"dtype": "float64", "compute": {"seconds": 1e-3}})
        server_keys, worker_keys = make_keys(2)
        listener = open_listener(0)
        port = listener.getsockname()[1]
        self.folder, self.register = folder, Register(folder / "register", 2)
        self.workers = [WorkerSocket(port, keys, WAIT_S) for keys in worker_keys]
        self.server = _Server(spec, Launch(device="cpu"), torch.device("cpu"), listener, server_keys, folder)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        for worker in self.workers:
            worker.send({"pid": os.getpid()})
        self.heads = [self.answer(worker) for worker in range(2)]

    def answer(self, worker: int) -> dict[str, Any]:
        """The head of what the server sends next."""
        assert self.workers[worker]._socket.poll(1000 * WAIT_S)
        return self.workers[worker].receive()[0]

    def leave(self, worker: int) -> None:
        """A worker's process ends, and is not started again."""
        self.register.record_departure(worker)
        self.register.record_end(worker)

    def report(self, worker: int) -> tuple[dict[str, Any], list[torch.Tensor]]:
        """A worker's steps, with an update of zeros."""
        head, steps = self.heads[worker], []
        begun_ns = time.monotonic_ns()
        for number in range(head["first"], head["first"] + head["steps"]):
            steps.append([number, *self.register.begin_step(worker), time.monotonic_ns(), time.monotonic_ns()])
        losses = [[1.0]] * len(steps)
        update = [torch.zeros_like(p) for p in self.server.math.params]
        return {"begun_ns": begun_ns, "steps": steps, "losses": losses, "laps": []}, update

    def finish(self, worker: int) -> None:
        """A worker makes all steps that are left."""
        while "end" not in self.heads[worker]:
            self.workers[worker].send(*self.report(worker))
            self.heads[worker] = self.answer(worker)

    def events(self, event: str) -> list[int]:
        return [line["worker"] for line in ServerLines.from_folder(self.folder).events_named(event)]


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    out = Training(tmp_path)
    yield out
    for worker in out.workers:
        worker.close()
    out.thread.join(WAIT_S)
    assert not out.thread.is_alive()
    out.server.socket.close()


Sent = tuple[dict[str, Any], list[torch.Tensor]]


@pytest.mark.parametrize(
    "change",
    [
        lambda head, tensors: (head | {"steps": [[9, *step[1:]] for step in head["steps"]]}, tensors),
        lambda head, tensors: (head, [*tensors, torch.zeros(1)]),
        lambda head, tensors: (head, []),
        lambda head, tensors: (head, [tensor[..., :1] for tensor in tensors]),
        lambda head, tensors: ({"pid": 1}, []),
    ],
    ids=["steps of others", "a tensor more", "no tensors", "tensors of another size", "a second beginning"],
)
def test_who_sends_what_it_may_not_is_lost_and_others_go_on(training: Training, change: Callable[..., Sent]) -> None:
    training.workers[1].send(*change(*training.report(1)))
    assert list(training.answer(1)) == ["refused"]
    assert training.events("fail") == [1]
    training.workers[1].send({"pid": os.getpid()})  # as its next process would do
    assert training.answer(1)["steps"] == 2
    training.leave(1)
    training.finish(0)
    assert sorted(training.events("join")) == [0, 1, 1]


def test_an_update_without_a_model_is_not_taken(training: Training) -> None:
    """A worker sends its update twice; the server may take the second one before or after it answers the first."""
    sent = training.report(1)
    training.workers[1].send(*sent)
    training.workers[1].send(*sent)
    assert "refused" in training.answer(1) or "refused" in training.answer(1)
    training.leave(1)
    training.finish(0)
    assert set(training.events("fail")) == {1}


def test_a_worker_whose_process_has_ended_is_noticed(training: Training) -> None:
    training.workers[1].close()
    training.leave(1)
    training.finish(0)
    assert training.events("fail") == [1]
