"""Run a script under torchrun, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

TORCHRUN = ("torchrun", "--standalone", "--local-addr", "127.0.0.1")

# torch 2.13: a program with torch.optim and gloo now and then aborts while the interpreter shuts down, Syncline or not
# (6 of 20 runs of a plain loop with torch.optim.SGD), and torchrun then ends the other processes.
ABORT_AT_EXIT = "terminate called without an active exception"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The finished process; a run that torch aborted at exit is run again, a few times."""
    # gloo binds the interface of the host's name, which a container may not know.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    for _ in range(6):
        if command[0] == "torchrun":
            done = _torchrun(command, environment, cwd)
        else:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, cwd=cwd, check=False, timeout=120
            )
        if ABORT_AT_EXIT not in done.stderr:
            break
    return done


def _torchrun(command: tuple[str, ...], environment: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Torchrun itself in a process that has loaded torch already; what it starts are new interpreters."""
    with TemporaryDirectory() as told:
        launcher = get_context("forkserver").Process(target=_launch, args=(command[1:], environment, cwd, told))
        launcher.start()
        launcher.join(120)
        if launcher.is_alive():
            launcher.terminate()  # and torchrun its workers
            launcher.join()
            raise subprocess.TimeoutExpired(command, 120)
        out, err = (Path(told, name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(command, launcher.exitcode or 0, out, err)


def _launch(arguments: tuple[str, ...], environment: dict[str, str], cwd: Path, told: str) -> None:
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{told}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["torchrun", *arguments]
    from torch.distributed.run import main

    main()
