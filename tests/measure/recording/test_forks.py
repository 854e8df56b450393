"""Copies of a process that has computed with several threads compute, too."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from syncline.measure.recording.forks import fork_process


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
