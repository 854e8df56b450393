"""``syncline launch``: the simulator's parameters and bytes on real processes, measured; and what happens on faults."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist

from syncline.comm import ProcessGroupCommunicator, SimulatedCommunicator
from syncline.errors import SpecError
from syncline.measure.launching.launch import PRELOAD, launch, launch_warnings
from syncline.measure.launching.process import Launch
from syncline.measure.processes.rendezvous import Place, group, host_store, join_store
from syncline.measure.processes.stopwatch import MeasuredCommunicator, MeasuredTask, Stopwatch
from syncline.measure.processes.watchdog import Failure, Progress, run_watched
from syncline.runs.run import run
from syncline.specs import RunSpec
from syncline.training import parameter_groups, rows_of, train
from tests.test_docs import documented

WORKERS = 3

FIELDS = {
    "kind": "run",
    "name": "tiny",
    "problem": {"kind": "digits", "batch_size": 4, "hidden": 8},
    "workers": WORKERS,
    "steps": 12,
    "eval_every": 4,
    "seeds": [0, 1],
    "schedule": {"warmup_steps": 3},
    "method": {"kind": "mt-dao", "lr": 0.003, "betas": [0.99], "omegas": [0.9], "period": 4},
    "network": "1gbe",
    "timeline_steps": 5,
}


def spec_of(**fields) -> RunSpec:
    return RunSpec.model_validate(FIELDS | fields)


def simulated_parameters(spec: RunSpec) -> dict[str, torch.Tensor]:
    comm = SimulatedCommunicator(spec.workers)
    task = spec.problem.build(rows_of(comm, (0,)))
    optimizer = spec.method.build(parameter_groups(task), comm)
    schedule = spec.schedule.build(optimizer, spec.steps)
    train(task, optimizer, (0,), spec.steps, schedule=schedule)
    return {name: p.detach() for name, p in task.params.items()}


def table(folder: Path, name: str) -> dict[str, list]:
    return pq.read_table(folder / f"{name}.parquet").to_pydict()


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSpec, dict, Path]:
    spec = spec_of()
    seen: list[int] = []
    out = tmp_path_factory.mktemp("launch") / "tiny"
    result = launch(spec, out, Launch(device="cpu", keep_parameters=True), on_progress=seen.append)
    assert seen[-1] == 2 * spec.steps and seen == sorted(seen)
    return spec, result, out


def test_parameters_are_the_simulators(launched) -> None:
    spec, _, folder = launched
    found, expected = torch.load(folder / "parameters.pt"), simulated_parameters(spec)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def simulated(launched, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    out = tmp_path_factory.mktemp("run") / "tiny"
    return run(launched[0], out), out


def test_the_records_of_a_run_but_for_the_clock(launched, simulated) -> None:
    _, result, _ = launched
    for found, expected in zip(result["rows"], simulated[0]["rows"], strict=True):
        for name in ("method", "workers", "seed", "steps", "diverged_at", "bytes_per_worker"):
            assert found[name] == expected[name]
        for name in ("loss", "accuracy", "train_loss"):
            assert found[name] == pytest.approx(expected[name], rel=1e-5)
        assert found["network"] == "measured"
    assert result["simulated"]["step_time_s"] == pytest.approx(simulated[0]["rows"][0]["step_time_s"])
    assert not result["failed"] and not result["interrupted"]


def test_tables_are_those_of_a_run(launched, simulated) -> None:
    _, _, folder = launched
    assert table(folder, "ledger") == table(simulated[1], "ledger")
    found, expected = (table(where, "metrics") for where in (folder, simulated[1]))
    assert found.keys() == expected.keys()
    for name in found:
        a, b = (np.array(columns[name], dtype=object if name == "method" else float) for columns in (found, expected))
        if name == "method":
            assert (a == b).all()
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5)


def spans_from_laps(folder: Path, network: str) -> dict[str, np.ndarray]:
    columns = {name: np.array(column) for name, column in table(folder, "timeline").items()}
    rows = columns["network"] == network
    return {name: column[rows] for name, column in columns.items()}


def test_spans_of_a_stream_follow_each_other(launched) -> None:
    spec, _, folder = launched
    spans = spans_from_laps(folder, "measured")
    assert (spans["end_s"] > spans["start_s"]).all() and spans["start_s"].min() == 0
    assert set(spans["step"]) == set(range(spec.timeline_steps))
    for worker in range(WORKERS):
        for stream in ("compute", "network"):
            mine = (spans["worker"] == worker) & (spans["stream"] == stream)
            assert (spans["start_s"][mine][1:] >= spans["end_s"][mine][:-1]).all()
            assert (np.diff(spans["step"][mine]) >= 0).all()


def test_a_step_is_gradients_optimizer_and_waits(launched) -> None:
    spans = spans_from_laps(launched[2], "measured")
    mine = (spans["worker"] == 1) & (spans["stream"] == "compute") & (spans["step"] == 3)
    averaged = "params+momentum_1+second_moment"
    assert spans["label"][mine].tolist() == ["compute", "optimizer", averaged, "optimizer"]
    assert spans["what"][mine].tolist() == ["compute", "optimizer", "wait", "optimizer"]
    assert (spans["start_s"][mine][1:] == spans["end_s"][mine][:-1]).all()  # nothing between


def test_collectives_are_the_ledgers(launched) -> None:
    """Each collective of the ledger once per worker, with its bytes, and in all workers at a common moment."""
    spec, _, folder = launched
    spans, ledger = spans_from_laps(folder, "measured"), table(folder, "ledger")
    rows = [i for i, step in enumerate(ledger["step"]) if step < spec.timeline_steps]
    expected = [(ledger["step"][i], ledger["label"][i], ledger["payload_bytes"][i]) for i in rows]
    for worker in range(WORKERS):
        mine = (spans["worker"] == worker) & (spans["stream"] == "network")
        assert list(zip(*(spans[name][mine].tolist() for name in ("step", "label", "nbytes")), strict=True)) == expected
    of_last = (spans["stream"] == "network") & (spans["step"] == spans["step"][spans["stream"] == "network"].max())
    assert spans["start_s"][of_last].max() < spans["end_s"][of_last].min()


def test_clock_adds_up(launched) -> None:
    row = launched[1]["rows"][0]
    parts = row["compute_s"] + row["optimizer_s"] + row["exposed_communication_s"]
    assert 0 < parts <= row["step_time_s"] * (1 + 1e-9)  # a mean over workers, of which the slowest counts
    assert row["wall_clock_s"] == pytest.approx(row["step_time_s"] * row["steps"])


def test_steps_are_summed_up(launched) -> None:
    spec, result, folder = launched
    steps = {name: np.array(column).reshape(spec.steps, WORKERS) for name, column in table(folder, "steps").items()}
    spans = spans_from_laps(folder, "measured")
    for name, rows in {
        "compute_s": spans["label"] == "compute",
        "optimizer_s": spans["label"] == "optimizer",
        "exposed_communication_s": spans["what"] == "wait",
    }.items():
        expected = np.zeros((spec.timeline_steps, WORKERS))
        np.add.at(expected, (spans["step"][rows], spans["worker"][rows]), (spans["end_s"] - spans["start_s"])[rows])
        np.testing.assert_allclose(steps[name][: spec.timeline_steps], expected, rtol=1e-12)
        assert result["rows"][0][name] == pytest.approx(steps[name].mean())
    parts = steps["compute_s"] + steps["optimizer_s"] + steps["exposed_communication_s"]
    np.testing.assert_allclose(parts, steps["step_s"], atol=1e-9)  # nothing of a step is left out
    assert (np.diff(steps["start_s"], axis=0) > steps["step_s"][:-1]).all()


def test_names_are_documented(launched) -> None:
    run_only = {"distance", "distance_mean", "spread_mean", "trigger_mean", "averaged_mean"}
    bounds = {name for name in documented("run") if "_low_" in name or "_high_" in name} | {"basis"}
    documents = documented("run") - run_only - bounds | documented("launch")  # what is measured has no bounds
    assert set(launched[1]["rows"][0]) == documents
    assert bounds <= set(launched[1]["simulated"])
    told = json.loads((launched[2] / "run.json").read_text())
    assert set(told) == documented("run.json") | {"simulated", "failed", "launch", "machines"}


def test_both_worlds_in_one_trace(launched) -> None:
    events = json.loads((launched[2] / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == [f"{world}: worker {worker}" for world in ("measured", "simulated") for worker in range(WORKERS)]


@pytest.mark.parametrize("each", [1, 2])
def test_reproducible_reduction_gives_the_same_bits(tmp_path: Path, each: int) -> None:
    """Also where two workers share each of two processes: their folder tells of processes where it means them."""
    spec = spec_of(workers=2 * each, seeds=[0], method={"kind": "diloco", "lr": 0.003, "rule": "adam", "period": 4})
    how = Launch(device="cpu", reproducible=True, keep_parameters=True, workers_per_process=each)
    told = launch(spec, tmp_path / "out", how)
    assert [row["workers"] for row in told["rows"]] == [2 * each]
    place = "worker" if each == 1 else "process"
    assert set(table(tmp_path / "out", "steps")[place]) == {0, 1}
    found, expected = torch.load(tmp_path / "out" / "parameters.pt"), simulated_parameters(spec)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def count_bytes(rank: int, port: int, folder: Path) -> None:
    """Bytes of the tensors that this process hands to ``torch.distributed``, of its laps, and of its ledger."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    handed, spec = [0], spec_of()
    all_reduce = torch.distributed.all_reduce

    def counting(x: torch.Tensor, *args: Any, **options: Any) -> Any:
        handed[0] += x.numel() * x.element_size()
        return all_reduce(x, *args, **options)

    torch.distributed.all_reduce = counting
    watch = Stopwatch(Progress.shared(folder / "progress", 2, rank))
    with group(join_store(port, 30.0), Place(rank, 2), "gloo", 30.0):
        comm = MeasuredCommunicator(ProcessGroupCommunicator(), watch)
        task = MeasuredTask(spec.problem.build(rows_of(comm, (0,))), watch)
        method = spec.method.build(parameter_groups(task), comm)
        for t in range(8):
            task.step_gradients(t)
            method.step()
        torch.distributed.barrier()
    laps = sum(lap.nbytes for lap in watch.take_laps() if lap.stream == "network")
    (folder / f"{rank}.bytes").write_text(json.dumps([handed[0], laps, comm.ledger.payload_bytes()]))


def test_bytes_of_spans_are_those_handed_over(tmp_path: Path) -> None:
    store, progress = host_store(), Progress.shared(tmp_path / "progress", 2)
    assert run_watched(count_bytes, 2, (store.port, tmp_path), progress, tmp_path, 30.0, preload=PRELOAD) is None
    for rank in range(2):
        handed, laps, noted = json.loads((tmp_path / f"{rank}.bytes").read_text())
        assert handed == laps == noted > 0


# Faults.


def signalled(tmp_path: Path, number: int, timeout_s: float) -> tuple[dict, Path]:
    """A training in which rank 1 gets a signal after some steps."""
    spec = spec_of(workers=2, seeds=[0], steps=50_000, method="ddp-adam", eval_every=0, timeline_steps=100_000)
    out, sent = tmp_path / "out", []

    def on_progress(done: int) -> None:
        if done > 5 and not sent:
            sent.append(number)
            facts = next(iter(tmp_path.glob(".out.partial-*/ranks/1.jsonl"))).open().readline()
            os.kill(json.loads(facts)["pid"], number)

    return launch(spec, out, Launch(device="cpu", timeout_s=timeout_s), on_progress=on_progress), out


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGKILL, "died (killed by SIGKILL)"), (signal.SIGSTOP, "did nothing for 2 s")]
)
def test_who_dies_or_hangs_is_named(tmp_path: Path, number: int, reason: str) -> None:
    result, folder = signalled(tmp_path, number, 2.0)
    assert result["failed"].startswith(f"rank 1 {reason}")
    step = int(result["failed"].rpartition("in step ")[2])
    done = result["rows"][0]["steps"]
    assert 5 < done <= step <= done + 1
    assert json.loads((folder / "run.json").read_text())["failed"] == result["failed"]
    assert max(table(folder, "metrics")["step"]) == done
    assert set(table(folder, "timeline")["step"]) == set(range(done))
    assert not list(tmp_path.glob(".out*"))


def in_group(rank: int, port: int, ending: str) -> None:
    """Let rank 1 fail, or leave without a word, while rank 0 waits for it in a collective."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with group(join_store(port, 60.0), Place(rank, 2, rank, 2), "gloo", 60.0):
        if rank == 1 and ending == "error":
            raise ValueError("there is no momentum")
        if rank == 1:
            os._exit(0)
        dist.barrier()


@pytest.mark.parametrize(
    ("ending", "line"),
    [("error", "failed (ValueError: there is no momentum)"), ("exit", "died (exit code 0)")],
)
def test_a_rank_whose_own_code_ends_it_is_named(tmp_path: Path, ending: str, line: str) -> None:
    """It is not the one that lost its peer by that, whichever process reports first, and code 0 is no success."""
    store = host_store(0)
    progress = Progress.shared(tmp_path / "progress", 2)
    failure = run_watched(in_group, 2, (store.port, ending), progress, tmp_path, 60.0)
    assert str(failure) == f"rank 1 {line} before the first step"


def test_exit_codes(command: Callable, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps(FIELDS))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = command("launch", "tiny.yaml", "--port", str(port))
    line = f"error: --port: got {port}; expected a free port (address already in use)"
    assert (done.code, [one for one in done.err.splitlines() if not one.startswith("warning")]) == (2, [line])
    if not torch.cuda.is_available():
        done = command("launch", "tiny.yaml", "--device", "cuda")
        assert done.code == 2
        assert done.err.endswith("error: --device: got 'cuda'; expected cpu, as torch finds no GPU here\n")
    for option, value, line in [
        ("--timeout", "0 s", "--timeout: got 0.0; expected at least 1 s"),
        ("--port", "65536", "--port: got 65536; expected a free port up to 65535; 0 for any"),
    ]:
        done = command("launch", "tiny.yaml", option, value)
        assert (done.code, done.err.splitlines()[-1]) == (2, f"error: {line}")
    # Found by the processes alone, which build the problem: a batch that is not in the table.
    done = command("launch", "tiny.yaml", "--workers", "2", "--set", "compute.batch_times={1: 1 ms}")
    assert done.code == 2 and done.err.splitlines()[-1].startswith("error: compute.batch_times: ")
    assert [path.name for path in (tmp_path / "runs").glob("*")] == []


def test_a_run_that_fails_before_its_first_result_is_written(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(1, 3, "died (killed by SIGKILL)")
    monkeypatch.setattr("syncline.measure.launching.launch.run_watched", lambda *_, **__: failure)
    (tmp_path / "tiny.yaml").write_text(json.dumps(FIELDS))
    done = command("launch", "tiny.yaml", "--out", "out", "--device", "cpu", "--json")
    assert done.code == 1
    result = json.loads(done.out)
    assert not result["interrupted"] and result["rows"] == []
    assert result["failed"] == "rank 1 died (killed by SIGKILL) in step 3"
    assert f"error: {result['failed']}; what was measured until then is in the folder above" in done.err
    assert (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize("has_line", [False, True])
def test_an_interrupted_run_is_written_if_a_process_has_written_a_line(
    has_line: bool, command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, folder: Path, **__: Any) -> None:
        if has_line:
            (folder / "0.jsonl").write_text("{}\n")
        raise KeyboardInterrupt

    monkeypatch.setattr("syncline.measure.launching.launch.run_watched", interrupt)
    (tmp_path / "tiny.yaml").write_text(json.dumps(FIELDS))
    done = command("launch", "tiny.yaml", "--out", "out", "--device", "cpu", "--json")
    assert done.code == 130
    assert (tmp_path / "out").exists() == has_line
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    if has_line:
        result = json.loads(done.out)
        assert result["interrupted"] and result["rows"] == []


def test_what_is_the_simulators_alone_is_warned_about() -> None:
    assert launch_warnings(spec_of(), cores=WORKERS) == []
    (line,) = launch_warnings(spec_of(), cores=1)
    assert line.startswith(f"{WORKERS} processes share 1 cores")
    odd = spec_of(compute={"jitter": 0.1}, faults={"slow_links": [{"worker": 0, "bandwidth_divisor": 2}]})
    assert [line.partition(":")[0] for line in launch_warnings(odd, cores=WORKERS)] == ["compute", "faults"]


def test_workers_that_do_not_fill_their_processes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^workers: got 3; expected a multiple of the 2 workers of each process"):
        launch(spec_of(), tmp_path / "out", Launch(device="cpu", workers_per_process=2))
    with pytest.raises(SpecError, match="workers_per_process"):
        Launch(workers_per_process=0)
    assert not (tmp_path / "out").exists()


def test_absent_workers_are_for_the_simulator(tmp_path: Path) -> None:
    spec = spec_of(method="ddp-adam", faults={"absences": [{"worker": 0, "first_step": 3}]})
    with pytest.raises(SpecError, match=r"faults.absences: .* real processes do not leave"):
        launch(spec, tmp_path / "out")
