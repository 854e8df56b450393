"""How fast collectives are simulated, message by message: the events, lockstep, and a plain loop of SimPy processes.

    python -m benchmarks.network [--quick] [--repeats 5] [--json]

Collectives of 1 MB among P workers who enter at random times, each with a link of its own latency and bandwidth. A ring
is 2 P (P - 1) messages; `equal-links` is one where all links are the same, so that lockstep takes rounds together and
its messages per second say only how long the answer takes. In `shared-link` 64 workers of one site send to 64 of
another over the one link of their site, 200 messages each: 64 flows share it at any time; in `shared-link-programs`
they are programs of sends and receives. `tree` is up and down a binomial tree, `server-naive` through one server.

Every repetition has another size, so that the making of rounds and routes counts each time and nothing that is kept
from before helps; the first repetition, which compiles, does not count, and compiled loops of lockstep are loaded
before it, as a process does that has had 2^28 messages. Medians of CPU seconds of the process.

The plain loop has one process per worker, one time-out per message and one store per worker: it prices the messages by
the same rule with no ports, no shared channels and no record of what happened. Hierarchical all-reduces of 1 GB over
100,000 workers in nodes of 8 tell the peak of memory, of all NumPy and Python objects, too.
"""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from benchmarks.command import cpu_s, parser_of, show
from syncline.costmodel import Link, Sites
from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.network.link import topology
from syncline.costmodel.network.paths import Topology
from syncline.costmodel.network.two_level import TwoLevel
from syncline.sim import Recv, Send, collective_finish_s, rounds, rounds_finish_s, run_events
from syncline.sim.lockstep.rings import KERNELS
from syncline.sim.program.rounds import rounds_on

WORKERS = 1024
NBYTES = 1e6
LINK = Link(25e-6, 1.25e9)
FLOWS, EACH = 64, 200
LARGEST, NODE, LARGEST_NBYTES = 100_000, 8, 1e9
INNER, CARD = Link(2e-6, 450e9, "NVLink"), Link(3e-6, 50e9, "NDR")

Floats = NDArray[np.float64]
Simulate = Callable[[float], object]
"""With so many bytes more than usual."""


class Measured(NamedTuple):
    """A case, who evaluated it, and CPU seconds of one evaluation."""

    case: str
    evaluator: str
    workers: int
    messages: int
    cpu_s: float
    messages_per_s: float
    peak_mib: float | None = None


def measured(
    case: str, evaluator: str, workers: int, messages: int, simulate: Simulate, repeats: int, peak: bool = False
) -> Measured:
    """The median after one that does not count."""
    taken = [cpu_s(partial(simulate, float(number))) for number in range(repeats + 1)]
    peak_mib = None
    if peak:
        tracemalloc.start()
        simulate(repeats + 1.0)
        peak_mib = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    median_s = statistics.median(taken[1:])
    return Measured(case, evaluator, workers, messages, median_s, messages / median_s, peak_mib)


def messages_of(of: Sequence[Round]) -> int:
    """How many messages rounds are."""
    return sum(len(one.senders) for one in of)


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


def own_links(workers: int, rng: np.random.Generator) -> Topology:
    """Links that differ by up to a factor of two."""
    parts = rng.uniform(1.0, 2.0, (workers, 2)).tolist()
    return topology([Link(LINK.latency_s * a, LINK.bandwidth_bytes_per_s / b) for a, b in parts], workers)


def collectives(case: str, algorithm: str, network: Topology, repeats: int) -> list[Measured]:
    """One all-reduce by both evaluators, after a check that they agree."""
    workers = network.workers
    entry_s = np.random.default_rng(0).exponential(1e-3, workers)
    messages = messages_of(rounds("all_reduce", workers, NBYTES, algorithm))
    both = {
        by: lambda more, by=by: collective_finish_s(
            "all_reduce", workers, NBYTES + more, network, algorithm, entry_s, evaluator=by
        )
        for by in ("events", "lockstep")
    }
    np.testing.assert_allclose(both["events"](0.5), both["lockstep"](0.5), rtol=1e-9)
    return [measured(case, by, workers, messages, simulate, repeats) for by, simulate in both.items()]


def shared_link(repeats: int) -> Measured:
    """Many flows over one link, of sizes that differ, so that they begin and end at all times."""
    sizes = np.random.default_rng(1).uniform(0.5, 1.5, (EACH, FLOWS)) * NBYTES / EACH
    network = Sites(2, Link(5e-6, 1.25e9), LINK).among(2 * FLOWS)
    senders = np.arange(FLOWS)

    def simulate(more: float) -> Floats:
        of = [Round(senders, senders + FLOWS, size + more) for size in sizes]
        return rounds_finish_s(of, 2 * FLOWS, network, evaluator="events")

    return measured("shared-link", "events", FLOWS, FLOWS * EACH, simulate, repeats)


def shared_link_programs(repeats: int) -> Measured:
    """The same, as programs: the making of the instructions does not count, their assembly does."""
    sizes = np.random.default_rng(1).uniform(0.5, 1.5, (FLOWS, EACH)) * NBYTES / EACH
    network = Sites(2, Link(5e-6, 1.25e9), LINK).among(2 * FLOWS)
    sends = [[Send(FLOWS + i, size, tag) for tag, size in enumerate(own)] for i, own in enumerate(sizes.tolist())]
    receives = [[Recv(i, tag) for tag in range(EACH)] for i in range(FLOWS)]
    programs = sends + receives
    return measured(
        "shared-link-programs",
        "events",
        2 * FLOWS,
        FLOWS * EACH,
        lambda more: run_events(programs, network, starts_s=more),
        repeats,
    )


def plain(workers: int) -> Measured:
    """The yardstick, which nobody would call fast."""
    entry_s = np.random.default_rng(0).exponential(1e-3, workers)
    messages = 2 * workers * (workers - 1)
    return measured(
        "equal-links",
        "plain SimPy",
        workers,
        messages,
        lambda more: plain_simpy(workers, NBYTES + more, LINK, entry_s),
        1,
    )


def largest(algorithm: str, evaluator: str, repeats: int) -> Measured:
    """A hierarchical all-reduce over 100,000 workers, each with a card of its own."""
    network = TwoLevel(NODE, INNER, CARD, name="a card each").among(LARGEST)
    entry_s = np.random.default_rng(0).exponential(1e-3, LARGEST)
    messages = messages_of(rounds_on("all_reduce", LARGEST, LARGEST_NBYTES, network, algorithm))

    def simulate(more: float) -> Floats:
        return collective_finish_s(
            "all_reduce", LARGEST, LARGEST_NBYTES + more, network, algorithm, entry_s, evaluator=evaluator
        )

    return measured(algorithm, evaluator, LARGEST, messages, simulate, repeats, peak=True)


def measure(repeats: int, quick: bool) -> list[Measured]:
    """All rows."""
    KERNELS.load()
    own, equal = own_links(WORKERS, np.random.default_rng(0)), topology(LINK, WORKERS)
    rows = collectives("ring", "ring", own, repeats)
    for algorithm in ("rabenseifner", "tree", "double-binary-tree", "server-naive", "server-efficient"):
        rows += collectives(algorithm, algorithm, own, repeats)
    rows += [shared_link(repeats), shared_link_programs(repeats)]
    if quick:
        return rows
    rows += [*collectives("equal-links", "ring", equal, repeats), plain(256)]
    rows += collectives("tree", "tree", own_links(8 * WORKERS, np.random.default_rng(0)), repeats)
    rows += [largest("hierarchical", "lockstep", repeats), largest("hierarchical-rabenseifner", "lockstep", repeats)]
    return [*rows, largest("hierarchical-rabenseifner", "events", 1)]


def table(rows: Sequence[Measured]) -> str:
    lines = [
        "| case | evaluator | workers | messages | CPU seconds | messages per CPU second | peak, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        peak = "" if row.peak_mib is None else f"{row.peak_mib:.0f}"
        lines.append(
            f"| {row.case} | {row.evaluator} | {row.workers:,} | {row.messages:.3g} | {row.cpu_s:.3g} "
            f"| {row.messages_per_s:.2g} | {peak} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of("benchmarks.network", __doc__)
    parser.add_argument("--quick", action="store_true", help="without what takes a minute")
    parser.add_argument("--repeats", type=int, default=5, help="of which medians are taken")
    options = parser.parse_args(arguments)
    show(measure(options.repeats, options.quick), table, options.json)


if __name__ == "__main__":
    main()
