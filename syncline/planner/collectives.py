"""The command ``syncline collectives``: algorithms on a network, in closed form, lockstep and events."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import numpy as np

from syncline.costmodel import (
    COLLECTIVES,
    HIERARCHICAL,
    OF_DIRECT,
    OF_GLOO,
    OF_NCCL,
    POLICIES,
    SERVERS,
    Link,
    Network,
    algorithms_on,
    chosen_algorithm,
    closed_form_s,
    collective_s,
    inner_sizes,
    wire_bytes,
)
from syncline.costmodel.bases import communication_uncertainty
from syncline.costmodel.collectives.cost import Rule
from syncline.costmodel.collectives.prices import group_algorithm
from syncline.costmodel.collectives.table import TIMED_AS_A_WHOLE, default_algorithm
from syncline.costmodel.collectives.volumes import most_messages, repeats_rounds
from syncline.errors import SpecError, one_of, require_one_of
from syncline.fields import MANY
from syncline.planner.transfer import Transfer, transfers
from syncline.sim import collective_finish_s
from syncline.sim.clocks.single_collective import simulated_s
from syncline.sim.lockstep.routed import Contention
from syncline.specs import network as parse_network
from syncline.specs.cluster.clusters import worker_count
from syncline.units import number_or_text, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS, NBYTES, NETWORK = 8, "619 MiB", "10gbe"
"""Defaults of the question: a model of 162 million parameters in fp32."""

MOST_MESSAGES = {"lockstep": 30_000_000, "events": 4_500_000}
"""Largest number of messages that each evaluator simulates; above it, its column stays empty.

So many take at most 3 s on one core: lockstep simulates 14 million messages of a pairwise exchange per second, in
0.8 GiB for this number, and events 1.5 to 2.3 million of different algorithms among workers that start together."""

MOST_REPEATED_MESSAGES = {"lockstep": 8_600_000_000, "events": 13_000_000}
"""`MOST_MESSAGES` of algorithms with equal rounds, such as a ring: 2.6 billion and 4.3 million messages per second."""


def message_limit(evaluator: str, network: Network, kind: str, algorithm: str) -> float:
    """Return the largest number of messages of a collective that an evaluator simulates."""
    if not repeats_rounds(kind, algorithm):
        return MOST_MESSAGES[evaluator]
    if evaluator == "lockstep" and isinstance(network, Link) and network.duplex == "full":
        return math.inf  # 20,000,000,000 messages among 100,000 workers take 0.05 s
    return MOST_REPEATED_MESSAGES[evaluator]


LARGE_BYTES = 1e20
"""Size next to which a latency is negligible, for the slope of a closed form."""

FIGURE_BYTES = 1e2, 1e10
"""Range of sizes that the figure has, if the size of the question is well within it."""

POINTS_PER_CURVE = 201
"""Number of sizes at which the figure draws a cost."""

RING_LAPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "gather": 1}
"""Number of times that a ring carries (P - 1) / P of the tensor, by collective."""


def bus_factor(kind: str, workers: int) -> float:
    """Return the bus bandwidth of a collective, divided by its algorithm bandwidth: 1 for a broadcast and a reduce.

    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md; gather: src/gather.cu.

    >>> bus_factor("all_reduce", 4), bus_factor("broadcast", 4)
    (1.5, 1.0)
    """
    if kind not in RING_LAPS:
        return 1.0
    return RING_LAPS[kind] * (workers - 1) / workers


class Crossover(NamedTuple):
    """A size at which the fastest algorithm changes: ``below`` up to ``nbytes``, ``above`` from there on."""

    nbytes: float
    below: str
    above: str


@dataclass(frozen=True)
class CostQuestion:
    """A question about the costs of collectives, from the command line or from Python.

    Args:
        workers: P, the number of workers.
        nbytes: n, the size in bytes as each collective defines it.
        networks: networks that join the workers.
        starts_s: start of each worker in seconds; None: all start at 0.
        algorithms: names, or policies for the algorithms that they choose; empty: all.
        protocol: ``eager`` or ``rendezvous``, which decides when a message starts.
    """

    workers: int
    nbytes: float
    networks: tuple[Network, ...]
    collectives: tuple[str, ...]
    starts_s: tuple[float, ...] | None
    algorithms: tuple[str, ...] = ()
    protocol: Rule = "eager"

    @classmethod
    def from_options(
        cls,
        workers: int | None = None,
        nbytes: str | float = NBYTES,
        networks: Sequence[Any] | None = None,
        collectives: Sequence[str] | None = None,
        starts: str | Sequence[str | float] | None = None,
        algorithms: Sequence[str] | None = None,
        protocol: str = "eager",
    ) -> CostQuestion:
        """Return the question that the options of ``syncline collectives`` ask, after a check of their values.

        The default number of workers is that of ``starts``, else of the first network's places, else `WORKERS`.
        """
        if workers is not None and not 1 <= workers <= MANY:
            raise SpecError("--workers", workers, f"at least 1, and at most {MANY:,}")
        for kind in collectives or ():
            require_one_of("--collective", kind, COLLECTIVES)
        require_one_of("--protocol", protocol, get_args(Rule))
        starts_s: tuple[float, ...] | None = None
        if starts is not None:
            parts = starts.split(",") if isinstance(starts, str) else starts
            if workers is not None and len(parts) != workers:
                expected = f"{workers} times separated by commas, one per worker; {len(parts)} are given"
                raise SpecError("--starts", starts, expected)
            starts_s = tuple(parse_seconds(number_or_text(part), f"--starts.{i}") for i, part in enumerate(parts))
        parsed_networks = tuple(parse_network(name, "--network") for name in networks or (NETWORK,))
        if workers is None and starts_s is not None:
            workers = len(starts_s)
        question = cls(
            workers=workers or worker_count(parsed_networks[0]) or WORKERS,
            nbytes=parse_bytes(number_or_text(nbytes), "--bytes"), networks=parsed_networks,
            collectives=tuple(dict.fromkeys(collectives or COLLECTIVES)), starts_s=starts_s,
            algorithms=tuple(dict.fromkeys(algorithms or ())), protocol=cast(Rule, protocol),
        )  # fmt: skip
        question._check_algorithms()
        return question

    def _check_algorithms(self) -> None:
        """Refuse a network that cannot join the workers, or an algorithm that no collective has on a network."""
        for network in self.networks:
            if not isinstance(network, Link):
                network.among(self.workers)
            permitted = {name for kind in self.collectives for name in self._permitted_algorithms(kind, network)}
            for name in self.algorithms:
                if name in POLICIES or name in permitted:
                    continue
                if any(name in HIERARCHICAL[kind] for kind in self.collectives):
                    nodes = "a network of several nodes of one size"
                    expected = f"{nodes}, which '{network.name}' with {self.workers} is not"
                    raise SpecError("--algorithm", name, expected)
                raise SpecError("--algorithm", name, one_of({*permitted, *POLICIES}, name))

    def _permitted_algorithms(self, kind: str, network: Network) -> tuple[str, ...]:
        """Return the algorithms of a collective that a network permits: general ones, then those of gloo and NCCL."""
        return algorithms_on(kind, network, self.workers) + OF_DIRECT[kind] + OF_GLOO[kind] + OF_NCCL[kind]

    def algorithms_of(self, kind: str, network: Network) -> tuple[str, ...]:
        """Return the algorithms to show, by default the general ones and the one that the network's library uses."""
        if not self.algorithms:
            general_algorithms = algorithms_on(kind, network, self.workers)
            default = default_algorithm(kind, network)
            return general_algorithms if default in general_algorithms else (*general_algorithms, default)
        requested = {
            chosen_by(name, kind, self.workers, self.nbytes, network) if name in POLICIES else name
            for name in self.algorithms
        }
        return tuple(name for name in self._permitted_algorithms(kind, network) if name in requested)


def compute_costs(question: CostQuestion) -> dict[str, Any]:
    """Return rows, one per network, collective and algorithm; the sizes of crossovers; the choice of each policy."""
    rows: list[dict[str, Any]] = []
    crossover_rows: list[dict[str, Any]] = []
    choice_rows: list[dict[str, Any]] = []
    for network, kind in itertools.product(question.networks, question.collectives):
        setting = {"network": network.name, "collective": kind, "workers": question.workers}
        rows += _rows(question, kind, network)
        for crossover in crossovers(kind, question.workers, network, question.protocol):
            crossover_rows.append(setting | crossover._asdict())
        choice_rows.append(setting | {"nbytes": question.nbytes} | choices(question, kind, network))
    return {"rows": rows, "crossovers": crossover_rows, "choices": choice_rows}


def transferred_parts(question: CostQuestion) -> tuple[Transfer, ...]:
    """Return the parts of the answer that lie outside of what was measured."""
    workers, nbytes = question.workers, question.nbytes
    return transfers(
        ("communication", communication_uncertainty(network, algorithm, workers, nbytes))
        for network in question.networks
        for kind in question.collectives
        for algorithm in question.algorithms_of(kind, network)
    )


def choices(question: CostQuestion, kind: str, network: Network) -> dict[str, str]:
    """Return the algorithm that each policy chooses, by the name of the policy."""
    return {name: chosen_by(name, kind, question.workers, question.nbytes, network) for name in POLICIES}


def chosen_by(policy: str, kind: str, workers: int, nbytes: float, network: Network) -> str:
    """Return the algorithm that a policy chooses; ``auto`` simulates if no algorithm has a closed form."""
    name = group_algorithm(kind, range(workers), workers, nbytes, network, algorithms=policy, timer=simulated_s)
    return name or chosen_algorithm(policy, kind, workers, nbytes, network)


def _rows(question: CostQuestion, kind: str, network: Network) -> list[dict[str, Any]]:
    """Return a row for each algorithm of a collective on a network; ``fastest`` marks the row with the least time."""
    algorithm_choices = choices(question, kind, network)
    algorithms = question.algorithms_of(kind, network)
    rows = [_row(question, kind, network, algorithm, algorithm_choices) for algorithm in algorithms]
    last_start_s = max(question.starts_s or (0.0,))
    times_s = [min(_known_times_s(row, last_start_s), default=math.inf) for row in rows]
    least_s = min(times_s, default=math.inf) * (1 + 1e-9)  # equal times may differ in the last digit
    fastest = [index for index, seconds in enumerate(times_s) if seconds <= least_s]
    # If several rows are fastest, the row that the policy `auto` chooses is marked, or else the first of them.
    marked = [index for index in fastest if "auto" in rows[index]["chosen_by"]] or fastest
    return [row | {"fastest": index in marked[:1]} for index, row in enumerate(rows)]


def _row(
    question: CostQuestion, kind: str, network: Network, algorithm: str, algorithm_choices: Mapping[str, str]
) -> dict[str, Any]:
    """Return the times, bytes and bandwidths of an algorithm; ``algorithm_choices`` has each policy's choice."""
    workers, nbytes = question.workers, question.nbytes
    closed_s = closed_form_s(kind, workers, nbytes, network, algorithm, rule=question.protocol)
    lockstep_finish_s, has_contention = None, False
    try:
        lockstep_finish_s = _finish_s(question, kind, network, algorithm, "lockstep")
    except Contention:
        has_contention = True
    events_finish_s = _finish_s(question, kind, network, algorithm, "events")
    lockstep_s = None if lockstep_finish_s is None else max(lockstep_finish_s)
    events_s = None if events_finish_s is None else max(events_finish_s)
    times = {"closed_form_s": closed_s, "lockstep_s": lockstep_s, "events_s": events_s}
    known_s = _known_times_s(times, last_start_s=max(question.starts_s or (0.0,)))
    seconds = closed_s if closed_s is not None else min(known_s, default=0.0)
    algbw = algorithm_bandwidth(kind, workers, nbytes, seconds)
    uncertainty = communication_uncertainty(network, algorithm, workers, nbytes)
    return {
        "collective": kind,
        "algorithm": algorithm,
        "workers": workers,
        "nbytes": nbytes,
        "network": network.name,
        "protocol": question.protocol,
        **times,
        "bytes_per_worker": float(wire_bytes(kind, workers, nbytes, algorithm, group=inner_sizes(network, workers))),
        "algbw_bytes_per_s": algbw,
        "busbw_bytes_per_s": None if algbw is None else algbw * bus_factor(kind, workers),
        "chosen_by": [policy for policy, name in algorithm_choices.items() if name == algorithm],
        "contention": has_contention,
        "finish_s": lockstep_finish_s or events_finish_s,
        "events_finish_s": events_finish_s,
        "low_s": uncertainty.low * seconds,
        "high_s": uncertainty.high * seconds,
        "basis": f"{uncertainty.points} residuals of {uncertainty.basis}",
    }  # fmt: skip


def _known_times_s(row: dict[str, Any], last_start_s: float) -> list[float]:
    """Return the known times of an algorithm, by closed form, lockstep and events, from the last start on."""
    times_s = [row["closed_form_s"]]  # all workers of a closed form start together
    times_s += [None if row[name] is None else row[name] - last_start_s for name in ("lockstep_s", "events_s")]
    return [time_s for time_s in times_s if time_s is not None]


def _finish_s(
    question: CostQuestion, kind: str, network: Network, algorithm: str, evaluator: str
) -> list[float] | None:
    """Return each worker's finish time in seconds by ``lockstep`` or ``events``; None above its `message_limit`.

    Raises:
        Contention: messages meet on a shared link, so that lockstep cannot time them.
    """
    num_messages = most_messages(kind, algorithm, question.workers, network, question.nbytes)
    if num_messages > message_limit(evaluator, network, kind, algorithm):
        return None
    finish_s: list[float] = collective_finish_s(
        kind, question.workers, question.nbytes, network, algorithm, question.starts_s, evaluator,
        rule=question.protocol,
    ).tolist()  # fmt: skip
    return finish_s


def algorithm_bandwidth(kind: str, workers: int, nbytes: float, seconds: float) -> float | None:
    """Return the bytes per second that nccl-tests reports; None if the time is zero.

    A worker contributes n bytes. For gathers, nccl-tests counts the P n bytes of the result, else n bytes.
    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md.

    >>> algorithm_bandwidth("all_gather", 4, 1e9, 2.0)
    2000000000.0
    """
    if not seconds:
        return None
    return (workers * nbytes if kind in ("all_gather", "gather") else nbytes) / seconds


def crossovers(kind: str, workers: int, network: Network, protocol: Rule = "eager") -> list[Crossover]:
    """Return the sizes at which the fastest algorithm changes, from small to large.

    Every closed form is a line over n, ``a + b n``, with a from its latencies and b from its bytes, so the fastest
    follows the lower envelope of the lines, and two lines meet at

        n = (a_1 - a_2) / (b_2 - b_1).

    Parameter servers, measured times and algorithms without a closed form are left out.

    Args:
        workers: number of workers P.
        network: a single network; the fields of its links are numbers.
        protocol: ``eager`` or ``rendezvous``, which decides when a message starts.
    """
    empty_s: dict[str, float] = {}  # a, by algorithm
    slopes: dict[str, float] = {}  # b
    for algorithm in algorithms_on(kind, network, workers):
        latency_s = closed_form_s(kind, workers, nbytes=0.0, network=network, algorithm=algorithm, rule=protocol)
        if algorithm in (*SERVERS, *TIMED_AS_A_WHOLE) or latency_s is None:
            continue
        large_s = float(collective_s(kind, workers, LARGE_BYTES, network, algorithm, rule=protocol))
        empty_s[algorithm], slopes[algorithm] = latency_s, (large_s - latency_s) / LARGE_BYTES
    if not empty_s:
        return []
    fastest = min(empty_s, key=lambda name: (empty_s[name], slopes[name]))  # at the smallest sizes
    changes: list[Crossover] = []
    while True:
        meeting_bytes = {}
        for name, slope in slopes.items():
            if slope < slopes[fastest] * (1 - 1e-9):  # equal slopes may differ in the last digit
                meeting_bytes[name] = (empty_s[name] - empty_s[fastest]) / (slopes[fastest] - slope)
        if not meeting_bytes:
            return changes
        next_fastest = min(meeting_bytes, key=lambda name: (meeting_bytes[name], slopes[name]))
        if meeting_bytes[next_fastest] > 0:  # lines of equal latency meet at 0
            changes.append(Crossover(meeting_bytes[next_fastest], below=fastest, above=next_fastest))
        fastest = next_fastest


def costs_figure(question: CostQuestion) -> Figure:
    """Return the figure of each algorithm's cost against the size, a panel per network and collective."""
    from syncline.analysis import SizePanel, cost_against_size

    workers, protocol = question.workers, question.protocol
    low, high = FIGURE_BYTES
    if question.nbytes > 0:  # a decade on each side of the question's size
        low = min(low, 10.0 ** np.floor(np.log10(question.nbytes) - 1))
        high = max(high, 10.0 ** np.ceil(np.log10(question.nbytes) + 1))
    sizes = np.geomspace(low, high, POINTS_PER_CURVE)
    panels = []
    for network, kind in itertools.product(question.networks, question.collectives):
        seconds = {}
        for algorithm in question.algorithms_of(kind, network):
            # An algorithm has a closed form for all sizes or for none.
            if closed_form_s(kind, workers, 1.0, network, algorithm, rule=protocol) is not None:
                seconds[algorithm] = np.asarray(collective_s(kind, workers, sizes, network, algorithm, rule=protocol))
        points = []
        for crossover in crossovers(kind, workers, network, protocol):
            if crossover.below in seconds and crossover.above in seconds:
                cost_s = collective_s(kind, workers, crossover.nbytes, network, crossover.above, rule=protocol)
                points.append((crossover.nbytes, float(cost_s)))
        if seconds:
            title = kind if len(question.networks) == 1 else f"{kind}, {network.name}"
            panels.append(SizePanel(title, sizes, seconds=seconds, crossovers=points))
    if not panels:
        names = [network.name for network in question.networks]
        raise SpecError("--plot", names, "an algorithm with a closed form on this network")
    name = f" on {question.networks[0].name}" if len(question.networks) == 1 else ""
    return cost_against_size(panels, at_nbytes=question.nbytes, title=f"{workers:,} workers{name}")
