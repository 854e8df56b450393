"""Every benchmark again, beside what was kept: our figures, their yardsticks of the same run, and limits.

    python -m benchmarks [--only network,training] [--times 3] [--keep]

A figure counts as its *ratio* to a yardstick that the same run has measured, so that another machine, or another load,
changes it little: messages and events to those of a plain SimPy loop, training steps to the bare mathematics, wire
formats to a copy, a projection's start to the import of NumPy. One that is more than 20 % worse than in
`results/benchmarks.json` is told, and the exit code is 1. `--times` takes medians of several runs, and tells by how
much their ratios differ. `--keep` writes that file anew. Each part tells its CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

KEPT = Path(__file__).parents[1] / "results" / "benchmarks.json"

WORSE = 0.2
"""By so much, as a part, a ratio may differ from run to run on a busy machine."""

HEAP = "20 M/s, a heap in C++"


class Figure(NamedTuple):
    """A number, its yardstick in the same unit, whether more of it is better, and what bounds it."""

    name: str
    value: float
    unit: str
    yardstick: float
    more_is_better: bool = True
    limit: str = ""
    spread: float | None = None

    @property
    def ratio(self) -> float:
        """To the yardstick; the larger the better."""
        return self.value / self.yardstick if self.more_is_better else self.yardstick / self.value


def rows_of(module: str, *arguments: str) -> list[dict[str, Any]]:
    """What a benchmark's command prints as JSON."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "--json"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return list(json.loads(said)["rows"])


def plain_simpy_per_s(rows: Sequence[dict[str, Any]]) -> float:
    """Messages per CPU second of the loop that nobody would call fast: how fast this machine is at Python."""
    return float(next(row["messages_per_s"] for row in rows if row["evaluator"] == "plain SimPy"))


def network() -> Iterator[Figure]:
    """Messages of collectives."""
    rows = rows_of("network")
    yardstick = plain_simpy_per_s(rows)
    for row in rows:
        name = f"{row['case']}, P = {row['workers']:,}, {row['evaluator']}"
        limit = HEAP if row["evaluator"] == "events" else ""
        yield Figure(name, row["messages_per_s"], "messages per CPU second", yardstick, limit=limit)


def pipeline() -> Iterator[Figure]:
    """Events of schedules."""
    from benchmarks.network import plain

    yardstick = plain(64).messages_per_s
    for row in rows_of("pipeline", "--repeats", "3", "--no-text"):
        per_s = row["events"] / row["cpu_s"]
        yield Figure(f"pipeline {row['what']}", per_s, "events per CPU second", yardstick, limit=HEAP)


def training() -> Iterator[Figure]:
    """Steps, and runs of 200."""
    for row in rows_of("training", "--rounds", "5"):
        name = f"{row['method']}, W = {row['workers']}"
        yield Figure(
            f"{name}: a step", 1e3 * row["step_s"], "ms of CPU", 1e3 * row["bare_s"], False, limit="bare math: ratio 1"
        )
        if row["run_s"] is not None and row["workers"] == 4:
            yield Figure(f"{name}: 200 steps", row["run_s"], "s of CPU", 200 * row["bare_s"], False)


def projection() -> Iterator[Figure]:
    """Rows, and the start of the command."""
    from benchmarks.network import plain

    rows = rows_of("projection", "--rounds", "3", "--no-grids")
    yardstick = plain(64).messages_per_s
    own, numpy = (row["value"] for row in rows[:2])
    yield Figure("syncline project, a whole process", own, "ms of CPU", numpy, False, limit="import numpy: ratio 1")
    for row in rows[3:]:
        if row["unit"] == "rows per CPU second":
            yield Figure(f"project: {row['what'].partition(' (')[0]}", row["value"], row["unit"], yardstick)


def wire() -> Iterator[Figure]:
    """Wire formats, in memory that is there."""
    rows = rows_of("wire", "--size", str(2**22), "--rounds", "9")
    copy = next(row["held_gb_per_s"] for row in rows if row["format"] == "copy")
    for row in rows:
        if row["format"] != "copy":
            yield Figure(f"{row['format']}", row["held_gb_per_s"], "GB/s", copy, limit="a copy: ratio 1")


def sweep() -> Iterator[Figure]:
    """What a run in a sweep takes beside its training."""
    rows = rows_of("sweep", "--runs", "200", "--rounds", "1", "--long-runs", "12")
    yield Figure("a short run in a sweep", rows[0]["value"], "ms of CPU", rows[1]["value"], False)
    two = next(row for row in rows if row["what"].startswith("speedup where"))
    yield Figure("two processes over one, by CPU time", two["value"], "", 1.0, limit="2")


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    one.__name__: one for one in (network, pipeline, training, projection, wire, sweep)
}


def cpu_s_so_far() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def readable(value: float) -> str:
    """Three digits: 2.5 million as 2,500,000, and not as a power."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"


def together(runs: Sequence[Sequence[Figure]]) -> list[Figure]:
    """The run in the middle of each figure, by its ratio; its spread is the range of ratios over the middle one."""
    if len(runs) == 1:
        return list(runs[0])
    told = []
    for several in zip(*runs, strict=True):
        ordered = sorted(several, key=lambda one: one.ratio)
        middle = ordered[len(ordered) // 2]
        told.append(middle._replace(spread=(ordered[-1].ratio - ordered[0].ratio) / middle.ratio))
    return told


def table(figures: Sequence[Figure], before: dict[str, dict[str, Any]]) -> str:
    """One line per figure."""
    lines = [
        "| what | measured | of the yardstick | spread | before | limit |",
        "|---|---|---|---|---|---|",
    ]
    for one in figures:
        kept = before.get(one.name)
        was = "" if kept is None else f"{kept['ratio']:.3g} ({one.ratio / kept['ratio'] - 1:+.0%})"
        spread = "" if one.spread is None else f"{one.spread:.0%}"
        measured = f"{readable(one.value)} {one.unit}"
        lines.append(f"| {one.name} | {measured} | {one.ratio:.3g} | {spread} | {was} | {one.limit} |")
    return "\n".join(lines)


def worse(figures: Sequence[Figure], before: dict[str, dict[str, Any]]) -> list[str]:
    """The figures whose ratio is more than ``WORSE`` below what was kept."""
    return [one.name for one in figures if one.name in before and one.ratio < (1 - WORSE) * before[one.name]["ratio"]]


def processor() -> str:
    """What the kernel calls it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def keep(figures: Sequence[Figure], before: dict[str, dict[str, Any]], taken_s: float) -> None:
    """Write the file; figures of parts that were not run stay."""
    machine = f"{platform.system()} {platform.machine()}, {processor()}, Python {platform.python_version()}"
    told = {
        one.name: {"value": one.value, "unit": one.unit, "ratio": one.ratio, "spread": one.spread} for one in figures
    }
    result = {"date": date.today().isoformat(), "machine": machine, "seconds": taken_s, "figures": before | told}
    KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare, tell."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help=f"with commas between: {', '.join(PARTS)}")
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name} anew")
    parser.add_argument("--times", type=int, default=1, help="runs, of which medians are told")
    given = parser.parse_args(arguments)
    if given.times < 1:
        parser.error(f"--times: got {given.times}; expected at least 1")
    unknown = sorted(set(given.only.split(",")) - set(PARTS))
    if unknown:
        parser.error(f"--only: got {unknown[0]!r}; expected one of {', '.join(PARTS)}")
    before = json.loads(KEPT.read_text(encoding="utf-8"))["figures"] if KEPT.exists() else {}
    begun_s, figures = time.monotonic(), []
    for name in given.only.split(","):
        print(f"{name} ...", file=sys.stderr, flush=True)
        begun_cpu_s = cpu_s_so_far()
        figures += together([list(PARTS[name]()) for _ in range(given.times)])
        print(f"{name}: {cpu_s_so_far() - begun_cpu_s:.0f} s of CPU", file=sys.stderr, flush=True)
    print(table(figures, before))
    slower = worse(figures, before)
    for name in slower:
        print(f"more than {WORSE:.0%} worse than before: {name}", file=sys.stderr)
    if given.keep:
        keep(figures, before, time.monotonic() - begun_s)
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
