"""Trainings that are predicted and then run between real processes, small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from syncline.costmodel import Link
from syncline.errors import SpecError, SynclineError
from syncline.measure.processes.hosts import LocalHosts, run_together
from syncline.measure.validation.cases import Case, CasePlan
from syncline.measure.validation.processes import Question, summarise, validate_processes
from syncline.specs import CompareSpec
from tests.costmodel.collectives.gloo.shaped import SHAPED
from tests.test_docs import documented

SPEC = CompareSpec.model_validate({
    "kind": "compare", "name": "small", "problem": {"kind": "digits", "hidden": 8, "batch_size": 8}, "workers": 2,
    "steps": 6, "networks": ["1ms,1Gbit/s"],
    "methods": ["ddp-adam", {"kind": "diloco", "lr": 0.01, "period": 3},
                {"kind": "curvadion", "lr": 0.02, "other_lr": 0.003}, "lion-cub-1bit"],
})  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    link = Link(2e-5, 2e9, "this machine", gloo=SHAPED)
    said: list[str] = []
    result = validate_processes(
        Question((SPEC,), (2,), 2), LocalHosts(link), tmp_path_factory.mktemp("out") / "small", on_progress=said.append
    )
    assert said == [
        "this machine, 2 workers: 4 trainings",
    ]  # fmt: skip
    return Path(result["folder"])


def test_the_same_training_was_predicted_and_measured(folder: Path) -> None:
    rows = json.loads((folder / "run.json").read_text())["rows"]
    assert [row["method"] for row in rows] == [method.name for method in SPEC.methods]
    for row in rows:
        assert row["measured_bytes"] == row["predicted_bytes"] > 0
        assert abs(row["loss_difference"]) < 1e-5
        assert row["measured_s"] > row["measured_communication_s"] > 0
        assert row["predicted_s"] > row["predicted_communication_s"] > 0
        assert row["error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
        assert row["device_bytes"] is None  # the loopback device is everybody's


def test_names_are_documented(folder: Path) -> None:
    told = json.loads((folder / "run.json").read_text())
    names = {name for part in ("rows", "summary") for row in told[part] for name in row}
    assert names == documented("validate trainings")


def test_what_each_process_left_is_kept(folder: Path) -> None:
    left = folder / "processes" / "this machine-2" / "small.diloco"
    assert {path.name for path in (left / "software" / "1").iterdir()} == {"0.jsonl", "1.jsonl"}
    assert {path.name for path in (left / "measured").iterdir()} == {"warm", "0", "1"}
    assert pq.read_table(folder / "points.parquet").num_rows == len(SPEC.methods)
    assert (folder / "figures" / "validation.png").stat().st_size > 1000


def test_a_method_that_averages_parameters_every_third_step_sends_a_third_of_the_gradients(folder: Path) -> None:
    points = {row["method"]: row for row in pq.read_table(folder / "points.parquet").to_pylist()}
    assert points["diloco"]["measured_bytes"] == pytest.approx(points["ddp-adam"]["measured_bytes"] / 3)


def test_errors_by_group() -> None:
    def row(method: str, error: float) -> dict:
        return {
            "method": method,
            "network": "n",
            "workers": 2,
            "bound": "compute",
            "spec": "s",
            "error": error,
            "spread": 0.1,
        }

    everything, first, *_ = summarise([row("a", 0.1), row("a", -0.3), row("b", 0.2)])
    assert (everything["points"], everything["median"], everything["worst"]) == (
        3,
        pytest.approx(0.2),
        pytest.approx(0.3),
    )
    assert (first["value"], first["median"], first["bias"]) == ("a", pytest.approx(0.2), pytest.approx(-0.1))


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    link = {"latency": 0.0, "bandwidth": 1e6}
    plan = CasePlan(tmp_path / "p", (Case("a", {"kind": "run"}, repeats=2),), 5.0, link)
    assert CasePlan.read(plan.write()) == plan


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('what is wrong')", "rank 1 failed: what is wrong"),
        ("import os; os.kill(os.getpid(), 9)", "rank 1 failed: exit code -9"),
        ("raise ValueError('told')", "rank 1 failed: ValueError: told"),
    ],
)
def test_a_process_that_fails_ends_the_others(code: str, message: str) -> None:
    commands = [[sys.executable, "-c", of] for of in ("import time; time.sleep(60)", code)]
    with pytest.raises(SynclineError, match=message):
        run_together(commands, [dict(os.environ)] * 2, 30.0)


@pytest.mark.skipif(sys.platform != "linux", reason="whose kernel ends a process with its parent")
def test_processes_end_with_whoever_started_them(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    sleeps = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    runs = "from syncline.measure.processes.hosts import run_commands\nimport os, sys\n"
    runs += f"run_commands([[sys.executable, '-c', {sleeps!r}]], [dict(os.environ)], 60)"
    started = subprocess.Popen([sys.executable, "-c", runs])
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    started.kill()
    started.wait()
    while is_running(pid.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_running(pid.read_text())


def is_running(pid: str) -> bool:
    """Whether there is such a process that has not ended; nobody may be left to ask."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_processes_that_are_not_through_in_time() -> None:
    with pytest.raises(SynclineError, match=r"rank 0 had not finished after 0\.2 s"):
        run_together([[sys.executable, "-c", "import time; time.sleep(60)"]], [dict(os.environ)], 0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("digits-skewed", "--workers", "1"),
            "error: --workers: got [1]; expected different numbers of processes of at least 2",
        ),
        (("digits-skewed", "--workers", "two"), "error: --workers: got 'two'; expected numbers of processes"),
        (("digits-skewed", "--repeats", "0"), "error: --repeats: got 0; expected at least 1"),
        (("digits-skewed", "--cluster", "none.yaml"), "error: --cluster"),
        (("digits-skewed", "vtrain-a100", "--out", "x"), "error: --out: got 'x'; expected one spec"),
        (("project-gpt-160m",), "error: kind: got 'project'"),
    ],
)
def test_refusals(command, arguments: tuple[str, ...], message: str) -> None:
    result = command("validate", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


def test_no_repetition() -> None:
    with pytest.raises(SpecError, match="--repeats"):
        Question((SPEC,), (2,), 0)
