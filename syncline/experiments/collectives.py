"""``syncline collectives``: every algorithm of a collective on a network, in closed form, in lockstep and in events."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import numpy as np

from syncline.costmodel import (
    COLLECTIVES,
    HIERARCHICAL,
    OF_GLOO,
    OF_NCCL,
    POLICIES,
    SERVERS,
    Graph,
    Link,
    Network,
    Sites,
    algorithms_on,
    chosen_algorithm,
    closed_form_s,
    collective_s,
    inner_sizes,
    wire_bytes,
)
from syncline.costmodel.bases import communicating
from syncline.costmodel.collectives.algorithms import FLAT
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.counts import most_messages
from syncline.costmodel.collectives.table import nccl_on
from syncline.errors import SpecError, one_of
from syncline.sim import collective_finish_s
from syncline.sim.lockstep.routed import Contention
from syncline.specs import network
from syncline.units import number_or_text, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS, NBYTES, NETWORK = 8, "619 MiB", "10gbe"
"""What is asked about unless said otherwise: a model of 162 million parameters in fp32."""

MOST_MESSAGES = {"lockstep": 50_000_000, "events": 50_000}
"""How many messages each evaluator plays before its column stays empty: a second's worth or two."""

MOST_ROUNDS = 20_000
"""How many rounds lockstep plays before its column stays empty: each costs some 0.1 ms, however few messages it has."""

LARGE = 1e20
"""Bytes beside which a latency is nothing, for the slope of a closed form."""

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
class CostQuestion:
    """What is asked, as the command line says it, or as Python does.

    Args:
        workers: P; unless given, as many as there are starts, as the network has places, or 8.
        nbytes: n, a size with its unit or a number of bytes, with the meaning that the collective gives it.
        networks: as `syncline.costmodel.network` takes them.
        collectives: names; all unless given.
        starts: when each worker enters, times, or text with commas between; all at 0 unless given.
        algorithms: names, or policies for what they choose; all unless given.
        rule: when a message starts, ``eager`` or ``rendezvous``.

    Raises:
        SpecError: names the option that cannot be used.
    """

    workers: int
    nbytes: float
    networks: tuple[Network, ...]
    collectives: tuple[str, ...]
    starts_s: tuple[float, ...] | None
    algorithms: tuple[str, ...] = ()
    rule: Rule = "eager"

    @classmethod
    def of(
        cls,
        workers: int | None = None,
        nbytes: str | float = NBYTES,
        networks: Sequence[Any] | None = None,
        collectives: Sequence[str] | None = None,
        starts: str | Sequence[str | float] | None = None,
        algorithms: Sequence[str] | None = None,
        rule: str = "eager",
    ) -> CostQuestion:
        """The question behind these options."""
        if workers is not None and workers < 1:
            raise SpecError("--workers", workers, "at least 1")
        for kind in collectives or ():
            if kind not in COLLECTIVES:
                raise SpecError("--collective", kind, one_of(COLLECTIVES, kind))
        if rule not in get_args(Rule):
            raise SpecError("--rule", rule, one_of(get_args(Rule), rule))
        starts_s = None if starts is None else _starts(starts, workers)
        size = parse_bytes(number_or_text(nbytes), "--bytes")
        found = tuple(network(name, "--network") for name in networks or (NETWORK,))
        question = cls(
            workers or (_places(found[0]) if starts_s is None else len(starts_s)),
            size,
            found,
            tuple(dict.fromkeys(collectives or COLLECTIVES)),
            starts_s,
            tuple(dict.fromkeys(algorithms or ())),
            cast(Rule, rule),
        )
        question._check()
        return question

    def _check(self) -> None:
        """Every network can join the workers, and every algorithm asked for is one of some collective on each."""
        for on in self.networks:
            if not isinstance(on, Link):
                on.among(self.workers)
            possible = {
                name
                for kind in self.collectives
                for name in (*algorithms_on(kind, on, self.workers), *OF_GLOO[kind], *OF_NCCL[kind])
            }
            for name in self.algorithms:
                if name in POLICIES or name in possible:
                    continue
                if any(name in HIERARCHICAL[kind] for kind in self.collectives):
                    expected = f"a network of several nodes of one size, which '{on.name}' with {self.workers} is not"
                    raise SpecError("--algorithm", name, expected)
                raise SpecError("--algorithm", name, one_of({*possible, *POLICIES}, name))

    def algorithms_of(self, kind: str, on: Network) -> tuple[str, ...]:
        """The algorithms to show; those of gloo and NCCL if asked for, or where the network knows their costs."""
        possible = algorithms_on(kind, on, self.workers)
        if not self.algorithms:
            by_nccl = () if nccl_on(on) is None else OF_NCCL[kind]
            return possible + (by_nccl if on.gloo is None else OF_GLOO[kind])
        possible += OF_GLOO[kind] + OF_NCCL[kind]
        wanted = {
            chosen_algorithm(name, kind, self.workers, self.nbytes, on) if name in POLICIES else name
            for name in self.algorithms
        }
        return tuple(name for name in possible if name in wanted)


def _places(on: Network) -> int:
    """How many workers a network is for; 8 if it does not say."""
    if isinstance(on, Graph):
        return len(on.hosts)
    return sum(on.sites) if isinstance(on, Sites) and not isinstance(on.sites, int) else WORKERS


def _starts(text: str | Sequence[str | float], workers: int | None) -> tuple[float, ...]:
    parts = text.split(",") if isinstance(text, str) else text
    if workers is not None and len(parts) != workers:
        raise SpecError(
            "--starts", text, f"{workers} times with commas between, one per worker; {len(parts)} are given"
        )
    return tuple(parse_seconds(number_or_text(part), f"--starts.{worker}") for worker, part in enumerate(parts))


def collectives(question: CostQuestion) -> dict[str, Any]:
    """The rows, one per network, collective and algorithm; the sizes at which the fastest changes; who chooses what."""
    pairs = [(on, kind) for on in question.networks for kind in question.collectives]
    return {
        "rows": [row for on, kind in pairs for row in _rows(question, kind, on)],
        "crossovers": [
            {"network": on.name, "collective": kind, "workers": question.workers} | crossover._asdict()
            for on, kind in pairs
            for crossover in crossovers(kind, question.workers, on, question.rule)
        ],
        "choices": [
            {"network": on.name, "collective": kind, "workers": question.workers, "nbytes": question.nbytes}
            | choices(question, kind, on)
            for on, kind in pairs
        ],
    }


def choices(question: CostQuestion, kind: str, on: Network) -> dict[str, str]:
    """The algorithm that each policy chooses."""
    return {name: chosen_algorithm(name, kind, question.workers, question.nbytes, on) for name in POLICIES}


def _rows(question: CostQuestion, kind: str, on: Network) -> list[dict[str, Any]]:
    workers, nbytes, rule = question.workers, question.nbytes, question.rule
    chosen = choices(question, kind, on)
    last_start_s = max(question.starts_s or (0.0,))
    rows: list[dict[str, Any]] = []
    for algorithm in question.algorithms_of(kind, on):
        closed_s = closed_form_s(kind, workers, nbytes, on, algorithm, rule)
        played = {by: _finish_s(question, kind, on, algorithm, by) for by in MOST_MESSAGES}
        finish_s = {by: None if isinstance(done, str) else done for by, done in played.items()}
        last_s = {by: None if done is None else max(done) for by, done in finish_s.items()}
        known_s = [last - last_start_s for last in last_s.values() if last is not None]
        seconds = closed_s if closed_s is not None else min(known_s, default=0.0)
        algbw = algorithm_bandwidth(kind, workers, nbytes, seconds)
        sure = communicating(on, algorithm)
        rows.append({
            "collective": kind,
            "algorithm": algorithm,
            "workers": workers,
            "nbytes": nbytes,
            "network": on.name,
            "rule": rule,
            "closed_form_s": closed_s,
            "lockstep_s": last_s["lockstep"],
            "events_s": last_s["events"],
            "bytes_per_worker": float(wire_bytes(kind, workers, nbytes, algorithm, inner_sizes(on, workers))),
            "algbw_bytes_per_s": algbw,
            "busbw_bytes_per_s": None if algbw is None else algbw * BUS_FACTORS[kind](workers),
            "chosen_by": [policy for policy, name in chosen.items() if name == algorithm],
            "contention": played["lockstep"] == CONTENTION,
            "finish_s": finish_s["lockstep"] or finish_s["events"],
            "events_finish_s": finish_s["events"],
            "low_s": sure.low * seconds,
            "high_s": sure.high * seconds,
            "basis": f"{sure.points} residuals of {sure.basis}",
        })  # fmt: skip
    least_s = [min(told_s(row, last_start_s), default=math.inf) for row in rows]
    # Equal times may differ in the last digit; of equal ones, what `auto` would take.
    equal = [row for row, seconds in zip(rows, least_s, strict=True) if seconds <= min(least_s) * (1 + 1e-9)]
    first = next((row for row in equal if "auto" in row["chosen_by"]), equal[0] if equal else None)
    return [row | {"fastest": row is first} for row in rows]


def told_s(row: dict[str, Any], last_start_s: float) -> list[float]:
    """The times of an algorithm that are known, by closed form, lockstep and events, from the last start on."""
    played = [row[name] - last_start_s for name in ("lockstep_s", "events_s") if row[name] is not None]
    return played if row["closed_form_s"] is None else [row["closed_form_s"], *played]


CONTENTION = "contention"
"""What stands for times that lockstep cannot tell."""


def _finish_s(question: CostQuestion, kind: str, on: Network, algorithm: str, by: str) -> list[float] | str | None:
    """When each worker is through; None where that many messages would take too long."""
    if most_messages(kind, algorithm, question.workers, on, question.nbytes) > MOST_MESSAGES[by]:
        return None
    if by == "lockstep" and algorithm in FLAT[kind] and FLAT[kind][algorithm].messages(question.workers) > MOST_ROUNDS:
        return None
    try:
        done: list[float] = collective_finish_s(
            kind, question.workers, question.nbytes, on, algorithm, question.starts_s, by, question.rule
        ).tolist()
    except Contention:
        return CONTENTION
    return done


def algorithm_bandwidth(kind: str, workers: int, nbytes: float, seconds: float) -> float | None:
    """Bytes per second by the size that nccl-tests counts: n, or P n for gathers; None for what takes no time.

    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md.

    >>> algorithm_bandwidth("all_gather", 4, 1e9, 2.0)
    2000000000.0
    """
    return (workers if kind in TOTALS else 1) * nbytes / seconds if seconds else None


def crossovers(kind: str, workers: int, on: Network, rule: Rule = "eager") -> list[Crossover]:
    """The sizes at which the fastest algorithm changes, from small to large.

    Every closed form is a line over n, ``a + b n``, with a from its latencies and b from its bytes, so the fastest
    follows the lower envelope of the lines, and two lines meet at

        n = (a_1 - a_2) / (b_2 - b_1).

    Parameter servers, which nobody chooses, and algorithms without a closed form are left out.

    Args:
        kind: the collective.
        workers: P.
        on: a single network; the fields of its links are numbers.
        rule: when a message starts.
    """
    lines = {}
    for algorithm in algorithms_on(kind, on, workers):
        empty_s = closed_form_s(kind, workers, 0.0, on, algorithm, rule)
        if algorithm in SERVERS or empty_s is None:
            continue
        lines[algorithm] = (
            empty_s,
            (float(collective_s(kind, workers, LARGE, on, algorithm, rule=rule)) - empty_s) / LARGE,
        )
    if not lines:
        return []
    now = min(lines, key=lines.__getitem__)  # for the smallest sizes: the least latency, then the fewest bytes
    found: list[Crossover] = []
    while True:
        empty_now_s, slope_now = lines[now]
        meets = {
            other: (empty_s - empty_now_s) / (slope_now - slope)
            for other, (empty_s, slope) in lines.items()
            if slope < slope_now * (1 - 1e-9)  # equal slopes may differ in the last digit
        }
        if not meets:
            return found
        following = min(meets, key=lambda other: (meets[other], lines[other][1]))
        if meets[following] > 0:  # without latency the rounds cost nothing, and one algorithm is always ahead
            found.append(Crossover(meets[following], now, following))
        now = following


def plot_costs(question: CostQuestion, file: Path) -> Path:
    """Draw `costs_figure` into a file.

    Raises:
        SpecError: a file of no known kind, or in a place that cannot be written to.
    """
    from syncline.analysis import save  # only here: matplotlib is slow to load

    if file.suffix.lower() not in (".pdf", ".svg", ".png"):
        raise SpecError("--plot", str(file), "a name that ends in .pdf, .svg or .png")
    figure = costs_figure(question)
    try:
        return save(figure, file)
    except OSError as error:
        raise SpecError("--plot", str(file), f"a place that can be written to ({error.strerror})") from None


def costs_figure(question: CostQuestion) -> Figure:
    """The cost of each algorithm against the size, a panel per network and collective.

    Raises:
        SpecError: nothing has a closed form.
    """
    from syncline.analysis import SizePanel, cost_against_size

    sizes = np.geomspace(*_range(question.nbytes), 201)
    panels = []
    for on in question.networks:
        for kind in question.collectives:
            costs = {
                algorithm: np.asarray(collective_s(kind, question.workers, sizes, on, algorithm, rule=question.rule))
                for algorithm in question.algorithms_of(kind, on)
                if closed_form_s(kind, question.workers, 1.0, on, algorithm, question.rule) is not None
            }
            meetings = [
                (at.nbytes, float(collective_s(kind, question.workers, at.nbytes, on, at.above, rule=question.rule)))
                for at in crossovers(kind, question.workers, on, question.rule)
                if {at.below, at.above} <= {*costs}
            ]
            title = kind if len(question.networks) == 1 else f"{kind}, {on.name}"
            if costs:
                panels.append(SizePanel(title, sizes, costs, meetings))
    if not panels:
        names = [one.name for one in question.networks]
        raise SpecError("--plot", names, "an algorithm with a closed form on this network")
    name = f" on {question.networks[0].name}" if len(question.networks) == 1 else ""
    return cost_against_size(panels, at_nbytes=question.nbytes, title=f"{question.workers:,} workers{name}")


def _range(nbytes: float) -> tuple[float, float]:
    """Decades that hold the size with some room on both sides."""
    low, high = SIZES
    if nbytes > 0:
        low, high = min(low, 10.0 ** np.floor(np.log10(nbytes) - 1)), max(high, 10.0 ** np.ceil(np.log10(nbytes) + 1))
    return low, high
