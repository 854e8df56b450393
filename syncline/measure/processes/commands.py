"""Commands that run side by side as one: the first that fails ends the others, as does their parent's end. No torch."""

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
"""Seldom enough to leave the cores to what is measured."""

LAST_WORDS_S = 1.0
"""How long the others may go on when one has failed: who lost a peer fails too, and the first one's words count."""


def run_commands(
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    timeout_s: float,
    on_poll: Callable[[Sequence[int]], object] | None = None,
    options: Sequence[Mapping[str, Any]] | None = None,
) -> list[int]:
    """Run commands at once; one that fails, or the time's end, ends the others.

    Args:
        commands: one for each process.
        environments: likewise.
        timeout_s: for all of them.
        on_poll: told the processes' numbers a few times per second.
        options: others of ``Popen``, for each process.

    Returns:
        The exit codes; negative of those that a signal ended.
    """
    started: list[subprocess.Popen[Any]] = []
    try:
        for command, environment, more in zip(commands, environments, options or [{}] * len(commands), strict=True):
            alone: dict[str, Any] = {"start_new_session": True, "preexec_fn": partial(end_with_parent, os.getpid())}
            started.append(subprocess.Popen(command, env=dict(environment), **alone, **more))
        end_s = time.monotonic() + timeout_s
        while any(one.poll() is None for one in started):
            raise_if_interrupted()
            if any(one.poll() for one in started) or time.monotonic() > end_s:
                time.sleep(LAST_WORDS_S)
                break
            if on_poll is not None:
                on_poll([one.pid for one in started])
            time.sleep(POLL_S)
    finally:
        for one in started:
            end(one)
    return [one.returncode for one in started]


def end(process: subprocess.Popen[Any]) -> None:
    """End a process and what it has started."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
