"""``syncline collectives``: every algorithm of a collective on a network, in closed form, in lockstep and in events."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import (
    ALGORITHMS,
    COLLECTIVES,
    Link,
    best_algorithm,
    collective_s,
    network,
    rounds_and_block,
    wire_bytes,
)
from syncline.errors import SpecError, one_of
from syncline.sim import collective_finish_s
from syncline.units import parse_bytes, parse_seconds

WORKERS, NBYTES, NETWORK = 8, "619 MiB", "10gbe"
"""What is asked about unless said otherwise: a model of 162 million parameters in fp32."""

MOST_MESSAGES = {"lockstep": 50_000_000, "events": 50_000}
"""How many messages each evaluator plays before its column stays empty: a second's worth or two."""

SIZES = 1e2, 1e10
"""Bytes from and to which the figure is drawn, if the asked size is well within."""

BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda workers: 2 * (workers - 1) / workers,
    "all_gather": lambda workers: (workers - 1) / workers,
    "reduce_scatter": lambda workers: (workers - 1) / workers,
    "all_to_all": lambda workers: (workers - 1) / workers,
    "broadcast": lambda _: 1.0,
    "gather": lambda workers: (workers - 1) / workers,
}
"""Bus bandwidth over algorithm bandwidth. Source: NVIDIA nccl-tests, doc/PERFORMANCE.md; gather: src/gather.cu."""

TOTALS = ("all_gather", "gather")
"""Collectives of which nccl-tests counts the whole result, P n bytes, where n is what each worker contributes."""


class Crossover(NamedTuple):
    """From ``nbytes`` on, ``above`` is the fastest algorithm; up to it, ``below`` was."""

    nbytes: float
    below: str
    above: str


@dataclass(frozen=True)
class Question:
    """What is asked, as the command line says it.

    Args:
        workers: P; unless given, as many as there are starts, or 8.
        nbytes: n, a size with its unit or a number of bytes, with the meaning that the collective gives it.
        networks: as `syncline.costmodel.network` takes them; each must be a link.
        collectives: names; all unless given.
        starts: when each worker enters, with commas between; all at 0 unless given.

    Raises:
        SpecError: names the option that cannot be used.
    """

    workers: int
    nbytes: float
    links: tuple[Link, ...]
    collectives: tuple[str, ...]
    starts_s: tuple[float, ...] | None

    @classmethod
    def of(
        cls,
        workers: int | None = None,
        nbytes: str = NBYTES,
        networks: Sequence[str] | None = None,
        collectives: Sequence[str] | None = None,
        starts: str | None = None,
    ) -> Question:
        """The question behind these options."""
        if workers is not None and workers < 1:
            raise SpecError("--workers", workers, "at least 1")
        for kind in collectives or ():
            if kind not in COLLECTIVES:
                raise SpecError("--collective", kind, one_of(COLLECTIVES, kind))
        starts_s = None if starts is None else _starts(starts, workers)
        return cls(
            workers or (WORKERS if starts_s is None else len(starts_s)),
            parse_bytes(_number(nbytes), "--bytes"),
            tuple(network(name, "--network") for name in networks or (NETWORK,)),
            tuple(dict.fromkeys(collectives or COLLECTIVES)),
            starts_s,
        )


def _number(text: str) -> str | float:
    """A plain number as one, which is bytes or seconds; anything else stays text, to be read with its unit."""
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _starts(text: str, workers: int | None) -> tuple[float, ...]:
    parts = text.split(",")
    if workers is not None and len(parts) != workers:
        raise SpecError(
            "--starts", text, f"{workers} times with commas between, one per worker; {len(parts)} are given"
        )
    return tuple(parse_seconds(_number(part), f"--starts.{worker}") for worker, part in enumerate(parts))


def collectives(question: Question) -> dict[str, Any]:
    """The rows, one per network, collective and algorithm, and the sizes at which the fastest algorithm changes."""
    pairs = [(link, kind) for link in question.links for kind in question.collectives]
    return {
        "rows": [row for link, kind in pairs for row in _rows(question, kind, link)],
        "crossovers": [
            {"network": link.name, "collective": kind, "workers": question.workers} | crossover._asdict()
            for link, kind in pairs
            for crossover in crossovers(kind, question.workers, link)
        ],
    }


def _rows(question: Question, kind: str, link: Link) -> list[dict[str, Any]]:
    workers, nbytes = question.workers, question.nbytes
    fastest = best_algorithm(kind, workers, nbytes, link)
    rows = []
    for algorithm in ALGORITHMS[kind]:
        seconds = float(collective_s(kind, workers, nbytes, link, algorithm))
        finish_s = {by: _finish_s(question, kind, link, algorithm, by) for by in MOST_MESSAGES}
        last_s = {by: None if done is None else max(done) for by, done in finish_s.items()}
        algbw = algorithm_bandwidth(kind, workers, nbytes, seconds)
        rows.append({
            "collective": kind,
            "algorithm": algorithm,
            "workers": workers,
            "nbytes": nbytes,
            "network": link.name,
            "closed_form_s": seconds,
            "lockstep_s": last_s["lockstep"],
            "events_s": last_s["events"],
            "bytes_per_worker": float(wire_bytes(kind, workers, nbytes, algorithm)),
            "algbw_bytes_per_s": algbw,
            "busbw_bytes_per_s": None if algbw is None else algbw * BUS_FACTORS[kind](workers),
            "fastest": algorithm == fastest,
            "finish_s": finish_s["lockstep"],
            "events_finish_s": finish_s["events"],
        })  # fmt: skip
    return rows


def _finish_s(question: Question, kind: str, link: Link, algorithm: str, by: str) -> list[float] | None:
    """When each worker is through; None where that many messages would take too long."""
    messages = int(rounds_and_block(kind, question.workers, question.nbytes, algorithm)[0]) * question.workers
    if messages > MOST_MESSAGES[by]:
        return None
    done: list[float] = collective_finish_s(
        kind, question.workers, question.nbytes, link, algorithm, starts_s=question.starts_s, by=by
    ).tolist()
    return done


def algorithm_bandwidth(kind: str, workers: int, nbytes: float, seconds: float) -> float | None:
    """Bytes per second by the size that nccl-tests counts: n, or P n for gathers; None for what takes no time.

    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md.

    >>> algorithm_bandwidth("all_gather", 4, 1e9, 2.0)
    2000000000.0
    """
    return (workers if kind in TOTALS else 1) * nbytes / seconds if seconds else None


def crossovers(kind: str, workers: int, link: Link) -> list[Crossover]:
    """The sizes at which the fastest algorithm changes, from small to large.

    Every closed form is a line over n, ``rounds * alpha + n * slope / B`` with ``slope = rounds * block(n = 1)``, so
    the fastest follows the lower envelope of the lines, and two lines meet at

        n = alpha B (rounds_a - rounds_b) / (slope_b - slope_a).

    Args:
        kind: the collective.
        workers: P.
        link: a single one; its latency and bandwidth are numbers.
    """
    lines = {}
    for algorithm in ALGORITHMS[kind]:
        rounds, block = rounds_and_block(kind, workers, 1.0, algorithm)
        lines[algorithm] = int(rounds), float(rounds * block)
    now = min(lines, key=lines.__getitem__)  # for the smallest sizes: the fewest rounds, then the fewest bytes
    found: list[Crossover] = []
    while True:
        rounds_now, slope_now = lines[now]
        meets = {
            other: float(link.latency_s * link.bandwidth_bytes_per_s) * (rounds - rounds_now) / (slope_now - slope)
            for other, (rounds, slope) in lines.items()
            if slope < slope_now * (1 - 1e-12)  # equal slopes may differ in the last digit
        }
        if not meets:
            return found
        following = min(meets, key=lambda other: (meets[other], lines[other][1]))
        if meets[following] > 0:  # without latency the rounds cost nothing, and one algorithm is always ahead
            found.append(Crossover(meets[following], now, following))
        now = following


def plot(question: Question, file: Path) -> Path:
    """Draw the cost of each algorithm against the size, a panel per network and collective.

    Raises:
        SpecError: a file of no known kind, or in a place that cannot be written to.
    """
    from syncline.analysis import SizePanel, cost_against_size, save  # only here: matplotlib is slow to load

    if file.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise SpecError("--plot", str(file), "a name that ends in .pdf, .svg or .png")
    sizes = np.geomspace(*_range(question.nbytes), 201)
    panels = []
    for link in question.links:
        for kind in question.collectives:
            costs = {
                algorithm: np.asarray(collective_s(kind, question.workers, sizes, link, algorithm))
                for algorithm in ALGORITHMS[kind]
            }
            meetings = [
                (at.nbytes, float(collective_s(kind, question.workers, at.nbytes, link, at.above)))
                for at in crossovers(kind, question.workers, link)
            ]
            title = kind if len(question.links) == 1 else f"{kind}, {link.name}"
            panels.append(SizePanel(title, sizes, costs, meetings))
    name = f" on {question.links[0].name}" if len(question.links) == 1 else ""
    figure = cost_against_size(panels, at_nbytes=question.nbytes, title=f"{question.workers:,} workers{name}")
    try:
        return save(figure, file)
    except OSError as error:
        raise SpecError("--plot", str(file), f"a place that can be written to ({error.strerror})") from None


def _range(nbytes: float) -> tuple[float, float]:
    """Decades that hold the size with some room on both sides."""
    low, high = SIZES
    if nbytes > 0:
        low, high = min(low, 10.0 ** np.floor(np.log10(nbytes) - 1)), max(high, 10.0 ** np.ceil(np.log10(nbytes) + 1))
    return low, high
