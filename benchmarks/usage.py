"""Run a command, and write the CPU seconds, the most memory and the exit code of its processes to a file.

    python -S benchmarks/usage.py FILE CPU_LIMIT_S COMMAND ARGUMENT...

The most memory of a process counts from its fork, so that a command which a large process starts seems to need the
memory of that process. This script needs few MiB, and counts for a command instead of the process that measures.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys


def main(file: str, cpu_limit_s: int, command: list[str]) -> None:
    """Run a command to its end; a SIGTERM is passed on to it."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s + 1))
    pid = os.posix_spawn(command[0], command, os.environ)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    _, status, used = os.wait4(pid, 0)
    measured = {
        "cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024,
        "exit_code": os.waitstatus_to_exitcode(status),
    }  # fmt: skip
    with open(file, "w") as report:
        json.dump(measured, report)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
