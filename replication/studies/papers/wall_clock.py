"""MT-DAO's Figures 9 and 10: training time over bandwidth, by the paper's equations and by the event simulation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from replication.studies.papers.base import PaperTable, paper_table
from replication.theory.wall_clock import half_life_total_s, unified_total_s
from syncline.costmodel import Call, Exchange, Link, calls_by_step, compute_s
from syncline.fields import Period, Seconds, Spec, Steps, Workers, parsed, refusal
from syncline.specs import Figures, ModelField, Record
from syncline.specs.cluster.clusters import HardwareField
from syncline.units import parse_bandwidth

STATES = ("parameters", "first momentum", "second momentum")


class Strategy(Spec):
    """A method of MT-DAO's wall-clock model, with its periods K_x, K_u and K_v in steps.

    A single period stands for all three states, which then travel in one call.
    """

    method: str = Field(min_length=1)
    panel: str = ""
    periods: tuple[Period, ...] = Field(min_length=1, max_length=3)

    @model_validator(mode="after")
    def _one_or_three(self) -> Strategy:
        if len(self.periods) == 2:
            raise refusal("periods", self.periods, "one period, or three")
        return self


class WallClockFigureSpec(PaperTable):
    """MT-DAO's Figures 9 and 10: its equations (5) and (6) over bandwidth, beside the same from the simulation.

    A step computes ``tokens_per_worker`` on ``gpus_per_worker`` of the hardware.
    """

    kind: Literal["wall-clock-figure"]
    quantity: Literal["total", "communication"]
    model: ModelField
    tokens_per_worker: int = Field(ge=1)
    gpus_per_worker: int = Field(default=1, ge=1)
    hardware: HardwareField
    workers: Workers
    steps: Steps
    latency: Seconds
    bandwidths: tuple[Annotated[float, parsed(parse_bandwidth)], ...] = Field(min_length=2)
    strategies: tuple[Strategy, ...] = Field(min_length=1)


def step_compute_s(spec: WallClockFigureSpec) -> float:
    """Return the seconds that a worker computes in a step, with its tokens split evenly over its accelerators."""
    flops = spec.model.flops_per_token * spec.tokens_per_worker
    return float(compute_s(flops, spec.hardware)) / spec.gpus_per_worker


def equation_s(spec: WallClockFigureSpec, strategy: Strategy, link: Link) -> float:
    """Return the seconds of the training by the paper's equation (5) for one period, (6) for three."""
    shared: dict[str, Any] = {
        "steps": spec.steps, "state_bytes": spec.model.parameter_bytes(), "workers": spec.workers, "link": link,
    }  # fmt: skip
    total_s = spec.steps * step_compute_s(spec)
    if len(strategy.periods) == 1:
        return float(unified_total_s(total_s, period=strategy.periods[0], **shared))
    k_x, k_u, k_v = strategy.periods
    return float(half_life_total_s(total_s, periods=(k_x, k_u, k_v), **shared))


def exchanges(spec: WallClockFigureSpec, strategy: Strategy) -> list[Exchange]:
    """Return the exchanges of a strategy: the three states, each with its period.

    States that are due at the same step travel in one call.
    """
    periods = strategy.periods * 3 if len(strategy.periods) == 1 else strategy.periods
    nbytes = spec.model.parameter_bytes()
    return [Exchange(nbytes, period, state) for state, period in zip(STATES, periods, strict=True)]


def simulated_s(spec: WallClockFigureSpec, strategy: Strategy, link: Link, wait_steps: int) -> float:
    """Return the seconds of the training by the event simulator.

    Equal workers complete a synchronisation at the same time, so the simulator plays each distinct set of calls once
    and multiplies its time by the number of steps with these calls.

    Args:
        spec: the training.
        strategy: the periods of the averages.
        link: the link of each worker.
        wait_steps: 0 if a worker waits for its averages, 1 if it computes the next step during them.
    """
    step_s = step_compute_s(spec)
    exposed_s = 0.0
    for pattern in calls_by_step(exchanges(spec, strategy), spec.steps):
        if pattern.calls:
            exposed_s += pattern.steps * _exposed_s(pattern.calls, step_s * wait_steps, link, spec.workers)
    return spec.steps * step_s + exposed_s


def _exposed_s(calls: Sequence[Call], meanwhile_s: float, link: Link, workers: int) -> float:
    """Return the seconds that workers wait for these calls beyond ``meanwhile_s`` of computing."""
    unlabelled_calls = tuple(call._replace(step=0, label="") for call in calls)
    return _played_s(unlabelled_calls, meanwhile_s, link, workers) - meanwhile_s


@cache
def _played_s(calls: tuple[Call, ...], meanwhile_s: float, link: Link, workers: int) -> float:
    from syncline.sim import Collective, Compute, Instruction, Wait, run_events

    start: list[Instruction] = [
        Collective(call.collective, call.payload_bytes, number) for number, call in enumerate(calls)
    ]
    wait: list[Instruction] = [Wait(number) for number in range(len(calls))]
    timeline = run_events([[*start, Compute(meanwhile_s), *wait]] * workers, link)
    return float(timeline.end_s.max())


def wall_clock_rows(spec: WallClockFigureSpec) -> list[dict[str, Any]]:
    """Return a row per strategy and bandwidth with total and communication time.

    The times are by equation, by events, and by events with overlap.
    """
    computing_s = spec.steps * step_compute_s(spec)
    rows = []
    for strategy in spec.strategies:
        for bandwidth in spec.bandwidths:
            link = Link(spec.latency, bandwidth)
            totals_s = {
                "equation": equation_s(spec, strategy, link),
                "events": simulated_s(spec, strategy, link, wait_steps=0),
                "overlap": simulated_s(spec, strategy, link, wait_steps=1),
            }
            rows.append(
                {
                    "method": strategy.method,
                    "panel": strategy.panel,
                    "periods": list(strategy.periods),
                    "bandwidth_bytes_per_s": bandwidth,
                    "workers": spec.workers,
                    "steps": spec.steps,
                    "compute_s": computing_s,
                }
                | {f"{estimate}_total_s": total_s for estimate, total_s in totals_s.items()}
                | {f"{estimate}_communication_s": total_s - computing_s for estimate, total_s in totals_s.items()}
            )
    return rows


def wall_clock_figure(spec: WallClockFigureSpec, records: list[Record], rows: list[Record]) -> Figures:
    """Yield the figure with a panel per ``panel`` of the strategies.

    Lines are by equation, points by events, dashes by events with overlap.
    """
    from replication.figures.wall_clock import time_over_bandwidth

    panels: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        series = panels.setdefault(row["panel"], {}).setdefault(row["method"], {})
        for estimate in ("equation", "events", "overlap"):
            series.setdefault(estimate, []).append(row[f"{estimate}_{spec.quantity}_s"])
    time_label = "total time" if spec.quantity == "total" else "communication time"
    name = f"{spec.model.name}, {spec.workers} machines of {spec.gpus_per_worker} {spec.hardware.name}"
    title = f"{time_label} of {spec.steps:,} steps: {name}"
    yield spec.name, time_over_bandwidth(list(spec.bandwidths), panels, time_label=time_label, title=title)


WALL_CLOCK_COLUMNS = (
    "method panel bandwidth_bytes_per_s equation_total_s events_total_s overlap_total_s equation_communication_s "
    "events_communication_s overlap_communication_s"
)

STUDY = paper_table(
    WallClockFigureSpec, wall_clock_rows, WALL_CLOCK_COLUMNS,
    "Overlap: by events, with a step of computing during each average. ", "method", wall_clock_figure,
)  # fmt: skip
