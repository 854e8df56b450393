"""Copies of a process that has computed with several threads compute, too, and leave alone what is their parent's."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time

import pytest
import torch

from syncline.measure.recording.rank_processes import fork_process, set_up_child
from syncline.measure.recording.ranks import end_as_python_does


@pytest.mark.parametrize("again", [1, 3])
def test_a_copy_of_a_process_with_threads_computes(again: int) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    values = torch.ones(1 << 20)
    try:
        for _ in range(again):
            total = float((values + 1).sum())
            pid = fork_process()
            if not pid:
                signal.alarm(60)  # else it would wait for the threads of its parent for ever
                os._exit(float((values + 1).sum()) != total)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        torch.set_num_threads(threads)


class Client:
    """An object in a reference cycle; its finalizer ends a process that did not create it."""

    def __init__(self) -> None:
        self.itself, self.pid = self, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.pid:
            os._exit(9)


def test_a_copy_finalizes_its_own_garbage_alone() -> None:
    gc.disable()
    try:
        Client()
        pid = fork_process()
        if not pid:
            gc.enable()
            client = Client()
            client.pid = 0
            del client
            os._exit(3 if gc.collect() else 4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9  # that of its own
        pid = fork_process()
        if not pid:
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("daemon", [True, False])
def test_the_end_of_a_copy_leaves_the_processes_of_its_parent(daemon: bool) -> None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=daemon)
    process.start()
    try:
        pid = fork_process()
        if not pid:
            set_up_child()
            try:
                end_as_python_does()  # joins and ends the children of multiprocessing
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        time.sleep(0.05)
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
