"""A signal ends a command soon and in one line, whenever it comes; no process and no file stays."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.robustness.signals import COMMANDS, HANG_S, MARK, Place, case, outcomes

SEED = int(os.environ.get("SYNCLINE_SEED", "0"))
SIGNALS_EACH = 3
"""Signals to each command; ``python -m tests.robustness.signals`` sends any number."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all cases of this session, in which a command's usual duration is measured once."""
    path = tmp_path_factory.getbasetemp() / "signals"
    path.mkdir(exist_ok=True)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_random_signal_to_a_command_at_a_random_moment(command: str, folder: Path) -> None:
    first = list(COMMANDS).index(command)  # cases take the commands in turn
    cases = [case(SEED, first + len(COMMANDS) * turn) for turn in range(SIGNALS_EACH)]
    assert {one.command for one in cases} == {command}
    wrong = [result.line() for result in outcomes(folder, cases) if result.wrong]
    assert not wrong, "\n".join(wrong)


def begun(place: Place, command: str, is_ready: Callable[[Place], bool]) -> subprocess.Popen[bytes]:
    """Start a command and wait until it is so far."""
    process, until_s = place.started(command), time.monotonic() + HANG_S
    while not is_ready(place) and process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.01)
    return process


def await_none(place: Place) -> None:
    """Wait until no process is left."""
    until_s = time.monotonic() + HANG_S
    while place.processes() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not place.processes()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["launch", "launch, asynchronous"])
def test_ctrl_c_while_processes_start_is_one_line(command: str, tmp_path: Path) -> None:
    for attempt in range(5):  # on a busy machine the signal comes late, and the ranks train already
        place = Place(tmp_path / f"here {attempt}")
        process = begun(place, command, lambda here: "forkserver" in "".join(here.processes()))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(HANG_S) == 130, place.stderr()
        lines = [line for line in place.stderr().splitlines() if "warning: " not in line and "% after" not in line]
        await_none(place)
        if lines == ["interrupted"]:
            break
    assert lines == ["interrupted"], "\n".join(lines)
    assert not place.left() and not os.listdir(place.folder / "runs")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [3, 5])  # the tracker and the server are two
def test_a_sweep_that_is_killed_leaves_no_process(processes: int, tmp_path: Path) -> None:
    place = Place(tmp_path / "here")
    process = begun(place, "sweep", lambda here: len(here.processes()) > processes)
    process.kill()
    process.wait()
    await_none(place)


@pytest.mark.slow
def test_an_interrupted_trace_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "here")
    process = begun(place, "trace", lambda here: any(here.folder.rglob(".*.partial-*")))
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(HANG_S) == 130
    assert place.stderr() == "interrupted\n"
    await_none(place)
    assert not place.left() and not os.listdir(place.folder / "runs")


def test_processes_are_found_by_their_mark(tmp_path: Path) -> None:
    place = Place(tmp_path / "here")
    child = subprocess.Popen(["sleep", "3600"], env=os.environ | {MARK: place.mark})
    try:
        while not place.processes():
            pass
        assert [text.split()[0] for text in place.processes()] == [str(child.pid)]
    finally:
        child.kill()
        child.wait()
    assert not place.processes()
