"""``torchrun -m syncline.torchrun``: the same folder; and what does not fit is said before training."""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from torch.distributed import HashStore

from syncline.measure.launching import torchrun
from syncline.specs import load_spec
from tests.torchrun import TORCHRUN, run

FIELDS = {
    "kind": "run",
    "name": "tiny",
    "problem": {"kind": "digits", "batch_size": 4, "hidden": 8},
    "workers": 5,
    "steps": 6,
    "method": "ddp-adam",
    "network": "1gbe",
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(json.dumps(FIELDS))
    return tmp_path


SCRIPT = """
import runpy, sys, torch, torch.distributed as dist
from syncline.methods import DDP
from syncline.optim import adam

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = DDP(model.parameters(), lr=0.01, rule=adam())
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4, generator=data)).square().mean().backward()
    optimizer.step()
weights = [torch.empty_like(model.weight) for _ in range(2)]
dist.all_gather(weights, model.weight.detach())
if dist.get_rank() == 0:
    print("equal", torch.equal(*weights), "bytes", optimizer.comm.ledger.payload_bytes())
dist.destroy_process_group()

sys.argv[1:] = ["tiny.yaml", "--device", "cpu", "--set", "compute=measure"]
runpy.run_module("syncline.torchrun", run_name="__main__")
"""


def test_an_ordinary_loop_and_a_run_under_torchrun(here: Path) -> None:
    """Two processes, one start of torchrun: a method in an ordinary loop averages gradients; then a spec is run."""
    (here / "train.py").write_text(SCRIPT)
    done = run(*TORCHRUN, "--nproc-per-node", "2", "train.py", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "equal True bytes 100" in done.stdout, done.stderr  # 5 steps x 5 parameters x 4 bytes
    told = json.loads((here / "runs" / "tiny" / "run.json").read_text())
    (row,) = told["rows"]
    assert (row["workers"], row["steps"], row["network"], told["failed"]) == (2, 6, "measured", None)
    assert len(pq.read_table(here / "runs" / "tiny" / "ledger.parquet")) == 6
    assert told["measured_step_s"] > 0  # by rank 0, for the simulated row
    assert load_spec(here / "runs" / "tiny" / "spec.yaml").compute.seconds == told["measured_step_s"]


def test_files_of_another_machine_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "MAX_VALUE_BYTES", 16)
    store, text = HashStore(), "".join(map(str, range(1000)))
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    (there / "3.jsonl").write_text(text)
    torchrun._send_files(store, 3, there)
    torchrun._receive_files(store, [2, 3], here, 0.01)  # rank 2 never sent any
    assert [path.name for path in here.iterdir()] == ["3.jsonl"] and (here / "3.jsonl").read_text() == text


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def as_under_torchrun(place: dict[str, str], here: Path, arguments: tuple[str, ...]) -> None:
    """``python -m syncline.torchrun`` in a process that has loaded it."""
    os.environ.update(place)
    os.chdir(here)
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{place['RANK']}.{name}", os.O_WRONLY | os.O_CREAT), stream)
    sys.argv[1:] = arguments
    runpy.run_module("syncline.torchrun", run_name="__main__")


def ranks(here: Path, port: int, *options: list[str]) -> list[BaseProcess]:
    """One process per list of options, with the environment that torchrun would give it."""
    started = []
    for rank, extra in enumerate(options):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": len(options), "LOCAL_WORLD_SIZE": len(options)}
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": 1}
        environment = {name: str(value) for name, value in (place | where).items()}
        started.append(
            get_context("forkserver").Process(target=as_under_torchrun, args=(environment, here, ("tiny.yaml", *extra)))
        )
        started[-1].start()
    return started


def ended(started: list[BaseProcess], here: Path) -> tuple[list[int | None], str]:
    """Exit codes, and what was said by all together."""
    for process in started:
        process.join(120)
    said = "".join((here / f"{rank}.err").read_text() for rank in range(len(started)))
    return [process.exitcode for process in started], said


def test_ranks_with_different_specs_do_not_start(here: Path) -> None:
    codes, told = ended(ranks(here, free_port(), [], ["--set", "steps=7"]), here)
    assert codes == [2, 2]
    assert told.startswith("error: rank 1: spec is ") and told.endswith("; all ranks need the same\n")
    assert told.count("\n") == 1 and not (here / "runs").exists()


def test_a_port_in_use(here: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        codes, told = ended(ranks(here, port, []), here)
    assert (codes, told) == ([2], f"error: MASTER_PORT: got '{port}'; expected a free port (address already in use)\n")


def under_way(here: Path, processes: int, timeout: str) -> list[BaseProcess]:
    """A long training that has come some steps far."""
    long = ["--set", "steps=100000", "--timeout", timeout, "--out", "out"]
    started = ranks(here, free_port(), *[long] * processes)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        files = list(here.glob(".out.partial-*/ranks/1.jsonl"))
        if files and files[0].read_text().count("\n") > 5:
            break
        time.sleep(0.02)
    return started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_are_asked_to_end(here: Path, number: int) -> None:
    """As torchrun does after Ctrl-C, and when it is asked itself: nobody is blamed, and nothing measured is lost."""
    started = under_way(here, 2, "20 s")
    for process in started:
        assert process.pid is not None
        os.kill(process.pid, number)
    codes, told = ended(started, here)
    assert codes == [130, 1]
    assert "interrupted: what was measured until then" in told and "error" not in told
    found = json.loads((here / "out" / "run.json").read_text())
    assert found["interrupted"] and found["failed"] is None and found["rows"][0]["steps"] > 3


def test_who_stands_still_is_named(here: Path) -> None:
    """Not the first, also where both are inside of one collective, so that nobody is behind."""
    started = under_way(here, 2, "3 s")
    stopped = started[1].pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    started[0].join(60)
    os.kill(stopped, signal.SIGKILL)
    codes, told = ended(started, here)
    assert codes[0] == 1 and "error: rank 1 did nothing for 3 s in step " in told


def test_who_dies_is_named_and_the_folder_has_what_was_measured(here: Path) -> None:
    started = under_way(here, 2, "20 s")
    started[1].kill()
    codes, told = ended(started, here)
    assert codes == [1, -signal.SIGKILL]
    assert "error: rank 1 died in step " in told
    found = json.loads((here / "out" / "run.json").read_text())
    assert found["failed"].startswith("rank 1 died in step ") and found["rows"][0]["steps"] > 3
