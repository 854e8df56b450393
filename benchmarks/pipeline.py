"""How fast pipeline schedules are simulated, and what the simulation adds to the math of text-gpt stages.

    python -m benchmarks.pipeline [--quick] [--repeats 5] [--json]

An event is a task or a message, and all is measured from the name of the schedule to its report: the orders, the
compiled events, which were loaded before, the timeline, the delays and memory read off it; the peak of memory is that
of all NumPy and Python objects. Forward 1 s, backward 2 s (zb-h1: 1 s and 1 s of weight gradients), messages of 1 MB
over links of 1 ms and 1 GB/s; the interleaved schedule has two chunks per stage.

Then text-gpt, 8 blocks in 8 stages, with stashed weights and Adam: a run by the events, and the same tasks called in
the same order without them, in turns.

Medians of CPU seconds of the process. ``--quick`` takes a sixteenth of the micro-batches.
"""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Sequence
from typing import NamedTuple

import torch

from benchmarks.command import cpu_s, parser_of, show
from syncline.costmodel import Link
from syncline.problems import TextGPT, split_into_stages
from syncline.sim import SCHEDULES, Durations, Pipeline, report, run_pipeline, schedule, task_spans
from syncline.sim.pipelines.gradients import PipelineMath
from syncline.sim.pipelines.run import KERNELS
from syncline.sim.pipelines.schedules import PipelineTask

STAGES, MICROBATCHES = 64, 1024
LINK = Link(1e-3, 1e9)
TEXT = TextGPT(layers=8, width=32, context=32, batch_size=8, tied=False)
TEXT_STAGES, TEXT_STEPS = 8, 48


class Measured(NamedTuple):
    what: str
    events: int
    cpu_s: float
    simulated_s: float | None = None
    peak_mib: float | None = None

    @property
    def per_s(self) -> float:
        return self.events / self.cpu_s


def play(name: str, stages: int, microbatches: int) -> tuple[int, float]:
    """Everything, once: how many events, and how long the pipeline takes."""
    made = schedule(name, stages, microbatches, 2 if name == "interleaved" else 1)
    times = Durations(1.0, 1.0 if made.splits_backward else 2.0, 1.0)
    timeline = run_pipeline(Pipeline(made, stages, times, activation_bytes=1e6), LINK)
    told = report(timeline, made, stages)
    return int(timeline.computes.sum() + (timeline.what == "send").sum()), told.makespan_s


def clocked(name: str, microbatches: int, repeats: int) -> Measured:
    """A schedule, all in all."""
    events, makespan_s = play(name, STAGES, microbatches)
    taken = [cpu_s(lambda: play(name, STAGES, microbatches)) for _ in range(repeats)]
    tracemalloc.start()
    play(name, STAGES, microbatches)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Measured(name, events, statistics.median(taken), makespan_s, peak / 2**20)


class Text:
    """A training of text-gpt in stages, from the start."""

    def __init__(self, name: str) -> None:
        model = TEXT.initial_network(0)
        self.made = schedule(name, TEXT_STAGES, TEXT_STEPS)
        parts = split_into_stages(model, TEXT_STAGES)
        source = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, 256, (TEXT_STEPS, TEXT.batch_size, TEXT.context + 1), generator=source)

        def loss(logits: torch.Tensor, i: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(logits.flatten(0, -2), tokens[i, :, 1:].flatten())

        steppers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in parts]
        self.math = PipelineMath(self.made, parts, lambda i: tokens[i, :, :-1], loss, steppers)

    def by_events(self) -> None:
        run_pipeline(Pipeline(self.made, TEXT_STAGES, Durations(), 1e5, effects=self.math.effect), LINK)

    def by_list(self, order: list[tuple[int, PipelineTask]]) -> None:
        for stage, task in order:
            self.math.effect(stage, task)()


def text(name: str, repeats: int) -> list[Measured]:
    """The events against the same math as a loop over a list; both train to the same losses."""
    made = schedule(name, TEXT_STAGES, TEXT_STEPS)
    spans = task_spans(run_pipeline(Pipeline(made, TEXT_STAGES, Durations(), 1e5), LINK), made)
    spans.sort(key=lambda span: span.end_s)
    order = [(span.stage, PipelineTask(span.kind, span.microbatch, span.chunk)) for span in spans]  # type: ignore[arg-type]
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        events, plain = Text(name), Text(name)
        taken[0].append(cpu_s(events.by_events))
        taken[1].append(cpu_s(lambda plain=plain: plain.by_list(order)))  # type: ignore[misc]
        assert all(torch.equal(events.math.losses[i], plain.math.losses[i]) for i in range(TEXT_STEPS))
    medians = [statistics.median(one[1:]) for one in taken]  # the first fills caches
    count = len(order) + 2 * (TEXT_STAGES - 1) * TEXT_STEPS
    rows = [("with the math of text-gpt", medians[0]), ("its math alone", medians[1])]
    return [Measured(f"{name}, {what}", count, taken_s) for what, taken_s in rows]


def measure(repeats: int, quick: bool, with_text: bool = True) -> list[Measured]:
    """All rows."""
    torch.set_num_threads(1)
    KERNELS.load()
    rows = [clocked(name, MICROBATCHES // (16 if quick else 1), repeats) for name in SCHEDULES]
    return rows + [row for name in ("async-1f1b", "greedy") if with_text for row in text(name, repeats)]


def table(rows: Sequence[Measured]) -> str:
    lines = [
        "| what | events | CPU seconds | events per CPU second | simulated seconds | peak, MiB |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        simulated = "" if row.simulated_s is None else f"{row.simulated_s:.4g}"
        peak = "" if row.peak_mib is None else f"{row.peak_mib:.0f}"
        lines.append(f"| {row.what} | {row.events:,} | {row.cpu_s:.3g} | {row.per_s:,.0f} | {simulated} | {peak} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("benchmarks.pipeline", __doc__)
    parser.add_argument("--quick", action="store_true", help="a sixteenth of the micro-batches")
    parser.add_argument("--repeats", type=int, default=5, help="of which medians are taken")
    parser.add_argument("--no-text", action="store_true", help="schedules alone")
    options = parser.parse_args(arguments)
    rows = measure(options.repeats, options.quick, not options.no_text)
    show(rows, table, options.json)


if __name__ == "__main__":
    main()
