"""``syncline launch`` of workers at their own pace: the simulator's parameters in one order, and workers that die."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console

import syncline as sl
from syncline.errors import SpecError
from syncline.measure.launching.process import Launch
from syncline.measure.launching.served.events import replay_folder, train_in_order
from syncline.measure.launching.served.launch import launch_served
from syncline.measure.launching.tables import launch_tables
from syncline.problems import Rows, Task
from syncline.problems.landscapes import Quadratic
from syncline.specs import RunSpec, validate
from tests.test_docs import documented

WORKERS, STEPS = 3, 20

FIELDS: dict[str, Any] = {
    "kind": "run",
    "name": "apart",
    "problem": {"kind": "quadratic", "spectrum": [1.0, 0.3, 3.0], "noise_std": 0.2, "shift_std": 0.5},
    "workers": WORKERS,
    "steps": STEPS,
    "eval_every": 5,
    "seeds": [0, 1],
    "schedule": {"warmup_steps": 3, "cooldown_steps": 5},
    "speeds": [1, 0.5, 0.25],
    "compute": {"seconds": 1e-3},
    "network": "wan",
    "dtype": "float64",
}

DILOCO = {"kind": "diloco", "lr": 0.02, "period": 3}


def spec_of(how: dict[str, Any], method: dict[str, Any] = DILOCO, **fields: Any) -> RunSpec:
    return validate(RunSpec, FIELDS | {"method": method | {"asynchronous": how}} | fields)


def launched(spec: RunSpec, out: Path, **how: Any) -> dict[str, Any]:
    return launch_served(spec, out, Launch(device="cpu", keep_parameters=True, timeout_s=60.0, **how), exact=True)


def table(folder: Path, name: str) -> dict[str, list]:
    return pq.read_table(folder / f"{name}.parquet").to_pydict()


def check_replay(folder: Path, spec: RunSpec | None = None) -> None:
    """The simulator's math in the recorded order has the same model and the same losses."""
    again, history = replay_folder(folder) if spec is None else train_in_order(spec, table(folder, "order"))
    parameters = torch.load(folder / "parameters.pt")
    assert parameters.keys() >= again.keys()
    for name, tensor in again.items():
        torch.testing.assert_close(parameters[name].double(), tensor.double(), rtol=0, atol=1e-9)
    metrics, seeds = table(folder, "metrics"), len(history.seeds)
    losses = np.array(metrics["train_loss"], dtype=float).reshape(seeds, -1)[:, 1:].T
    np.testing.assert_allclose(losses, history.loss, rtol=1e-9)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    out = tmp_path_factory.mktemp("served") / "apart"
    seen: list[int] = []
    spec = spec_of({})
    how = Launch(device="cpu", keep_parameters=True, timeout_s=60.0)
    told = launch_served(spec, out, how, exact=True, on_progress=seen.append)
    assert seen[-1] == 2 * STEPS and seen == sorted(seen)
    return told, out


def test_the_same_order_in_the_simulator_gives_the_same_parameters(plain) -> None:
    told, folder = plain
    check_replay(folder)
    _, history = replay_folder(folder)
    metrics = table(folder, "metrics")
    kept = np.array(metrics["eval_loss"], dtype=float).reshape(2, STEPS + 1).T
    np.testing.assert_allclose(kept[history.eval_step], history.evaluation["loss"], rtol=1e-9)
    assert history.eval_step.tolist() == [0, 5, 10, 15, 20]
    assert told["failed"] is None and told["departures"] == [] and told["joins"] == []


def test_the_order_has_each_step_and_each_update_once(plain) -> None:
    told, folder = plain
    order, row = table(folder, "order"), told["rows"][0]
    steps = [(w, n) for e, w, n in zip(order["event"], order["worker"], order["value"], strict=True) if e == "step"]
    assert sorted(steps) == [(w, n) for w in range(WORKERS) for n in range(row["steps_by_worker"][w])]
    assert len(steps) == WORKERS * STEPS
    assert sorted(c for c in order["count"] if c is not None) == list(range(WORKERS * STEPS))
    contributions = table(folder, "contributions")
    mine = [i for i, network in enumerate(contributions["network"]) if network == "measured"]
    assert len(mine) == order["event"].count("arrive") == sum(row["contributions"]) == row["versions"]
    for i in mine:
        assert contributions["age"][i] == contributions["version"][i] - 1 - contributions["model"][i]
        assert 0 <= contributions["begun_s"][i] < contributions["sent_s"][i] < contributions["arrived_s"][i]
    assert set(contributions["network"]) == {"measured", "wan"}


def test_measured_beside_simulated(plain) -> None:
    told, folder = plain
    row, there = told["rows"][0], told["simulated"]
    assert row["network"] == "measured" and there["network"] == "wan"
    for one in (row, there):
        assert sum(one["ages"]) == sum(one["contributions"]) and sum(one["steps_by_worker"]) == WORKERS * STEPS
    assert row["goodput"] == pytest.approx(1.0) and row["interruptions"] == 0
    asynchronous, failing = documented("Rows of asynchronous methods"), documented("Rows of trainings with failures")
    assert asynchronous | failing < set(row) <= documented("run") | documented("launch") | asynchronous | failing
    console = Console(width=120, record=True, file=io.StringIO())
    for one in launch_tables(told, spec_of({})):
        console.print(one)
    shown = console.export_text()
    assert "simulated: wan" in shown and "arrivals of updates, and how late they were" in shown
    kept = json.loads((folder / "run.json").read_text())
    assert kept["rows"][0]["ages"] == row["ages"] and kept["launch"]["processes"] == WORKERS + 1
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    all_of_one = ("worker 0", "worker 1", "worker 2", "server")
    assert names == [f"{world}: {name}" for world in ("measured", "simulated") for name in all_of_one]


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def exit_with_code_0() -> None:
    os._exit(0)


@dataclass(frozen=True, kw_only=True)
class Dying(Quadratic):
    """A quadratic in which workers end themselves, each once: before their steps of some numbers."""

    marks: str = ""
    dies: tuple[tuple[int, int], ...] = ()
    end: Callable[[], object] = field(default=kill_this_process)

    def build(self, rows: Rows, **options: Any) -> Task:
        task = super().build(rows, **options)
        gradients = task.step_gradients

        def step_gradients(number: int) -> torch.Tensor:
            mark = Path(self.marks) / f"{rows.workers[0]}-{number}"
            if (rows.workers[0], number) in self.dies and not mark.exists():
                mark.touch()
                self.end()
            return gradients(number)

        object.__setattr__(task, "step_gradients", step_gradients)
        return task


def dying(tmp_path: Path, *dies: tuple[int, int], end: Callable[[], object] = kill_this_process) -> Dying:
    own = {name: value for name, value in FIELDS["problem"].items() if name != "kind"}
    return Dying(**own | {"spectrum": (1.0, 0.3, 3.0)}, marks=str(tmp_path), dies=dies, end=end)


@pytest.mark.parametrize(
    ("end", "how_it_ended"), [(kill_this_process, "killed by SIGKILL"), (exit_with_code_0, "exit code 0")]
)
def test_a_worker_that_dies_is_started_again_and_goes_on(
    end: Callable[[], object], how_it_ended: str, tmp_path: Path
) -> None:
    """A quorum of two goes on without it; its steps since its model are lost, and anybody's again."""
    how = {
        "buffer_size": 2,
        "synchronous": True,
        "grace_period": "1 ms",
        "update_weights": "tokens",
        "staleness_exponent": 0.5,
    }
    told = launched(spec_of(how, problem=dying(tmp_path, (1, 4), end=end)), tmp_path / "out")
    (gone,) = told["departures"]
    assert gone["worker"] == 1 and gone["returns"] and gone["how"] == how_it_ended
    assert [one["worker"] for one in told["joins"]] == [1]
    row = told["rows"][0]
    assert told["failed"] is None and row["steps"] == STEPS
    assert row["interruptions"] == 1 and row["lost_steps"] == pytest.approx(
        1 / WORKERS
    )  # step 3, of the round of 3 to 5
    assert row["goodput"] < 1
    assert sum(row["steps_by_worker"]) == WORKERS * STEPS
    check_replay(tmp_path / "out", spec_of(how))


def test_who_does_not_come_back_is_not_waited_for(tmp_path: Path) -> None:
    how = {"buffer_size": 3, "synchronous": True}
    told = launched(spec_of(how, problem=dying(tmp_path, (2, 3))), tmp_path / "out", rejoins=0)
    assert [one["returns"] for one in told["departures"]] == [False] and told["joins"] == []
    assert told["failed"] is None and told["rows"][0]["steps"] == STEPS
    check_replay(tmp_path / "out", spec_of(how))


def test_where_nobody_is_left_it_ends_and_says_since_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the way that commands and `sl.launch` take."""
    spec = spec_of({}, problem=dying(tmp_path, (0, 3), (1, 3), (2, 3)))
    defaults = tuple(field.name == "keep_parameters" or field.default for field in fields(Launch))
    monkeypatch.setattr(Launch.__init__, "__defaults__", defaults)
    with pytest.warns(UserWarning, match="no progress possible"):
        told = sl.launch(spec, device="cpu", timeout="60 s", rejoins=0, out=tmp_path / "out")
    assert told.failed is not None
    assert told.failed.startswith("no progress possible since ") and told.failed.endswith("nobody comes back")
    assert told.rows[0]["steps"] == 3  # three local steps of each have arrived
    check_replay(tmp_path / "out", spec_of({}))


@pytest.mark.parametrize(
    ("fields", "how", "line"),
    [
        ({"how": {"hierarchy": {"groups": 2}}}, {}, "method.asynchronous.hierarchy: .*; expected none in a launch"),
        ({"how": {}, "failures": {"rates": []}}, {}, "failures: got 'given'; expected none"),
        ({"how": {}}, {"workers_per_process": 3}, "workers_per_process: got 3; expected 1"),
        ({"how": {}}, {"reproducible": True}, "reproducible: got True; expected false"),
    ],
)
def test_what_it_does_not_know_is_refused(tmp_path: Path, fields: Any, how: Any, line: str) -> None:
    with pytest.raises(SpecError, match=f"^{line}") as told:
        launch_served(spec_of(**fields), tmp_path / "out", Launch(device="cpu", **how))
    assert "\n" not in str(told.value) and not (tmp_path / "out").exists()


BABBLE = [struct.pack("!i", 20) + b'{"secret": "\\ud800"}', struct.pack("!i", 4090) + b"[" * 4090, b"\xff" * 1000, b""]


def test_strangers_at_its_port_disturb_no_training(tmp_path: Path) -> None:
    """Connections that babble or say nothing, before it begins and while it trains."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:

        def strangers(done: int) -> None:
            for sent in BABBLE * (len(stack._exit_callbacks) < 100):  # type: ignore[attr-defined]
                with suppress(OSError):
                    stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    stranger.sendall(sent)

        how = Launch(device="cpu", timeout_s=60.0, port=port)
        told = launch_served(spec_of({}, eval_every=0), tmp_path / "out", how, exact=True, on_progress=strangers)
    assert told["failed"] is None and told["departures"] == [] and told["rows"][0]["steps"] == STEPS
