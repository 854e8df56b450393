"""Where the processes of a group run: on this machine, or wherever else the same protocol puts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from typing_extensions import override

from syncline.costmodel import Link, Network
from syncline.costmodel.collectives.gloo.wire import ETHERNET_MSS
from syncline.errors import SynclineError
from syncline.measure.processes.commands import run_commands
from syncline.measure.processes.rendezvous import LOOPBACK, host_store


class Hosts(Protocol):
    """Hosts that are joined by a network."""

    def links(self, networks: Sequence[Network]) -> list[Link]:
        """The links that there are, of those that are asked for, as the cost model sees them.

        Raises:
            SpecError: a network that hosts like these cannot have.
        """
        ...

    def segment_bytes(self, link: Link) -> int:
        """The most payload that the hosts' devices count as one packet."""
        ...

    def run(self, link: Link, workers: int, arguments: Sequence[str], timeout_s: float) -> None:
        """Run Python with these arguments on so many hosts, one process each, with torchrun's environment.

        Raises:
            SynclineError: a process that failed, or the time's end.
        """
        ...


class LocalHosts(Hosts):
    """Processes of this machine, joined by its loopback device, whose link is found by calibration.

    Args:
        link: what the cost model takes for it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def links(self, networks: Sequence[Network]) -> list[Link]:
        """The one that there is, whatever is asked for."""
        return [self._link]

    def segment_bytes(self, link: Link) -> int:
        """The loopback device is every process's, so that nobody's bytes are told by it."""
        return ETHERNET_MSS

    @override
    def run(self, link: Link, workers: int, arguments: Sequence[str], timeout_s: float) -> None:
        store = host_store()  # asked for a free port; the group's own store takes it over
        port = store.port
        del store
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
    """Run commands side by side, and say what went wrong.

    Args:
        commands: one for each process.
        environments: likewise.
        timeout_s: for all of them.
        on_poll: see `run_commands`.

    Raises:
        SynclineError: which process failed, with the last line that it said, or which was not through in time.
    """
    with ExitStack() as stack:
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in commands]
        options = [{"stdin": subprocess.DEVNULL, "stderr": file} for file in said]
        codes = run_commands(commands, environments, timeout_s, on_poll, options)
        # Those that were ended from here count last: by SIGTERM, and by SIGKILL if they did not hear it.
        ranks = [rank for rank, code in enumerate(codes) if code]
        failed = sorted(ranks, key=lambda rank: (codes[rank] == -signal.SIGTERM, codes[rank] < 0, rank))
        if not failed:
            return
        said[failed[0]].seek(0)
        lines = said[failed[0]].read().decode(errors="replace").strip().splitlines()
    if codes[failed[0]] == -signal.SIGTERM and not lines:
        raise SynclineError(f"rank {failed[0]} was not through after {timeout_s:g} s")
    raise SynclineError(f"rank {failed[0]} failed: {lines[-1] if lines else f'exit code {codes[failed[0]]}'}")
