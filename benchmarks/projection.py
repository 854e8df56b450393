"""How many rows a projection gives per second, how soon it answers, and what a million configurations take."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.command import cpu_s, parser_of, show

SYNCLINE = str(Path(sys.executable).with_name("syncline"))
METHODS = ["ddp-adam", "mt-dao", "diloco", "demo", "curvadion", "lion-cub-1bit", "local-adam", "des-loc"]
MODELS = ["gpt-160m", "olmo-1b", "mt-dao-1.3b", "llama-3-8b"]
LATENCIES_US = (5, 10, 50, 100, 500, 1000, 5000, 10000)
GBITS_PER_S = (1, 10, 100, 400)
COUNTS = 100
"""Numbers of workers: 100 x 4 models x 8 methods x 32 networks are 102,400 rows."""

GRID = (
    f"workers={','.join(map(str, range(2, 127)))}",
    f"network.latency=[{', '.join(f'{i} us' for i in range(1, 26))}]",
    f"network.bandwidth=[{', '.join(f'{i} Gbit/s' for i in range(1, 41))}]",
    "network=[10gbe]",
    f"method=[{', '.join(METHODS)}]",
)
"""125 x 25 x 40 x 8: a million configurations."""

PERIODS = (
    f"workers={','.join(map(str, range(2, 252)))}",
    f"method.period={','.join(map(str, range(1, 501)))}",
    "method=[ddp-adam, diloco]",
    "network=[10gbe, wan]",
    "overlap=none,async",
    "hardware=h100,a100",
)
"""250 x 501 x 2 x 2 x 2: a million of 501 methods."""


class Row(NamedTuple):
    """A number and what it is."""

    what: str
    value: float
    unit: str


def child_s(*command: str) -> float:
    """CPU seconds of a process, from its start to its end; what it imports is compiled, as in any installation."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=kept)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def rates(rounds: int, counts: int) -> list[Row]:
    """Rows per CPU second of `sl.project`."""
    import syncline as sl

    networks = [f"{latency}us,{rate}Gbit/s" for latency in LATENCIES_US for rate in GBITS_PER_S]
    given: dict[str, Any] = {"model": MODELS, "methods": METHODS, "networks": networks}
    sl.project()  # imports
    measured = []
    for what, options in (
        ("as columns", {}),
        ("with overlap ddp", {"overlap": "ddp"}),
        ("with overlap async", {"overlap": "async"}),
        ("by the fastest algorithm", {"algorithm": "auto"}),
    ):
        count = len(sl.project(workers=range(2, 2 + counts), **given, **options).record["rows"])
        taken_s = [
            cpu_s(lambda o=options: sl.project(workers=range(2, 2 + counts), **given, **o)) for _ in range(rounds)
        ]
        measured.append(Row(f"{count:,} rows, {what} (goal: 100,000)", count / median(taken_s), "rows per CPU second"))
    made_s = [cpu_s(lambda: sl.project(workers=range(2, 2 + counts), **given).rows) for _ in range(rounds)]
    measured.append(Row("the same as columns, with the making of dicts", count / median(made_s), "rows per CPU second"))
    nodes = {"model": MODELS, "methods": ["ddp-adam", "diloco", "mt-dao"], "networks": ["dgx-h100", "dgx-a100"]}
    of_nodes = len(sl.project(workers=range(16, 16 + 80 * counts, 8), **nodes).record["rows"])
    taken_s = [cpu_s(lambda: sl.project(workers=range(16, 16 + 80 * counts, 8), **nodes)) for _ in range(rounds)]
    measured.append(Row(f"{of_nodes:,} rows, of nodes", of_nodes / median(taken_s), "rows per CPU second"))
    few = {"workers": [2, 4, 8, 16], "methods": METHODS, "networks": networks}
    asked = len(sl.project(**few, thresholds=True).record["rows"])
    taken_s = [cpu_s(lambda: sl.project(**few, thresholds=True)) for _ in range(rounds)]
    measured.append(Row(f"{asked:,} rows, with thresholds", asked / median(taken_s), "rows per CPU second"))
    return measured


def start(rounds: int) -> list[Row]:
    """A whole process, beside one that only imports NumPy, in turns."""
    commands = ([SYNCLINE, "project", "--json"], [SYNCLINE, "project"], [sys.executable, "-c", "import numpy"])
    for command in commands:
        child_s(*command)  # byte code
    pairs = [[child_s(*command) for command in commands] for _ in range(rounds)]
    own, tables, other = (median(column) for column in zip(*pairs, strict=True))
    return [
        Row("syncline project --json, a whole process", 1e3 * own, "ms of CPU"),
        Row("python -c 'import numpy'", 1e3 * other, "ms of CPU"),
        Row("ratio (goal: at most 5)", own / other, ""),
        Row("ratio of syncline project, with tables", tables / other, ""),
    ]


def million(what: str, grids: Sequence[str]) -> list[Row]:
    """A grid into a file, a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.parquet"
        asked = [part for grid in grids for part in ("--grid", grid)]
        taken_s = child_s(SYNCLINE, "project", *asked, "--parquet", str(file))
        size = file.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return [
        Row(f"a million configurations, {what} (goal: 60)", taken_s, "CPU seconds"),
        Row("file", size / 1e6, "MB"),
        Row("most memory of a process until then", peak / 1e6, "MB"),
    ]


def table(rows: Sequence[Row]) -> str:
    """Rows for people."""
    return "\n".join(f"{row.what:72} {row.value:10.4g} {row.unit}" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of("benchmarks.projection", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few rows, and no grid of a million")
    parser.add_argument("--no-grids", action="store_true", help="no grid of a million")
    given = parser.parse_args(arguments)
    rows = start(given.rounds) + rates(given.rounds, 4 if given.quick else COUNTS)
    if not (given.quick or given.no_grids):
        rows += million("of workers, latencies and bandwidths", GRID) + million("of 500 periods of a method", PERIODS)
    show(rows, table, given.json)


if __name__ == "__main__":
    main()
