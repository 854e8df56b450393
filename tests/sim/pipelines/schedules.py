"""The shared table of schedules: every shared property is tested on every row.

A new schedule is one file in ``syncline/sim/pipelines/schedules``, its line in ``SCHEDULES``, and one row here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from syncline.costmodel.layouts.pipelines import CLOSED_FORMS, pipeline_s
from syncline.sim.pipelines.schedules import Schedule, schedule, schedule_kind


class Row(NamedTuple):
    """What is known of a schedule.

    Attributes:
        makespan_s: of (K, M, F, B), on links that take no time; None where nothing is known for every K and M.
    """

    makespan_s: Callable[[int, int, float, float], float] | None = None


def closed_form(name: str) -> Row:
    """The cost model's."""
    assert name in CLOSED_FORMS
    return Row(lambda k, m, f, b: float(pipeline_s(name, k, m, f, b, chunks=chunks_of(name))))


def chunks_of(name: str) -> int:
    return 2 if schedule_kind(name).takes_chunks else 1


def made_of(name: str, stages: int, microbatches: int, **options: object) -> Schedule:
    return schedule(name, stages, microbatches, chunks_of(name), **options)  # type: ignore[arg-type]


ROWS: dict[str, Row] = {
    "gpipe": closed_form("gpipe"),
    "1f1b": closed_form("1f1b"),
    "interleaved": closed_form("interleaved"),
    "zb-h1": Row(),  # its form is for M >= K
    "async-1f1b": closed_form("async-1f1b"),
    "greedy": Row(),
}
NAMES = tuple(ROWS)
IN_ORDER = tuple(name for name in ROWS if schedule_kind(name).fixed_order)
"""Those whose orders are known before."""
FLUSHING = tuple(name for name in ROWS if made_of(name, 2, 2).updates == "flush")
"""Those that step once, after the last micro-batch."""
