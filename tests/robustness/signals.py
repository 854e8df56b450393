"""Commands that a signal ends at any moment: what they leave, what they say and how long they take."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import syncline as sl
from syncline.errors import SynclineError
from tests.replication.replications.small import tiny_file

RUN = """{kind: run, name: own, problem: {kind: quadratic, spectrum: [1, 10]}, workers: 2, seeds: [0],
method: ddp-adam, steps: 500, eval_every: 100, network: 10gbe, compute: {seconds: 0.001}}"""
COMPARE = """{kind: compare, name: both, problem: {kind: quadratic, spectrum: [1, 10]}, workers: 2, seeds: [0],
methods: [ddp-adam, {kind: local, rule: sgdm, lr: 0.003}], steps: 500, eval_every: 100, networks: [10gbe, wan],
compute: {seconds: 0.001}}"""
ASYNCHRONOUS = """{kind: run, name: late, problem: {kind: quadratic, spectrum: [1, 10]}, workers: 2, seeds: [0],
method: {kind: ddp, rule: sgdm, lr: 0.01, asynchronous: {}}, steps: 200, eval_every: 100, network: 10gbe,
compute: {seconds: 0.001}}"""
SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""

FILES = {"own.yaml": RUN, "both.yaml": COMPARE, "late.yaml": ASYNCHRONOUS, "script.py": SCRIPT}

REAL = ("--device", "cpu")
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", "own.yaml"),
    "compare": ("compare", "both.yaml", "--jobs", "2"),
    "compare in one process": ("compare", "both.yaml", "--jobs", "1"),
    "sweep": ("sweep", "own.yaml", "--grid", "method.lr=1e-3,3e-3,1e-2", "--jobs", "2", "--out", "runs/rates"),
    "launch": ("launch", "own.yaml", *REAL),
    "launch, asynchronous": ("launch", "late.yaml", *REAL),
    "trace": ("trace", "--workers", "2", "--", "script.py"),
    "validate": ("validate", "own.yaml", "--workers", "2", "--cluster", "cluster.yaml", "--repeats", "1",
                 "--set", "steps=40"),
    "calibrate": ("calibrate", "--workers", "2", "--sizes", "4,1MiB,16MiB", "--budget", "20ms", "--window", "100ms",
                  *REAL, "--out", "measured.yaml"),
    "project": ("project",),
    "advise": ("advise", "--model", "llama-7b", "--cluster", "two-sites-a100", "--tokens", "140B", "--extrapolate"),
    "replicate": ("replicate", "tiny.yaml", "--jobs", "2", "--out", "runs/tiny"),
    "report": ("report", "kept/own"),
    "pipeline": ("pipeline",),
}  # fmt: skip

FIRST = ("run", "calibrate")
"""Commands whose results others read."""

SIGNALS = ("SIGINT", "SIGTERM", "SIGTERM to all", "SIGINT twice", "SIGKILL")
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGTERM to all": 143, "SIGINT twice": 130, "SIGKILL": -9}
MARK = "SYNCLINE_CASE"
HANG_S = 600.0
"""After which a command is taken to hang, on any machine."""

GONE_S = 30.0
"""For processes to be gone after the command has ended, on any machine."""


@dataclass(frozen=True)
class Case:
    """A signal to a command.

    Attributes:
        moment: a part of the command's usual duration, from when it begins to listen.
    """

    number: int
    command: str
    sent: str
    moment: float


@dataclass
class Outcome:
    """What came of a case; ``wrong`` has a sentence for each thing that must not be."""

    case: Case
    code: int = 0
    seconds: float = 0.0
    gone_s: float = 0.0
    said: str = ""
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return a line of JSON."""
        return json.dumps(asdict(self))


def case(seed: int, number: int) -> Case:
    """Return a case: the commands in turn, the rest by chance."""
    draws = random.Random(f"{seed}/{number}")
    return Case(number, list(COMMANDS)[number % len(COMMANDS)], draws.choice(SIGNALS), draws.random())


class Place:
    """A folder in which the commands run, with the files that they read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.temporary = folder, Path(tempfile.mkdtemp(prefix="t-"))  # short: it will have sockets
        weakref.finalize(self, shutil.rmtree, self.temporary, ignore_errors=True)
        self.folder.mkdir(parents=True)
        tiny_file(self.folder)
        for name, text in FILES.items():
            (self.folder / name).write_text(text)
        self.mark = uuid.uuid4().hex

    def started(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own."""
        with (self.folder.with_name(f"{self.folder.name}-stderr")).open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "syncline", *COMMANDS[command]], cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True,
                env=os.environ | {"TMPDIR": str(self.temporary), MARK: self.mark},
            )  # fmt: skip

    def stderr(self) -> str:
        """Return what the command wrote to standard error."""
        return self.folder.with_name(f"{self.folder.name}-stderr").read_text(errors="replace")

    def processes(self) -> list[str]:
        """Return the processes that were started here and run."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (path / "environ").read_bytes():
                    found.append(f"{path.name} {(path / 'cmdline').read_bytes().replace(bytes(1), b' ')[:200]!r}")
            except OSError:
                continue
        return found

    def left(self) -> list[str]:
        """Return the files that no documentation names."""
        hidden = [path for path in self.folder.rglob(".*") if not any(p.name.startswith(".") for p in path.parents)]
        temporary = [name for name in os.listdir(self.temporary) if not name.startswith("torchinductor_")]  # torch's
        return [str(path.relative_to(self.folder)) for path in hidden] + temporary


def prepared(place: Place, folder: Path) -> Place:
    """Add what ``report`` and ``validate`` read, which the usual ``run`` and ``calibrate`` have left."""
    shutil.copytree(folder / "usual run" / "runs" / "own", place.folder / "kept" / "own")
    shutil.copy(folder / "usual calibrate" / "measured.yaml", place.folder / "cluster.yaml")
    return place


def usual_s(command: str, folder: Path) -> float:
    """Return the seconds that a command takes that is left alone, from when it listens; measured once for a folder."""
    noted = folder / f"usual {command}-seconds"
    if noted.exists():
        return float(noted.read_text())
    place = Place(folder / f"usual {command}")
    if command not in FIRST:
        prepared(place, folder)
    process = place.started(command)
    await_listening(process)
    begun_s = time.monotonic()
    code = process.wait(HANG_S)
    seconds = time.monotonic() - begun_s
    assert code == 0, (command, place.stderr())
    assert not place.left(), (command, place.left())
    noted.write_text(str(seconds))
    return seconds


def await_listening(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process catches SIGTERM, or ends."""
    bit = 1 << (signal.SIGTERM - 1)
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        if int(status.partition("SigCgt:")[2].split()[0], 16) & bit:
            return
        time.sleep(0.005)


def send(process: subprocess.Popen[bytes], sent: str) -> None:
    """Send as a terminal or a scheduler does."""
    if sent == "SIGKILL":
        process.kill()
    elif sent == "SIGTERM":
        process.terminate()
    else:
        os.killpg(process.pid, signal.SIGTERM if "SIGTERM" in sent else signal.SIGINT)
    if "twice" in sent:
        time.sleep(0.4)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)


def outcome(case: Case, folder: Path) -> Outcome:
    """Run a command, send the signal, and look at what is left."""
    place = prepared(Place(folder / f"case {case.number}"), folder)
    process = place.started(case.command)
    await_listening(process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(case.moment * usual_s(case.command, folder))
    has_ended = process.poll() is not None
    begun_s, result = time.monotonic(), Outcome(case)
    if not has_ended:
        send(process, case.sent)
    try:
        result.code = process.wait(HANG_S)
    except subprocess.TimeoutExpired:
        result.wrong.append("hangs")
        os.killpg(process.pid, signal.SIGKILL)
        result.code = process.wait()
    result.seconds = 0.0 if has_ended else time.monotonic() - begun_s
    begun_s = time.monotonic()
    while place.processes() and time.monotonic() < begun_s + GONE_S:
        time.sleep(0.05)
    result.gone_s = time.monotonic() - begun_s
    result.said = place.stderr()
    result.wrong += [f"is left: {process}" for process in place.processes()]
    _judge(case, place, result)
    return result


def outcomes(folder: Path, cases: Sequence[Case], at_once: int = 1) -> Iterator[Outcome]:
    """Yield the outcomes in order, after the usual duration of each command was measured."""
    for command in FIRST:
        usual_s(command, folder)
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda command: usual_s(command, folder), {one.command for one in cases} - {*FIRST}))
        yield from pool.map(lambda one: outcome(one, folder), cases)


def _judge(case: Case, place: Place, result: Outcome) -> None:
    wrong, lines = result.wrong, [line for line in result.said.splitlines() if line.startswith("interrupted")]
    code = 128 - result.code if result.code in (-signal.SIGINT, -signal.SIGTERM) else result.code  # as a shell tells it
    if code not in (CODES[case.sent], 0):
        wrong.append(f"code {result.code}")
    if re.search(r"^Traceback|^[\w.]*(Error|Exception|Interrupt)\b(:|$)|Exception ignored|leaked", result.said, re.M):
        wrong.append("a traceback")
    if result.code in (130, 143) and len(lines) != 1:
        wrong.append(f"{len(lines)} lines")
    if case.sent == "SIGKILL":
        again = place.started(case.command)
        if again.wait(HANG_S) != 0:
            exists = "does not exist yet" in place.stderr()
            wrong += [] if exists and result.code == 0 else [f"again: {place.stderr()}"]
        return
    named = lines[0] if lines else ""
    wrong += [f"file left: {name}" for name in place.left() if Path(name).name not in named]
    wrong += [text for folder in _results(place) for text in [_unreadable(folder)] if text]


def _results(place: Place) -> list[Path]:
    """Return the folders of results, without those inside another one, such as a sweep's runs."""
    files = [path for name in ("run.json", "sweep.json") for path in (place.folder / "runs").rglob(name)]
    folders = {path.parent for path in files}
    return [folder for folder in folders if not folders & {*folder.parents}]


def _unreadable(folder: Path) -> str:
    """Return why a folder of results cannot be read; nothing if it can."""
    try:
        loaded: Any = sl.load(folder)
        str(loaded), loaded.rows
    except SynclineError as error:
        return f"cannot be read: {error}"
    return ""


def main() -> None:
    """Print the outcome of each case: ``python -m tests.robustness.signals FOLDER SEED FIRST COUNT AT_ONCE``."""
    seed, first, count, at_once = map(int, sys.argv[2:6])
    for result in outcomes(Path(sys.argv[1]), [case(seed, first + i) for i in range(count)], at_once):
        print(result.line(), flush=True)


if __name__ == "__main__":
    main()
