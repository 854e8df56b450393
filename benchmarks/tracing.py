"""What recording a foreign script adds to it, and how fast a record is replayed.

    python -m benchmarks.tracing [--quick] [--rounds 5] [--json]

Recording: `benchmarks/traced.py` on two ranks, with gloo alone and recorded, in turns, both forked from a process that
has imported torch. CPU seconds of rank 0's main thread; gloo's own threads do the same work either way. Of a collective
(1 KB all-reduces one after another), and of a step of a transformer of 3.7 M parameters (DDP, AdamW, clipped) with a
batch of so many sequences of 128 tokens, what it takes more, less that of its collectives, as a part.

Replaying: a DDP of eight buckets and an FSDP of eight layers, both of eight ranks, with both meanings of the host, from
records in memory to the timeline; an event is one of a record. Every message is played.

Medians of CPU seconds.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import cpu_s, parser_of, show
from syncline.costmodel import HARDWARE, NETWORKS
from syncline.measure.processes.rendezvous import open_listener
from syncline.measure.recording.ranks import (
    DEFAULT_OPTIONS,
    ForeignScript,
    import_before_forking,
    set_rank_environment,
    trace_program,
)
from syncline.measure.recording.record import (
    Computed,
    CountedOperation,
    Event,
    Marked,
    RankRecord,
    Started,
    Stepped,
    StreamWaited,
    Waited,
)
from syncline.measure.replaying.replay import replay

SCRIPT = Path(__file__).with_name("traced.py")
RANKS = 2
BUCKETS_OF_A_STEP = 2
"""Collectives of a step of the transformer: a small first bucket, and one of all the rest."""

REPLAYED_RANKS, PARTS = 8, 8


class Measured(NamedTuple):
    what: str
    value: float
    unit: str
    limit: str


def alone(program: ForeignScript) -> None:
    """The script on its ranks, with nobody listening."""
    import_before_forking()
    with open_listener(port=0) as listener:
        port = listener.getsockname()[1]
    children = []
    for rank in range(RANKS):
        pid = os.fork()
        if not pid:
            import torch

            set_rank_environment(rank, RANKS, port, DEFAULT_OPTIONS)
            torch.set_num_threads(1)
            sys.argv = [program.target, *program.args]
            runpy.run_path(program.target, run_name="__main__")
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def script_s(run: Callable[[ForeignScript], object], *arguments: str) -> float:
    """The median of what the script has told."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "taken"
        what, *numbers = arguments
        run(ForeignScript(str(SCRIPT), (what, str(out), *numbers)))
        return statistics.median(json.loads(out.read_text()))


def added_s(rounds: int, *arguments: str) -> tuple[float, float]:
    """Seconds alone, and how much more recorded: medians of turns."""
    taken = [
        (script_s(alone, *arguments), script_s(lambda program: trace_program(program, RANKS), *arguments))
        for _ in range(rounds)
    ]
    return statistics.median(one for one, _ in taken), statistics.median(two - one for one, two in taken)


def recording(rounds: int, batches: Sequence[int]) -> list[Measured]:
    bare_s, call_s = added_s(rounds, "collectives", "5")
    told = [
        Measured("a collective, gloo alone", 1e6 * bare_s, "us", ""),
        Measured("a collective, recording adds", 1e6 * call_s, "us", "100 us"),
    ]
    for batch in batches:
        step_s, more_s = added_s(rounds, "training", "8", str(batch))
        part = (more_s - BUCKETS_OF_A_STEP * call_s) / step_s
        told += [
            Measured(f"a step, batch {batch}, gloo alone", 1e3 * step_s, "ms", ""),
            Measured(f"a step, batch {batch}, recording adds", 1e2 * part, "%", "5 %"),
        ]
    return told


def ddp(steps: int) -> RankRecord:
    events: list[Event] = []
    for step in range(steps):
        calls = [step * PARTS + part for part in range(PARTS)]
        events.append(Computed(0))
        for part, call in enumerate(calls):
            events += [Computed(1), started(call, "all_reduce", part, 0)]
        events += [*map(Waited, calls), Computed(2), Stepped()]
    return RankRecord(events, OPERATIONS)


def fsdp(steps: int) -> RankRecord:
    events: list[Event] = []
    mark = 0
    for step in range(steps):
        for part in range(2 * PARTS):
            call, gathers = step * 2 * PARTS + part, part < PARTS
            own, kind, computes = (2, "all_gather", 0) if gathers else (3, "reduce_scatter", 1)
            events += [Computed(2, 1) if gathers else Computed(computes), Marked(mark, int(gathers))]
            events += [
                StreamWaited(mark, own),
                started(call, kind, part, own),
                Waited(call, own),
                Marked(mark + 1, own),
            ]
            if gathers:
                events += [StreamWaited(mark + 1), Computed(computes)]
            mark += 2
        events += [StreamWaited(mark - 1), Computed(2), Stepped()]
    return RankRecord(events, OPERATIONS)


OPERATIONS = [(CountedOperation(1e9 * (1 + segment), 1e7),) * 40 for segment in range(3)]


def started(call: int, kind: str, part: int, stream: int) -> Started:
    ranks = tuple(range(REPLAYED_RANKS))
    return Started(call, kind, kind, 4_000_000 + part, ranks, ("all", call), f"train.py:{part}", stream)


def replaying(rounds: int, steps: int) -> list[Measured]:
    told = []
    for name, one in (("DDP", ddp(2 * steps)), ("FSDP", fsdp(steps))):
        events = REPLAYED_RANKS * len(one.events)
        for host in ("waits", "ahead"):
            work = partial(replay, [one] * REPLAYED_RANKS, NETWORKS["10gbe"].network, HARDWARE["a100"], None, host)
            taken = [cpu_s(work) for _ in range(rounds + 1)]
            per_s = events / statistics.median(taken[1:])
            told.append(Measured(f"replay of {name}, host {host}", per_s, "events per CPU second", "200,000"))
    return told


def table(rows: Sequence[Measured]) -> str:
    lines = ["| what | median | unit | limit |", "|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {one.what} | {one.value:,.4g} | {one.unit} | {one.limit} |" for one in rows)])


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("benchmarks.tracing", __doc__)
    parser.add_argument("--quick", action="store_true", help="one round, one batch")
    parser.add_argument("--rounds", type=int, default=5, help="of which medians are taken")
    options = parser.parse_args(arguments)
    rounds = 1 if options.quick else options.rounds
    rows = [*recording(rounds, (8,) if options.quick else (1, 8, 32)), *replaying(max(rounds, 3), 50)]
    show(rows, table, options.json)


if __name__ == "__main__":
    main()
