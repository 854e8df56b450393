"""What a second process brings to ``syncline compare``: methods trained one after another, and side by side.

    python -m benchmarks.compare [--steps 125] [--rounds 2] [--json]

The spec is compare-text with a larger model and fewer steps. CPU seconds, which other work on the machine changes less
than wall-clock time: of one process all methods together, of two the one that is at work for longer. Beside it is what
the asking process does alone, before the trainings (imports, checks; the server of processes imports meanwhile) and
after them (clocks, tables).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.command import cpu_s, parser_of, show

PROBLEM = {"kind": "text-gpt"}
"""A GPT of 363,168 parameters: steps that are long enough to be shared among processes."""


class Row(NamedTuple):
    what: str
    value: float
    unit: str


def clocked(call: Callable[[], Any]) -> tuple[int, float]:
    """In which process, and its CPU seconds."""
    return os.getpid(), cpu_s(call)


def measure(steps: int, rounds: int) -> list[Row]:
    """All rows."""
    from syncline.runs.processes.forked import call_results, start_server

    start_server()
    from syncline.runs.compare import compare, longest_first
    from syncline.runs.training.train_and_time import train_method
    from syncline.specs import CompareSpec, load_spec

    spec = load_spec("compare-text", {"problem": PROBLEM, "schedule": {}, "steps": steps}, CompareSpec)
    ready_s = time.process_time()
    calls = [partial(clocked, partial(train_method, spec, spec.methods[i])) for i in longest_first(spec)]
    one_s, two_s, both_s = [], [], []
    for _ in range(rounds):
        one_s.append(sum(call()[1] for call in calls))
        of: dict[int, float] = {}
        for process, taken_s in call_results(calls, 2):
            of[process] = of.get(process, 0.0) + taken_s
        assert len(of) == 2
        two_s.append(max(of.values()))
        both_s.append(sum(of.values()))
    short = load_spec("compare-text", {"problem": PROBLEM, "schedule": {}, "steps": 20}, CompareSpec)
    with tempfile.TemporaryDirectory() as folder:
        after_s = cpu_s(partial(compare, short, Path(folder) / "out", jobs=2))
    one, two, both = median(one_s), median(two_s), median(both_s)
    alone = ready_s + after_s
    return [
        Row(f"{len(calls)} methods, {steps} steps, in one process", one, "s of CPU"),
        Row("in two, the longer one", two, "s of CPU"),
        Row("in two, together", both, "s of CPU"),
        Row("the asking process, before", ready_s, "s of CPU"),
        Row("and after", after_s, "s of CPU"),
        Row("speedup of the trainings", one / two, ""),
        Row("speedup of the command (goal: at least 1.8)", (alone + one) / (alone + two), ""),
    ]


def table(rows: Sequence[Row]) -> str:
    return "\n".join(f"{row.what:50} {row.value:10.3g} {row.unit}" for row in rows)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("benchmarks.compare", __doc__)
    parser.add_argument("--steps", type=int, default=125, help="of each training")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    show(measure(options.steps, options.rounds), table, options.json)


if __name__ == "__main__":
    main()
