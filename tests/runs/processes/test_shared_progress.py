from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

from syncline.errors import SynclineError
from syncline.interrupts import children_without_signals
from syncline.runs.processes.shared_progress import run_stoppable, shared_progress, side_by_side


def test_what_one_process_reports_another_one_reads():
    with shared_progress(3) as here:
        there = pickle.loads(pickle.dumps(here))
        there.report(1, 7)
        there.reporter(2)(9)
        assert here.steps_done() == [0, 7, 9]


def test_the_first_interrupt_asks_to_stop_and_the_second_interrupts():
    before = signal.getsignal(signal.SIGINT)
    with shared_progress(2) as shared:
        shared.report(0, 1)
        os.kill(os.getpid(), signal.SIGINT)
        assert shared.stopped
        with pytest.raises(KeyboardInterrupt):
            shared.report(1, 5)
        assert shared.steps_done() == [1, 5]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_an_interrupt_waits_for_the_children_to_start_and_never_reaches_them():
    wait = [sys.executable, "-c", "print('up', flush=True); input()"]
    with shared_progress(1) as shared:
        with children_without_signals():
            child = subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            # To this thread: of the process's others, whatever started them, some may take signals.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            assert not shared.stopped
        assert shared.stopped
    assert child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGINT)
    child.communicate("go on\n", timeout=30)
    assert child.returncode == 0


def test_a_step_that_is_long_is_interrupted_after_a_stop():
    def long_step():
        begun.set()
        until = time.monotonic() + 600
        while time.monotonic() < until:
            time.sleep(0.01)

    def press():
        begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    begun = threading.Event()
    threading.Thread(target=press).start()
    with shared_progress(1) as shared:
        assert run_stoppable(long_step, shared) is None
        assert shared.stopped


def test_a_training_that_has_heard_of_the_stop_is_left_alone():
    def training():
        shared.stop()
        with pytest.raises(KeyboardInterrupt):
            shared.report(0, 7)
        return "what it has"

    with shared_progress(1) as shared:
        assert run_stoppable(training, shared) == "what it has"
        assert shared.has_seen_stop
        assert run_stoppable(training, shared) is None  # one that has not begun


def test_of_calls_side_by_side_those_with_nothing_are_left_out_and_a_mistake_stops_the_others():
    with shared_progress(2) as shared:
        assert list(side_by_side([lambda: 1, lambda: None, lambda: 3], 1, shared)) == [1, 3]
        with pytest.raises(SynclineError, match="nothing"):
            list(side_by_side([_refuse], 1, shared))
        assert shared.stopped


def _refuse():
    raise SynclineError("nothing")


def test_a_process_that_is_ended_from_outside_is_told_in_one_line():
    with shared_progress(2) as shared, pytest.raises(SynclineError, match="process was killed"):
        list(side_by_side([_die, _die], 2, shared))


def _die():
    os.kill(os.getpid(), signal.SIGKILL)
