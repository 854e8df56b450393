"""What a calibration measures, as a user says it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from syncline.backend.collective_times import TIMING_TURNS, Timing
from syncline.costmodel import Link
from syncline.errors import SpecError
from syncline.experiments.limits import check_processes
from syncline.problems import PROBLEMS, Problem
from syncline.specs import CompareSpec, RunSpec, load_spec, network
from syncline.specs.load import Overrides
from syncline.units import number_or_text, parse_bytes, parse_seconds

BUSY = 0.5
"""Of the cores; a load beyond it is worth a warning."""

PARTS = ("training steps", "matrix products", "copies", "wire formats")
"""What is measured before the collectives."""


@dataclass(frozen=True)
class Calibration:
    """What is measured.

    Args:
        problem: whose training steps are timed, see `syncline.problems`.
        threads: of each process.
        seed: of the problem.
        timing: of the collectives.
        window_s: for how long steps, and products and copies, are repeated.
        link: latency and bandwidth where they are known; else they are fitted, too.

    Raises:
        SpecError: no time to measure in.
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
    def parts(self) -> list[str]:
        """Everything that is measured, in order."""
        return [*PARTS, *(f"{kind} of {size} B" for kind, size in TIMING_TURNS * self.timing.points)]

    def identity(self) -> dict[str, Any]:
        """What has to be equal on all ranks."""
        return {"problem": repr(self.problem), "threads": self.threads, "timing": asdict(self.timing)}


def planned(
    spec: str | None = None,
    overrides: Overrides = (),
    *,
    known: Any = None,
    sizes: str | Sequence[str | float] | None = None,
    budget: str | float | None = None,
    window: str | float | None = None,
) -> Calibration:
    """What to measure, as a user says it.

    Args:
        spec: a spec with a problem, a file or a bundled one; the problem ``digits`` if none.
        overrides: of its fields.
        known: the network, where latency and bandwidth are known.
        sizes: bytes, by commas or as a list.
        budget: time for each collective and size.
        window: time for steps, and for products.

    Raises:
        SynclineError: what cannot be used.
    """
    if spec is None and overrides:
        raise SpecError("--set", list(overrides), "a spec whose fields these are: syncline calibrate SPEC --set ...")
    loaded = None if spec is None else load_spec(spec, overrides, RunSpec, CompareSpec)
    link = None if known is None else network(known, "--network")
    if not isinstance(link, Link | None):
        raise SpecError("--network", known, "one link that all workers have, as 10gbe is")
    given: dict[str, Any] = {}
    if sizes is not None:
        parts = [part.strip() for part in sizes.split(",")] if isinstance(sizes, str) else sizes
        given["sizes"] = tuple(int(parse_bytes(number_or_text(part), "--sizes")) for part in parts)
        if link is None and len(set(given["sizes"])) == 1 and min(given["sizes"]) > 0:
            raise SpecError("--sizes", sizes, "small and large ones, which tell latency from bandwidth; or --network")
    if budget is not None:
        given["budget_s"] = parse_seconds(number_or_text(budget), "--budget")
    more: dict[str, Any] = {} if window is None else {"window_s": parse_seconds(number_or_text(window), "--window")}
    if loaded is None:
        return Calibration(PROBLEMS["digits"](), timing=Timing(**given), link=link, **more)
    return Calibration(loaded.problem, loaded.threads, loaded.seeds[0], Timing(**given), link=link, **more)


def numbers_of(workers: str) -> list[int]:
    """Numbers of processes, by commas.

    Raises:
        SpecError: none of these.
    """
    try:
        given = [int(each) for each in workers.split(",")]
    except ValueError:
        raise SpecError("--workers", workers, "numbers of processes by commas, as in 2,4") from None
    check_process_counts(given)
    check_processes("--workers", max(given))
    return given


def check_process_counts(workers: Sequence[int]) -> None:
    """Refuse numbers of processes that cannot be calibrated.

    Raises:
        SpecError: none, one that is below 2, or one twice.
    """
    if not workers or min(workers) < 2 or len(set(workers)) < len(workers):
        raise SpecError("--workers", list(workers), "different numbers of processes of at least 2, as in 2,4")


def calibrate_warnings(workers: Sequence[int], cores: int | None = None, load: float | None = None) -> list[str]:
    """What is allowed but makes times that say little, a line each.

    Args:
        workers: numbers of processes.
        cores: of this machine.
        load: processes that want to compute here, as the system counts them.
    """
    cores = cores or os.cpu_count() or 1
    load = os.getloadavg()[0] if load is None else load
    lines = [
        f"{processes} processes share {cores} cores: times say little about a process by itself"
        for processes in sorted(workers)
        if processes > cores
    ]
    if load > BUSY * cores:
        lines.append(f"this machine is busy (load {load:.1f} on {cores} cores): times are those of a busy machine")
    return lines
