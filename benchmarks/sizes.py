"""CPU seconds and memory of commands against the number of GPUs, each in a process of its own.

    python -m benchmarks.sizes [--only advise,collectives] [--workers 64,4096,100000] [--json]

A command's CPU seconds are those of its process, without the seconds of `syncline project` with one small model, which
the row `start-up` has. Its memory is the most that the process held at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.command import parser_of, show

START_UP = "project --model gpt-160m --method ddp-adam --workers 2 --network 10gbe"

BATCH = "--batch-tokens {tokens} --tokens 15T --sequence 4096 --extrapolate"

COMMANDS = {
    "advise, nodes": f"advise --model llama-7b --network dgx-h100 --hardware h100 --workers {{workers}} {BATCH}",
    "advise, one link": f"advise --model llama-7b --network 10gbe --hardware h100 --workers {{workers}} {BATCH}",
    "advise, two sites": f"advise --model llama-7b --network two-sites --hardware h100 --workers {{workers}} {BATCH}",
    "project, nodes": (
        "project --model llama-7b --network dgx-h100 --workers {workers} --method ddp-adam,diloco,demo --overlap ddp "
        "--algorithm auto"
    ),
    "project, two sites": (
        "project --model llama-7b --network two-sites --workers {workers} --method ddp-adam,diloco,demo"
    ),
    "collectives, one link": "collectives --collective all_reduce --network 10gbe --workers {workers}",
    "collectives, nodes": "collectives --collective all_reduce --network dgx-h100 --workers {workers}",
}
"""Commands by the name of their rows; a worker's batch is one sequence."""


class Row(NamedTuple):
    """What a command took for a number of workers; ``rows`` are the rows of its answer."""

    command: str
    workers: int
    cpu_s: float
    peak_mib: float
    rows: int


def measured(name: str, command: str, workers: int, start_up_s: float = 0.0) -> Row:
    """Return the row of a command, which runs once."""
    words = command.format(workers=workers, tokens=4096 * workers).split()
    process = subprocess.Popen([sys.executable, "-m", "syncline", *words, "--json"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    rows = len(json.loads(process.stdout.read() or b'{"rows": []}')["rows"])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command}: exit code {os.waitstatus_to_exitcode(status)}")
    return Row(name, workers, used.ru_utime + used.ru_stime - start_up_s, used.ru_maxrss / 1024, rows)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    lines = ["| command | GPUs | CPU seconds | most memory, MiB | rows of the answer |", "|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.command} | {row.workers:,} | {row.cpu_s:.2f} | {row.peak_mib:.0f} | {row.rows} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of("benchmarks.sizes", __doc__)
    parser.add_argument("--only", default="", help="commands, with commas between: advise,collectives")
    parser.add_argument("--workers", default="64,4096,100000", help="numbers of GPUs, with commas between")
    options = parser.parse_args(arguments)
    start_up = measured("start-up", START_UP, 2)
    chosen = {name: command for name, command in COMMANDS.items() if name.startswith(tuple(options.only.split(",")))}
    counts = [int(count) for count in options.workers.split(",")]
    rows = [measured(name, command, workers, start_up.cpu_s) for name, command in chosen.items() for workers in counts]
    show([start_up, *rows], table, options.json)


if __name__ == "__main__":
    main()
