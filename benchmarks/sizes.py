"""CPU seconds and memory of commands against the size of what is asked, each in a process of its own.

    python -m benchmarks.sizes [--only advise,collectives] [--json]

A command's CPU seconds are those of its process, with its start, and of the processes that it has started and waited
for (ranks of `trace`), so the row of the smallest size has little else than the start. Its memory is the most that one
of these processes held at once. `per size` is what a GPU, a run, a rank or a client more takes: the difference to the
row before, over the difference of the sizes.

A command of which a process takes more than 60 CPU seconds is ended; its row says so.

Sweeps are of runs of 5 steps, so that what is measured is all beside the trainings; *again* is the same sweep
when all runs are finished. Dask's workers are processes of this machine. The clients of `explore` ask the server for
the picture of settings of their own, all at once.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import parser_of, show
from benchmarks.sweep import FIELDS, RATES, cpu_s

BATCH = "--batch-tokens {tokens} --tokens 15T --sequence 4096 --extrapolate"
SWEEP = f"sweep short.yaml --grid method.lr={','.join(map(str, RATES))} --jobs 1 --json"
TRACED, USAGE = Path(__file__).with_name("traced.py"), Path(__file__).with_name("usage.py")
LIMIT_S = 60
GPUS, RUNS, RANKS = (64, 4096, 100_000), (20, 100, 500, 2000), (4, 16, 64)


class Question(NamedTuple):
    """A command with names of what its size gives it, and the sizes."""

    command: str
    sizes: Sequence[int]
    dask: bool = False


QUESTIONS = {
    "project, one small model": Question("project --model gpt-160m --method ddp-adam --workers {size} --json", (2,)),
    "advise, nodes, GPUs": Question(
        f"advise --model llama-7b --network dgx-h100 --hardware h100 --workers {{size}} {BATCH} --json", GPUS
    ),
    "advise, one link, GPUs": Question(
        f"advise --model llama-7b --network 10gbe --hardware h100 --workers {{size}} {BATCH} --json", GPUS
    ),
    "advise, two sites, GPUs": Question(
        f"advise --model llama-7b --network two-sites --hardware h100 --workers {{size}} {BATCH} --json", GPUS
    ),
    "project, nodes, GPUs": Question(
        "project --model llama-7b --network dgx-h100 --workers {size} --method ddp-adam,diloco,demo --overlap ddp "
        "--algorithm auto --json", GPUS,
    ),
    "project, two sites, GPUs": Question(
        "project --model llama-7b --network two-sites --workers {size} --method ddp-adam,diloco,demo --json", GPUS
    ),
    "collectives, one link, GPUs": Question(
        "collectives --collective all_reduce --network 10gbe --workers {size} --json", GPUS
    ),
    "collectives, nodes, GPUs": Question(
        "collectives --collective all_reduce --network dgx-h100 --workers {size} --json", GPUS
    ),
    "sweep, runs": Question(f"{SWEEP} --seeds {{seeds}} --out sweep-{{size}}", RUNS),
    "sweep again, runs": Question(f"{SWEEP} --seeds {{seeds}} --out sweep-{{size}}", RUNS),
    "report, runs of a sweep": Question("report sweep-{size} --out sweep-{size}.html", RUNS),
    "sweep of 200 runs, dask workers": Question(
        f"{SWEEP} --seeds 50 --out dask-{{size}} --dask {{address}}", (1, 2), dask=True
    ),
    "trace, ranks": Question(
        f"trace --workers {{size}} --network 10gbe --json --out trace-{{size}} -- {TRACED} collectives cpu_s.json 1",
        RANKS,
    ),
    "explore, clients": Question("explore", (1, 10, 50)),
}  # fmt: skip
"""Commands by the name of their rows; a worker's batch is one sequence. Reports are of the sweeps before them."""


class Row(NamedTuple):
    """What a command took for a size, until its end or the limit.

    Attributes:
        command: name of the command and of its size.
        rows: rows of the answer, where there are any.
        workers_s: CPU seconds of dask's workers.
        is_ended: whether the limit ended it.
    """

    command: str
    size: int
    cpu_s: float
    peak_mib: float
    rows: int | None = None
    workers_s: float | None = None
    is_ended: bool = False


def ask_server(process: subprocess.Popen[bytes], clients: int) -> None:
    """Ask a server for the pictures of as many settings at once, then end it."""
    assert process.stderr is not None
    address = process.stderr.readline().split()[0].decode().rstrip("/")

    def ask(client: int) -> int:
        with urllib.request.urlopen(f"{address}/picture.svg?workers={8 * (1 + client)}", timeout=300) as answer:
            return len(answer.read())

    try:
        with ThreadPoolExecutor(clients) as threads:
            assert all(threads.map(ask, range(clients)))
    finally:
        process.terminate()


def measured(name: str, question: Question, size: int, folder: Path) -> Row:
    """Return the row of a command, which runs once in a folder."""
    from distributed import LocalCluster

    is_server = question.command == "explore"
    cluster = LocalCluster(size, threads_per_worker=1, dashboard_address=":0") if question.dask else nullcontext()
    with cluster as found:
        words = question.command.format(
            size=size, tokens=4096 * size, seeds=size // len(RATES), address=getattr(found, "scheduler_address", ""),
        )  # fmt: skip
        before_s = cpu_s()
        process = subprocess.Popen(
            [sys.executable, "-S", USAGE, "usage.json", str(LIMIT_S), sys.executable, "-m", "syncline", *words.split()],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE if is_server else subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None
        if is_server:
            ask_server(process, size)
        said = process.stdout.read()
        process.wait()
        workers_s = cpu_s() - before_s if question.dask else None
    used = json.loads((folder / "usage.json").read_text())
    is_ended = used["exit_code"] == -signal.SIGXCPU
    if used["exit_code"] and not (is_server or is_ended):
        raise SystemExit(f"{name}, {size}: exit code {used['exit_code']}")
    rows = len(json.loads(said)["rows"]) if said.startswith(b"{") else None
    return Row(name, size, used["cpu_s"], used["peak_mib"], rows, workers_s, is_ended)


def measure(only: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of commands whose names begin with one of ``only``."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "short.yaml").write_text(json.dumps(FIELDS), encoding="utf-8")
        for name, question in QUESTIONS.items():
            if name.startswith(tuple(only)):
                for size in question.sizes:
                    row = measured(name, question, size, folder)
                    print(row, file=sys.stderr, flush=True)
                    yield row


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    lines = [
        "| command | size | CPU seconds | ms per size | most memory, MiB | rows of the answer |",
        "|---|---|---|---|---|---|",
    ]
    for i, row in enumerate(rows):
        before = rows[i - 1] if i and rows[i - 1].command == row.command and row.workers_s is None else None
        per_size = "" if before is None else f"{1e3 * (row.cpu_s - before.cpu_s) / (row.size - before.size):.2g}"
        cpu = (
            f"{'> ' * row.is_ended}{row.cpu_s:.2f}"
            if row.workers_s is None
            else f"{row.cpu_s:.2f}, workers {row.workers_s:.2f}"
        )
        count = "" if row.rows is None else row.rows
        lines.append(f"| {row.command} | {row.size:,} | {cpu} | {per_size} | {row.peak_mib:.0f} | {count} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of("benchmarks.sizes", __doc__)
    parser.add_argument("--only", default="", help="commands, with commas between: advise,collectives")
    options = parser.parse_args(arguments)
    show(list(measure(options.only.split(","))), table, options.json)


if __name__ == "__main__":
    main()
