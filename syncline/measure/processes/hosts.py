"""The hosts on which the processes of a group run, this machine or others, and commands that run on them in parallel.

The first command that fails ends the others, and so does the end of the parent process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Protocol

from typing_extensions import override

from syncline.costmodel import Link, Network
from syncline.costmodel.collectives.gloo import ETHERNET_MSS
from syncline.errors import SynclineError
from syncline.interrupts import end_with_parent, raise_if_interrupted
from syncline.measure.processes.rendezvous import LOOPBACK, open_listener

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
    if options is None:
        options = [{} for _ in commands]
    session: dict[str, Any] = {"start_new_session": True, "preexec_fn": partial(end_with_parent, os.getpid())}
    processes: list[subprocess.Popen[Any]] = []
    try:
        for command, environment, process_options in zip(commands, environments, options, strict=True):
            processes.append(subprocess.Popen(command, env=dict(environment), **session, **process_options))
        deadline_s = time.monotonic() + timeout_s
        while any(process.poll() is None for process in processes):  # None while a process runs
            raise_if_interrupted()
            has_failed = any(process.poll() for process in processes)
            if has_failed or time.monotonic() > deadline_s:
                time.sleep(LAST_WORDS_S)
                break
            if on_poll is not None:
                on_poll([process.pid for process in processes])
            time.sleep(POLL_S)
    finally:
        for process in processes:
            end_process(process)
    return [process.returncode for process in processes]


def end_process(process: subprocess.Popen[Any]) -> None:
    """End a process and the processes that it has started."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3.0)  # after SIGTERM, time to clean up


class Hosts(Protocol):
    """A set of hosts that a network connects."""

    def links(self, networks: Sequence[Network]) -> list[Link]:
        """Return the available links among the requested networks, as the cost model describes them."""
        ...

    def segment_bytes(self, link: Link) -> int:
        """Return the largest payload in bytes that the hosts' network devices count as one packet."""
        ...

    def run(self, link: Link, workers: int, arguments: Sequence[str], timeout_s: float) -> None:
        """Run Python with the arguments as one process on each of ``workers`` hosts, with torchrun's environment."""
        ...


class LocalHosts(Hosts):
    """Processes of this machine, connected by its loopback device, which ``link`` describes for the cost model."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def links(self, networks: Sequence[Network]) -> list[Link]:
        """Return the link of the loopback device, whatever the requested networks are."""
        return [self._link]

    def segment_bytes(self, link: Link) -> int:
        """Return the segment size of Ethernet, which has no effect because bytes on loopback are not counted."""
        return ETHERNET_MSS

    @override
    def run(self, link: Link, workers: int, arguments: Sequence[str], timeout_s: float) -> None:
        """Run ``python ARGUMENTS`` as ``workers`` ranks on this machine, which has a single link."""
        with open_listener(port=0) as listener:  # any free port, which the ranks need in their environment
            _, port = listener.getsockname()
        environments = [
            os.environ | {
                "RANK": str(rank), "WORLD_SIZE": str(workers), "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(workers), "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR",
            }
            for rank in range(workers)
        ]  # fmt: skip
        run_together([[sys.executable, *arguments]] * workers, environments, timeout_s)


def run_together(
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    timeout_s: float,
    on_poll: Callable[[Sequence[int]], object] | None = None,
) -> None:
    """Run commands in parallel with `run_commands`, and raise an error that names the process that failed first."""
    with ExitStack() as stack:
        stderr_files = [stack.enter_context(tempfile.TemporaryFile()) for _ in commands]
        options = [{"stdin": subprocess.DEVNULL, "stderr": file} for file in stderr_files]
        codes = run_commands(commands, environments, timeout_s, on_poll, options)
        failed = [rank for rank, code in enumerate(codes) if code]
        if not failed:
            return

        # A process that failed by itself precedes those that `end_process` or another signal has ended.
        first = min(failed, key=lambda rank: (codes[rank] == -signal.SIGTERM, codes[rank] < 0, rank))
        stderr_files[first].seek(0)
        lines = stderr_files[first].read().decode(errors="replace").strip().splitlines()
    if codes[first] == -signal.SIGTERM and not lines:  # no process failed by itself
        raise SynclineError(f"rank {first} had not finished after {timeout_s:g} s")
    raise SynclineError(f"rank {first} failed: {lines[-1] if lines else f'exit code {codes[first]}'}")
