"""Collectives against SimGrid 3.32 and a recurrence that nobody here wrote.

Every row is compared but those of start_rules.csv by the rule r2, by which a sender does not wait for its own last
message to leave: no rule here. The times that SimGrid itself gives by r3 are not compared either: it shares a link
among the messages that queue at their sender, and here they leave one after another, as the recurrence has it.
"""

from __future__ import annotations

import csv

import numpy as np
import pytest

from syncline.costmodel.network.link import Link, topology
from syncline.costmodel.network.two_level import Sites
from syncline.sim import Collective, Round, collective_finish_s, rounds, run_events
from tests.reference import REFERENCE, needs_reference
from tests.sim.lockstep.rounds import run_rounds

SIMGRID = REFERENCE / "simgrid"
NETWORKS = {"IB": Link(2e-6, 12.5e9), "10GbE": Link(50e-6, 1.25e9), "WAN": Link(25e-3, 125e6)}
RTOL = 1e-9

pytestmark = needs_reference


def rows(name, wanted=lambda row: True):
    """Rows of a file of the reference; none where it is missing."""
    if not SIMGRID.is_dir():
        return []
    with (SIMGRID / name).open() as file:
        return [row for row in csv.DictReader(file) if wanted(row)]


def by_rank(programs, network, starts_s=None, rule="rendezvous"):
    """When each worker is done with each of its collectives: of the first stream by name, then of the next."""
    timeline = run_events(programs, network, starts_s, rule)
    done = timeline[timeline.stream != "compute"]
    return done.end_s[np.lexsort((done.worker, done.stream))]


# Homogeneous, all start together.

ALGORITHMS = {
    "ring_allreduce": ("all_reduce", "ring"),
    "rd_allreduce": ("all_reduce", "recursive-doubling"),
    "rab_allreduce": ("all_reduce", "rabenseifner"),
    "ring_allgather": ("all_gather", "ring"),  # its n is the gathered tensor
    "ring_reduce_scatter": ("reduce_scatter", "ring"),
    "pairwise_alltoall": ("all_to_all", "pairwise"),
    "binomial_bcast": ("broadcast", "binomial"),
}


def contributed(kind, nbytes, workers):
    return nbytes / workers if kind == "all_gather" else nbytes


@pytest.mark.parametrize("name", ALGORITHMS)
def test_collectives_that_start_together(name):
    kind, algorithm = ALGORITHMS[name]
    of_algorithm = rows("flat.csv", lambda row: row["algorithm"] == name)
    assert len(of_algorithm) == 105
    for row in of_algorithm:
        workers, link = int(row["P"]), NETWORKS[row["net"]]
        nbytes = contributed(kind, float(row["n_bytes"]), workers)
        evaluators = ["lockstep"] + ["events"] * (workers <= 16 or row["n_bytes"] == "1000000")
        for by in evaluators:
            finish_s = collective_finish_s(kind, workers, nbytes, link, algorithm, evaluator=by)
            np.testing.assert_allclose(finish_s.max(), float(row["sim_time_s"]), rtol=RTOL)
        messages = sum(len(of.senders) for of in rounds(kind, workers, nbytes, algorithm))
        assert messages == int(row["messages"])


# One ring, three rules of when a message starts.


def start_times(case, workers, round_s):
    """A worker 3 that is late by a second, or by two and a half rounds; or all late, by up to ten rounds."""
    starts = np.zeros(workers)
    starts[3] = {"straggler3_1s": 1.0, "straggler3_small": 2.5 * round_s}.get(case, 0.0)
    if case == "random_starts":  # numbers found to fit: the seed is P, and the times are rounded to nanoseconds
        starts = np.round(np.random.default_rng(workers).random(workers) * 10 * round_s, 9)
    return starts


RULES = {"r1": "rendezvous", "r3": "eager"}
RINGS = rows("start_rules.csv", lambda row: row["recurrence"] in RULES)


@pytest.mark.parametrize("case", sorted({row["case"] for row in RINGS}))
def test_the_ring_by_rules_of_starting(case):
    for row in RINGS:
        if row["case"] == case:
            check_ring(row)


def check_ring(row):
    """Check a ring's finish times, by events and in lockstep, against a row of the reference."""
    link, workers, nbytes = NETWORKS[row["net"]], int(row["P"]), float(row["n_bytes"])
    slow = Link(link.latency_s, link.bandwidth_bytes_per_s, upload_bytes_per_s=link.bandwidth_bytes_per_s / 10)
    links = [slow if row["case"] == "slow_uplink3_x10" and worker == 3 else link for worker in range(workers)]
    starts = start_times(row["case"], workers, link.transfer_s(nbytes / workers))
    rule = RULES[row["recurrence"]]
    done = by_rank([[Collective("all_reduce", nbytes, "")]] * workers, links, starts, rule)
    np.testing.assert_allclose(done.max(), float(row["numpy_max_s"]), rtol=RTOL)
    if rule == "rendezvous":
        np.testing.assert_allclose(done.min(), float(row["numpy_min_s"]), rtol=RTOL)
        np.testing.assert_allclose(done.max(), float(row["simgrid_max_s"]), rtol=1e-6)
    of, over = rounds("all_reduce", workers, nbytes), topology(links, workers)
    received, left = run_rounds(of, over, starts, rule)
    np.testing.assert_allclose(done, np.maximum(received, left), rtol=RTOL)
    if rule == "eager":  # the reference stops its watch when a worker has received all
        np.testing.assert_allclose(received.min(), float(row["numpy_min_s"]), rtol=RTOL)


# Eight workers, one of them late or with a slow link, or several transfers on a link; times per rank.

ALL = np.arange(8)


def exchange(distance, nbytes):
    return Round(ALL, ALL ^ distance, nbytes)


def ring(order, nbytes):
    order = np.array(order)
    return (Round(order, np.roll(order, -1), nbytes / len(order)),) * (2 * (len(order) - 1))


def halving_and_doubling(distances, nbytes):
    down = [exchange(distance, nbytes / part) for distance, part in zip(distances, (2, 4, 8), strict=True)]
    return *down, *down[::-1]


def two_sites(algorithm, nbytes):
    """The rounds of an all-reduce of 4 + 4 workers."""
    in_site = (Round(ALL, ALL // 4 * 4 + (ALL + 1) % 4, nbytes / 4),) * 3
    to_even = Round(ALL[1::2], ALL[0::2], nbytes)
    to_leader = Round(ALL[2::4], ALL[0::4], nbytes)
    leaders = Round(ALL[0::4], ALL[0::4] ^ 4, nbytes)
    back = [Round(of.receivers, of.senders, nbytes) for of in (to_leader, to_even)]
    return {
        "flatring_contiguous": ring(range(8), nbytes),
        "flatring_interleaved": ring([0, 4, 1, 5, 2, 6, 3, 7], nbytes),
        "rab": halving_and_doubling((4, 2, 1), nbytes),
        "rabnear": halving_and_doubling((1, 2, 4), nbytes),
        "rd": tuple(exchange(distance, nbytes) for distance in (1, 2, 4)),
        "hier_rsag": (*in_site, exchange(4, nbytes / 4), *in_site),
        "hier_leader": (to_even, to_leader, leaders, *back),
    }[algorithm]


def joining(case):
    """What each of the eight does, on what, from when, in a case of hetero.csv."""
    what, *rest = case.split("_")
    nbytes = float(rest[-1])
    if what == "twosite":
        uplink = Link(12.5e-3, 125e6, duplex=rest[0])  # twice on every way across: 25 ms
        of = two_sites("_".join(rest[1:-1]), nbytes)
        return [Collective("all_reduce", nbytes, "", rounds=of)], Sites(2, NETWORKS["10GbE"], uplink), 0.0
    link = NETWORKS[rest[-2]]
    if what == "incast7":
        of = tuple(Round(np.array([rank]), np.array([0]), nbytes) for rank in range(1, 8))
        return [Collective("gather", nbytes, "", rounds=of)], link, 0.0
    if what == "concurrent":
        order = ALL[::-1] if rest[0] == "opposite" else ALL
        second = nbytes / 2 if rest[0] == "half" else nbytes
        jobs = ("first", ring(ALL, nbytes)), ("second", ring(order, second))
        return [Collective("all_reduce", nbytes, name, stream=name, rounds=of) for name, of in jobs], link, 0.0
    kind, algorithm = ALGORITHMS["_".join(rest[1:-2])]
    join = [Collective(kind, contributed(kind, nbytes, 8), "", algorithm=algorithm)]
    if what == "straggler":
        return join, link, np.where(int(rest[0][1:]) == ALL, 1.0, 0.0)
    slow = Link(link.latency_s, link.bandwidth_bytes_per_s / 10)
    return join, [slow if rank == 3 else link for rank in range(8)], 0.0


def test_eight_workers_by_the_rendezvous_rule():
    for row in rows("hetero.csv"):
        program, network, starts_s = joining(row["case"])
        done = by_rank([program] * 8, network, starts_s)
        expected = np.array(row["per_rank_finish_s"].split(), dtype=float)
        np.testing.assert_allclose(done, expected, rtol=RTOL, err_msg=row["case"])


def test_a_flat_ring_over_two_sites_takes_a_third_of_the_time_if_it_starts_eagerly():
    program, network, _ = joining("twosite_full_flatring_contiguous_1000000")
    by_rule = [by_rank([program] * 8, network, rule=rule).max() for rule in ("rendezvous", "eager")]
    np.testing.assert_allclose(by_rule, [0.3647, 0.107], rtol=5e-3)
