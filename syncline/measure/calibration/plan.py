"""The measurements of a calibration, from the options of a user."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syncline.costmodel import Link
from syncline.errors import SpecError
from syncline.measure.calibration.collective_times import TIMING_TURNS, Timing
from syncline.problems import PROBLEMS, Problem
from syncline.runs.training.limits import check_processes
from syncline.specs import CompareSpec, RunSpec, load_spec, network
from syncline.specs.load import Overrides
from syncline.units import number_or_text, parse_bytes, parse_seconds

BUSY = 0.5
"""Fraction of the cores; a higher load gives a warning."""

FIRST_MEASUREMENTS = ("training steps", "matrix products", "copies", "wire formats")
"""Measurements before the collectives."""


@dataclass(frozen=True)
class Calibration:
    """The measurements that a calibration makes on the ranks of a group.

    Each rank times training steps, matrix products, copies and wire formats. Then all ranks time collectives.

    Args:
        problem: the problem whose training steps are timed, see `syncline.problems`.
        timing: the collectives to time, with their sizes and repetitions.
        window_s: seconds of training steps on each rank; other measurements get this time or a part of it.
        link: latency and bandwidth of the network if they are known; None: the calibration fits them.
    """

    problem: Problem
    threads: int = 1
    seed: int = 0
    timing: Timing = field(default_factory=Timing)
    window_s: float = 1.0
    link: Link | None = None

    def __post_init__(self) -> None:
        if not self.window_s > 0:
            raise SpecError("window", self.window_s, "a time above 0")

    @property
    def measurements(self) -> list[str]:
        """Return the names of all measurements, such as "all_reduce of 4 B", in order."""
        return [*FIRST_MEASUREMENTS, *[f"{kind} of {size} B" for kind, size in self.timing.points] * TIMING_TURNS]

    def identity(self) -> dict[str, Any]:
        """Return the settings of the calibration that must be equal on all ranks, by name."""
        return {"problem": repr(self.problem), "threads": self.threads, "timing": asdict(self.timing)}


def plan_of_options(
    spec: str | None = None,
    overrides: Overrides = (),
    *,
    known_network: Any = None,
    sizes: str | Sequence[str | float] | None = None,
    budget: str | float | None = None,
    window: str | float | None = None,
) -> Calibration:
    """Return the measurements to make, from the options of a user.

    Args:
        spec: the path or name of a spec with a problem; None: the problem ``digits``.
        sizes: bytes, separated by commas or as a list.
        budget: time for each collective and size, such as ``150ms``.
        window: time for steps, and for products, such as ``1s``.

    Raises:
        SynclineError: an option is invalid.
    """
    if spec is None and overrides:
        raise SpecError("--set", list(overrides), "a spec whose fields these are: syncline calibrate SPEC --set ...")
    loaded_spec = None if spec is None else load_spec(spec, overrides, RunSpec, CompareSpec)
    link = None if known_network is None else network(known_network, "--network")
    if not isinstance(link, Link | None):  # a calibration cannot tell several levels apart
        raise SpecError("--network", known_network, "one link that all workers have, as 10gbe is")
    timing_options: dict[str, Any] = {}
    if sizes is not None:
        parts = [part.strip() for part in sizes.split(",")] if isinstance(sizes, str) else sizes
        timing_options["sizes"] = tuple(int(parse_bytes(number_or_text(part), "--sizes")) for part in parts)
        if link is None and len(set(timing_options["sizes"])) == 1 and min(timing_options["sizes"]) > 0:
            raise SpecError(
                "--sizes", sizes, "small and large ones, so that latency and bandwidth can be told apart; or --network"
            )
    if budget is not None:
        timing_options["budget_s"] = parse_seconds(number_or_text(budget), "--budget")
    plan_fields: dict[str, Any] = {"timing": Timing(**timing_options), "link": link, "problem": PROBLEMS["digits"]()}
    if loaded_spec is not None:
        plan_fields |= {
            "problem": loaded_spec.problem, "threads": loaded_spec.threads, "seed": loaded_spec.seeds[0],
        }  # fmt: skip
    if window is not None:
        plan_fields["window_s"] = parse_seconds(number_or_text(window), "--window")
    return Calibration(**plan_fields)


def process_counts(workers: str) -> list[int]:
    """Return the numbers of processes in a text such as ``2,4``."""
    try:
        counts = [int(number) for number in workers.split(",")]
    except ValueError:
        raise SpecError("--workers", workers, "numbers of processes separated by commas, as in 2,4") from None
    check_process_counts(counts)
    check_processes("--workers", max(counts))
    return counts


def check_process_counts(workers: Sequence[int]) -> None:
    """Refuse an empty list of numbers of processes, a number below 2, and a number that appears twice."""
    if not workers or min(workers) < 2 or len(set(workers)) < len(workers):
        raise SpecError("--workers", list(workers), "different numbers of processes of at least 2, as in 2,4")


def calibrate_warnings(workers: Sequence[int], cores: int | None = None, load: float | None = None) -> list[str]:
    """Return a line for each condition that makes times less meaningful: too few cores, or a busy machine.

    Args:
        cores: number of cores; None: those of this machine.
        load: number of processes that want to compute; None: this machine's mean over the last minute.
    """
    cores = cores or os.cpu_count() or 1
    load = os.getloadavg()[0] if load is None else load
    lines = [
        f"{processes} processes share {cores} cores: times say little about a process that has a core to itself"
        for processes in sorted(workers)
        if processes > cores
    ]
    if load > BUSY * cores:
        lines.append(f"this machine is busy (load {load:.1f} on {cores} cores): times are those of a busy machine")
    return lines
