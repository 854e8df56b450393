"""How fast collectives are simulated, message by message: lockstep, the events, and a plain loop of SimPy processes.

    python -m benchmarks.network [--quick] [--repeats 7] [--json]

A ring all-reduce of 1 MB among P workers who enter at random times, 2 P (P - 1) messages. In *links of their own* every
worker has another latency and bandwidth, and lockstep visits each message, in compiled loops that were loaded before;
where all links are *equal* it takes rounds together, so its messages per second say only how long the answer takes. The
plain loop has one process per worker, one time-out per message and one store per worker: it prices the messages by the
same rule with no ports, no shared channels and no record of what happened.

Then one all-reduce of 1 MB by each algorithm among 1,024 such workers, called again and again: its rounds are made
ready for the network at the first call, and in *made anew* at each.

Then hierarchical all-reduces of 1 GB over 100,000 workers in nodes of 8: the peak of memory is that of all NumPy and
Python objects while the rounds are made and run.

Medians of CPU seconds of the process; SimPy loops that take seconds run once. ``--quick`` leaves those out.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from benchmarks.command import parser_of, show
from syncline.costmodel import Link
from syncline.costmodel.collectives.algorithms import FLAT
from syncline.costmodel.network.topology import Network, Topology, topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.sim import collective_finish_s, rounds, rounds_finish_s
from syncline.sim.collectives.rounds import rounds_on
from syncline.sim.lockstep.maps import run_rounds
from syncline.sim.lockstep.rings import KERNELS
from syncline.sim.lockstep.routed import forget

WORKERS = (64, 256, 1024)
NBYTES = 1e6
LINK = Link(25e-6, 1.25e9)
SLOW = 20_000
"""From so many messages on, SimPy takes seconds."""

LARGEST, NODE, LARGEST_NBYTES = 100_000, 8, 1e9
INNER, CARD = Link(2e-6, 450e9, "NVLink"), Link(3e-6, 50e9, "NDR")

Floats = NDArray[np.float64]


class Measured(NamedTuple):
    what: str
    workers: int
    messages: int
    cpu_s: float
    peak_mib: float | None = None

    @property
    def per_s(self) -> float:
        return self.messages / self.cpu_s


def cpu_s(work: Callable[[], object], repeats: int) -> float:
    """The median; the first of several fills caches and does not count."""
    taken = []
    for _ in range(repeats + 1 if repeats > 1 else 1):
        start_s = time.process_time()
        work()
        taken.append(time.process_time() - start_s)
    return statistics.median(taken[1:] or taken)


def plain_simpy(workers: int, nbytes: float, link: Link, entry_s: Floats) -> Floats:
    """The ring as one SimPy process per worker; when each is done."""
    env = simpy.Environment()
    inbox = [simpy.Store(env) for _ in range(workers)]
    done_s = np.zeros(workers)
    flow_s = nbytes / workers / float(link.goodput_bytes_per_s)

    def arrive(at: int) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(link.latency_s)
        inbox[at].put(None)

    def worker(i: int) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(entry_s[i])
        for _ in range(2 * (workers - 1)):
            yield env.timeout(flow_s)
            env.process(arrive((i + 1) % workers))
            yield inbox[i].get()
        done_s[i] = env.now

    for i in range(workers):
        env.process(worker(i))
    env.run()
    return done_s


def unequal(workers: int, rng: np.random.Generator) -> Topology:
    """Links that differ by up to a factor of two."""
    parts = rng.uniform(1.0, 2.0, (workers, 2)).tolist()
    return topology([Link(LINK.latency_s * a, LINK.bandwidth_bytes_per_s / b) for a, b in parts], workers)


def ring(workers: int, repeats: int, quick: bool) -> list[Measured]:
    """A ring among so many workers by each evaluator, after a check that they agree."""
    rng = np.random.default_rng(0)
    entry_s = rng.exponential(1e-3, workers)
    of, messages = rounds("all_reduce", workers, NBYTES), 2 * workers * (workers - 1)
    equal, own = topology(LINK, workers), unequal(workers, rng)

    def row(what: str, work: Callable[[], object], times: int = repeats) -> Measured:
        return Measured(what, workers, messages, cpu_s(work, times))

    rows = [
        row("lockstep, links of their own", lambda: run_rounds(of, own, entry_s)),
        row("lockstep, links of their own, rendezvous", lambda: run_rounds(of, own, entry_s, "rendezvous")),
        row("lockstep, equal links", lambda: run_rounds(of, equal, entry_s)),
        row("lockstep, equal links, rendezvous", lambda: run_rounds(of, equal, entry_s, "rendezvous")),
    ]
    if not (quick and messages > SLOW):
        times = 1 if messages > SLOW else min(repeats, 3)
        answers = []
        rows += [
            row("events", lambda: answers.append(rounds_finish_s(of, workers, LINK, entry_s, by="events")), times),
            row("plain SimPy loop", lambda: answers.append(plain_simpy(workers, NBYTES, LINK, entry_s)), times),
        ]
        for answer in answers:
            np.testing.assert_allclose(answer, np.maximum(*run_rounds(of, equal, entry_s)), rtol=1e-9)
    return rows


def again(algorithm: str, repeats: int) -> list[Measured]:
    """An all-reduce that comes again, with what is kept of it and without."""
    rng, workers = np.random.default_rng(0), WORKERS[-1]
    entry_s, own = rng.exponential(1e-3, workers), unequal(workers, rng)
    messages = sum(len(one.senders) for one in rounds("all_reduce", workers, NBYTES, algorithm))

    def once() -> object:
        return collective_finish_s("all_reduce", workers, NBYTES, own, algorithm, entry_s, by="lockstep")

    def anew() -> object:
        forget()
        return once()

    return [
        Measured(f"{algorithm}{what}", workers, messages, cpu_s(work, 10 * repeats))
        for what, work in ((", made anew", anew), (", again", once))
    ]


def largest(algorithm: str, network: Network, together: bool, repeats: int) -> Measured:
    """A hierarchical all-reduce over 100,000 workers; its rounds are made anew each time."""
    entry_s = np.zeros(LARGEST) if together else np.random.default_rng(0).exponential(1e-3, LARGEST)

    def work() -> int:
        forget()
        of = rounds_on("all_reduce", LARGEST, LARGEST_NBYTES, network, algorithm)
        run_rounds(of, network.among(LARGEST), entry_s)
        return sum(len(one.senders) for one in of)

    taken_s = cpu_s(work, repeats)
    tracemalloc.start()
    messages = work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    enter = "enter together" if together else "random entry times"
    return Measured(f"{algorithm}, {network.name}, {enter}", LARGEST, messages, taken_s, peak / 2**20)


def measure(repeats: int, quick: bool) -> list[Measured]:
    """All rows."""
    KERNELS.load()
    rows = [row for workers in WORKERS for row in ring(workers, repeats, quick)]
    rows += [row for algorithm in FLAT["all_reduce"] for row in again(algorithm, repeats)]
    own = TwoLevel(NODE, INNER, CARD, name="a card each")
    shared = TwoLevel(NODE, INNER, CARD, NODE // 2, "two to a card")
    for algorithm in ("hierarchical", "hierarchical-rabenseifner"):
        rows += [largest(algorithm, own, together=False, repeats=min(repeats, 5))]
        rows += [largest(algorithm, shared, together=True, repeats=min(repeats, 5))]
    return rows


def table(rows: Sequence[Measured]) -> str:
    simpy_per_s = {row.workers: row.per_s for row in rows if row.what.startswith("plain")}
    lines = [
        "| what | workers | messages | CPU seconds | messages per CPU second | of plain SimPy | peak, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = f"{row.per_s / simpy_per_s[row.workers]:.3g}" if row.workers in simpy_per_s else ""
        peak = "" if row.peak_mib is None else f"{row.peak_mib:.0f}"
        lines.append(
            f"| {row.what} | {row.workers:,} | {row.messages:.3g} | {row.cpu_s:.3g} | {row.per_s:.2g} | {ratio} "
            f"| {peak} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("benchmarks.network", __doc__)
    parser.add_argument("--quick", action="store_true", help="without what takes a minute")
    parser.add_argument("--repeats", type=int, default=7, help="of which medians are taken")
    options = parser.parse_args(arguments)
    rows = measure(options.repeats, options.quick)
    show(rows, table, options.json)


if __name__ == "__main__":
    main()
