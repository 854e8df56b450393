"""Steps of Llamas on H100s as torchtitan's authors measured them, against `examples/titan.py` traced by shapes.

Nothing is fitted to these numbers: the hardware is the preset ``h100`` with the memory and the power limit that their
machines have, the network ``dgx-h100`` (8 GPUs on NVLink, 400 Gbit/s each between nodes), as they describe them. What
was compiled or asynchronous there is a change of the record (`syncline.measure.replaying.scenario.Changes`).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.command import parser_of, show
from syncline.costmodel import HARDWARE, NETWORKS
from syncline.measure.recording.ranks import ForeignScript
from syncline.measure.recording.record import Computed, RankRecord, Stepped
from syncline.measure.recording.shapes import record_by_shapes
from syncline.measure.replaying.replay import operations_s, replay
from syncline.measure.replaying.scenario import Changes

REPOSITORY = Path(__file__).parents[1]
MEASURED = REPOSITORY / "results" / "trace" / "titan.csv"
H100 = replace(HARDWARE["h100"], memory_bytes=96 * 2.0**30, memory_bytes_per_s=2.4e12, power_w=500.0)
"""HBM2e of 96 GB at 2.4 TB/s and a power limit of 500 W, which the published files name."""

STEPS = 2
"""The second is timed."""


class Setting(NamedTuple):
    """What was run."""

    model: str
    gpus: int
    tp: int
    batch: int
    context: int
    recompute: str


class Row(NamedTuple):
    """A published number and ours.

    Of our step, seconds that a rank's products take, that its other operations take, and that it waits.
    """

    model: str
    gpus: int
    tp: int
    compiled: str
    async_tp: str
    measured_tokens_per_s: float
    tokens_per_s: float
    error: float
    step_s: float
    products_s: float
    other_operations_s: float
    waits_s: float
    published: str


class Step(NamedTuple):
    """Ours."""

    step_s: float
    products_s: float
    other_operations_s: float


def published() -> list[dict[str, str]]:
    """What torchtitan's authors measured."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def setting_of(row: dict[str, str]) -> Setting:
    """Of a published number."""
    whole = (int(row[name]) for name in ("gpus", "tp", "batch", "context"))
    return Setting(row["model"], *whole, row["recompute"])


@cache
def record_of(setting: Setting) -> Sequence[RankRecord]:
    """The record of the example in this setting."""
    model, gpus, tp, batch, context, recompute = setting
    options = {"size": model, "tp": tp, "batch": batch, "context": context, "recompute": recompute, "steps": STEPS}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    script = ForeignScript(str(REPOSITORY / "examples" / "titan.py"), (*words, "--bf16", "--quiet"))
    return record_by_shapes(script, gpus, ranks=(0,)).expand()  # all pieces are of one size, and nobody writes a log


def step_of(setting: Setting, changes: Changes) -> Step:
    """The second step of the example in this setting, with the changes of software."""
    ranks = changes.apply_to_record(record_of(setting))
    ends = replay(ranks, NETWORKS["dgx-h100"].network, H100, host="ahead").step_end_s
    return Step(float(ends[-1] - ends[-2]), *computing_s(ranks[0]))


def computing_s(rank: RankRecord) -> tuple[float, float]:
    """Seconds of products and attention, and of other operations, per step after the first, which sets up."""
    products = others = 0.0
    first = next(at for at, event in enumerate(rank.events) if isinstance(event, Stepped))
    for event in rank.events[first:]:
        for operation in rank.segments[event.segment] if isinstance(event, Computed) else ():
            if operation.flops:
                products += operations_s((operation,), H100)
            else:
                others += operations_s((operation,), H100)
    return products / (rank.steps - 1), others / (rank.steps - 1)


def row_of(measured: dict[str, str]) -> Row:
    """A published number and ours."""
    setting = setting_of(measured)
    step = step_of(setting, Changes(compiled=measured["compiled"] == "yes", async_tp=measured["async_tp"] == "yes"))
    ours = setting.batch * setting.context / step.step_s / setting.tp
    theirs = float(measured["tokens_per_s_per_gpu"])
    told = (measured["compiled"], measured["async_tp"], theirs, ours, ours / theirs - 1)
    waits_s = step.step_s - step.products_s - step.other_operations_s
    return Row(setting.model, setting.gpus, setting.tp, *told, *step, waits_s, measured["published"])


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    lines = [
        "| model | GPUs (tensor parallel) | compiled | async TP | tokens/s per GPU, measured | ours | error "
        "| our step: products | other operations | waits |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds = " | ".join(f"{one:.2f} s" for one in (row.products_s, row.other_operations_s, row.waits_s))
        lines.append(
            f"| {row.model} | {row.gpus} ({row.tp}) | {row.compiled} | {row.async_tp} "
            f"| {row.measured_tokens_per_s:,.0f} | {row.tokens_per_s:,.0f} | {100 * row.error:+.1f}% | {seconds} |"
        )
    for name, of in (("eager", [row for row in rows if row.compiled == "no"]), ("all", rows)):
        if of:
            lines.append(f"\nMean absolute error, {name}: {100 * fmean(abs(row.error) for row in of):.1f}%.")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_of("benchmarks.titan", __doc__)
    parser.add_argument("--most-gpus", type=int, default=10**9, help="leave out settings of more")
    parser.add_argument("--model", help="one model alone")
    options = parser.parse_args(argv)
    rows = [row for row in published() if int(row["gpus"]) <= options.most_gpus]
    show([row_of(row) for row in rows if options.model in (None, row["model"])], table, options.json)


if __name__ == "__main__":
    main()
