"""Whole trainings by Syncline and by EXO Gym: CPU seconds of all processes of a command, with imports.

    python -m benchmarks.peers --exogym FOLDER [--steps 200] [--methods ddp-adam,diloco,demo] [--json]

FOLDER has the package ``exogym`` and what it imports beside torch:

    git clone https://github.com/exo-explore/gym FOLDER
    pip install --no-deps --target FOLDER einops tqdm psutil

Four workers train an MLP of 0.13, 1 and 10 million parameters on images of 64 numbers, in batches of 32; Syncline's
command also computes the clock on 10 Gbit/s Ethernet and writes its result folder. Each command runs once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import parser_of, show
from benchmarks.training import METHODS

USAGE, EXOGYM = (str(Path(__file__).with_name(name)) for name in ("usage.py", "peer_exogym.py"))
LIMIT_S, WORKERS = 300, 4
RELUS = (1792, 13_312, 133_333)


class Row(NamedTuple):
    """CPU seconds of two commands that train the same model by the same method."""

    method: str
    parameters: int
    syncline_s: float
    exogym_s: float


def command_cpu_s(command: Sequence[str], folder: Path, packages: str | None = None) -> float:
    """Return the CPU seconds of a Python command in a folder, and of the processes that it waits for."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if packages is not None:
        environment["PYTHONPATH"] = packages
    subprocess.run(
        [sys.executable, "-S", USAGE, "usage.json", str(LIMIT_S), sys.executable, *command],
        cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    used = json.loads((folder / "usage.json").read_text())
    if used["exit_code"]:
        raise SystemExit(f"{' '.join(command)}: exit code {used['exit_code']}")
    return float(used["cpu_s"])


def measure(packages: str, methods: Sequence[str], steps: int) -> Iterator[Row]:
    """Yield a row for each method and size."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for method in methods:
            for relus in RELUS:
                spec = {
                    "kind": "run", "name": "peer", "problem": {"kind": "digits", "hidden": relus}, "workers": WORKERS,
                    "steps": steps, "method": METHODS[method], "network": "10gbe", "compute": {"seconds": "1 ms"},
                }  # fmt: skip
                (folder / "peer.yaml").write_text(json.dumps(spec), encoding="utf-8")
                syncline_s = command_cpu_s(
                    ["-m", "syncline", "run", "peer.yaml", "--json", "--out", f"{method}-{relus}"], folder
                )
                arguments = [method, *map(str, (relus, steps, WORKERS))]
                exogym_s = command_cpu_s([EXOGYM, *arguments], folder, packages)
                row = Row(method, 75 * relus + 10, syncline_s, exogym_s)
                print(row, file=sys.stderr, flush=True)
                yield row


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    lines = ["| method | parameters | Syncline, s of CPU | EXO Gym, s of CPU | ratio |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = row.exogym_s / row.syncline_s
        lines.append(f"| {row.method} | {row.parameters:,} | {row.syncline_s:.1f} | {row.exogym_s:.1f} | {ratio:.1f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of("benchmarks.peers", __doc__)
    parser.add_argument("--exogym", required=True, metavar="FOLDER", help="a clone of github.com/exo-explore/gym")
    parser.add_argument("--steps", type=int, default=200, help="of each training")
    parser.add_argument("--methods", default="ddp-adam,diloco,demo", help="with commas between")
    options = parser.parse_args(arguments)
    if not (Path(options.exogym) / "exogym" / "trainer.py").is_file():
        parser.error(f"--exogym: got {options.exogym}; expected a clone of https://github.com/exo-explore/gym")
    show(
        list(measure(str(Path(options.exogym).resolve()), options.methods.split(","), options.steps)),
        table,
        options.json,
    )


if __name__ == "__main__":
    main()
