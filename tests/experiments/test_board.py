from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading

import pytest

from syncline.experiments.board import board, uninterrupted_children


def test_what_one_process_reports_another_one_reads():
    with board(3) as here:
        there = pickle.loads(pickle.dumps(here))
        there.report(1, 7)
        there.reporter(2)(9)
        assert here.steps_done() == [0, 7, 9]


def test_the_first_interrupt_asks_to_stop_and_the_second_interrupts():
    before = signal.getsignal(signal.SIGINT)
    with board(2) as shared:
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
    with board(1) as shared:
        with uninterrupted_children():
            child = subprocess.Popen(wait, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            # To this thread: of the process's others, whatever started them, some may take signals.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            assert not shared.stopped
        assert shared.stopped
    assert child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGINT)
    child.communicate("go on\n", timeout=30)
    assert child.returncode == 0
