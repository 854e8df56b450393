"""Signals to a process that listens: what ends it, what it says, what it leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from syncline.errors import SpecError
from syncline.interrupts import SIGNALS, end_with_parent, fork_server
from syncline.runs.processes import shared_progress as processes
from syncline.runs.processes.shared_progress import run_stoppable, shared_progress

PATIENCE_S = 120.0
BEGIN = """
import signal, sys, time
from syncline import interrupts
interrupts.LIMIT_S, interrupts.REPEAT_S = {limit_s}, {repeat_s}
def wait_without_safe_points():
    print("ready", flush=True)
    while True:
        time.sleep(0.001)
with interrupts.listen_for_signals():
    {body}
"""


def ended(body: str, *sent: signal.Signals, limit_s: float = 3600.0, repeat_s: float = 3600.0) -> tuple[int, str, str]:
    """Run a process that listens, send it the signals when it says a word, and return its code and its words."""
    program = BEGIN.format(body=body.replace("\n", "\n    "), limit_s=limit_s, repeat_s=repeat_s)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    for number in sent:
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, first + out, err


@pytest.mark.parametrize("number", SIGNALS)
def test_without_a_deferral_a_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    assert ended("wait_without_safe_points()", number) == (128 + number, "ready\n", "interrupted\n")


def test_a_loop_ends_at_its_safe_point() -> None:
    body = """
with interrupts.Deferral():
    print("ready", flush=True)
    try:
        while True:
            interrupts.raise_if_interrupted()
    except KeyboardInterrupt:
        print("kept")
sys.exit(interrupts.exit_code())"""
    assert ended(body, signal.SIGTERM) == (143, "ready\nkept\n", "")
    # GNU timeout signals its child twice; sent by the child, both arrive.
    twice = body.replace(
        "while True", "signal.raise_signal(signal.SIGTERM); signal.raise_signal(signal.SIGTERM)\n        while True"
    )
    assert ended(twice) == (143, "ready\nkept\n", "")


def test_work_without_safe_points_is_abandoned() -> None:
    body = """
with interrupts.Deferral(abandon=lambda: "the rest is in a folder"), interrupts.Deferral(abandon=lambda: 1 / 0):
    wait_without_safe_points()"""
    line = "interrupted; the rest is in a folder\n"
    assert ended(body, signal.SIGTERM, limit_s=0.0) == (143, "ready\n", line)
    # The limit is far, and the second signal has the work abandoned.
    stopped = body.replace("with ", "with interrupts.Deferral(stop=lambda: signal.raise_signal(signal.SIGTERM)), ")
    assert ended(stopped, signal.SIGINT, repeat_s=-1.0) == (130, "ready\n", line)


def test_work_that_begins_after_the_signal_stops_at_once() -> None:
    body = """
with interrupts.Deferral():
    signal.raise_signal(signal.SIGINT)
    while interrupts.exit_code() != 130 or not interrupts._first_signal():
        pass
    interrupts.Deferral(stop=lambda: print("stopped"))"""
    assert ended(body) == (0, "stopped\n", "")


def test_an_interrupt_that_a_callback_from_c_has_lost_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PATIENCE_S", 0.01)
    lost = []

    def step() -> None:
        try:
            while True:
                time.sleep(0.001)
        except KeyboardInterrupt:
            lost.append(1)
            if len(lost) > 1:
                raise

    def training() -> None:
        shared.stop()
        while True:
            step()

    with shared_progress(1) as shared:
        assert run_stoppable(training, shared) is None
    assert len(lost) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own means")
def test_a_process_ends_with_its_parent() -> None:
    read, write = os.pipe()
    parent = os.fork()
    if not parent:
        if not os.fork():
            end_with_parent(os.getppid())
            os.write(write, b"x")
            time.sleep(3600)
        time.sleep(3600)
        os._exit(1)
    os.close(write)
    assert os.read(read, 1) == b"x"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert os.read(read, 1) == b""  # whoever could write is gone
    os.close(read)


def test_a_command_that_is_interrupted_says_so_in_one_line(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        error = KeyboardInterrupt()
        error.add_note("what was finished until then is in a folder")
        raise error

    monkeypatch.setattr("syncline.api.projection.project_all", interrupt)
    done = command("project")
    assert (done.code, done.out) == (130, "")
    assert done.err == "interrupted; what was finished until then is in a folder\n"


def test_a_temporary_folder_with_a_long_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's path has few bytes; multiprocessing would end in a traceback."""
    monkeypatch.setattr("multiprocessing.util.get_temp_dir", lambda: f"/{'x' * 120}/pymp-12345678")
    with pytest.raises(SpecError, match=r"TMPDIR: got '/x+'; expected a folder whose path has at most 75 bytes"):
        fork_server([])
