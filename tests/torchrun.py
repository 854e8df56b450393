"""Run a script under torchrun, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1")

# torch 2.13: a program with torch.optim and gloo now and then aborts while the interpreter shuts down, Syncline or not
# (6 of 20 runs of a plain loop with torch.optim.SGD), and torchrun then ends the other processes.
ABORT_AT_EXIT = "terminate called without an active exception"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The finished process; a run that torch aborted at exit is run again, a few times."""
    # gloo binds the interface of the host's name, which a container may not know.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    for _ in range(6):
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=cwd, check=False, timeout=120
        )
        if ABORT_AT_EXIT not in done.stderr:
            break
    return done
