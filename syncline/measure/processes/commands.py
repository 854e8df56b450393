"""Commands that run in parallel. The first command that fails ends the others, and so does the parent's end.

This module does not import torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from syncline.interrupts import end_with_parent, raise_if_interrupted

POLL_S = 0.25
"""Seconds between two polls; polling is rare so that it takes no CPU time from the measured commands."""

LAST_WORDS_S = 1.0
"""Seconds that the other commands may go on after the first failure, so that they report a lost peer by themselves."""


def run_commands(
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    timeout_s: float,
    on_poll: Callable[[Sequence[int]], object] | None = None,
    options: Sequence[Mapping[str, Any]] | None = None,
) -> list[int]:
    """Run commands in parallel; if a command fails or the time is over, end the others.

    Args:
        timeout_s: seconds for all commands together.
        on_poll: called with the processes' ids a few times per second.
        options: further arguments of ``Popen`` for each process.

    Returns:
        The exit codes; negative for a process that a signal ended.
    """
    started: list[subprocess.Popen[Any]] = []
    try:
        for command, environment, extra in zip(commands, environments, options or [{}] * len(commands), strict=True):
            session: dict[str, Any] = {"start_new_session": True, "preexec_fn": partial(end_with_parent, os.getpid())}
            started.append(subprocess.Popen(command, env=dict(environment), **session, **extra))
        end_s = time.monotonic() + timeout_s
        while any(process.poll() is None for process in started):
            raise_if_interrupted()
            if any(process.poll() for process in started) or time.monotonic() > end_s:
                time.sleep(LAST_WORDS_S)
                break
            if on_poll is not None:
                on_poll([process.pid for process in started])
            time.sleep(POLL_S)
    finally:
        for process in started:
            end(process)
    return [process.returncode for process in started]


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and the processes that it has started."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
