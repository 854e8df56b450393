"""Collectives against SimGrid 3.32 and a recurrence that nobody here wrote."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from syncline.costmodel.link import Link
from syncline.sim import Call, collective_finish_s, data_parallel, rounds, run_events
from syncline.sim.lockstep import run_rounds
from syncline.sim.uplinks import Uplinks

REFERENCE = Path(os.environ.get("SYNCLINE_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "simgrid"
NETWORKS = {"IB": Link(2e-6, 12.5e9), "10GbE": Link(50e-6, 1.25e9), "WAN": Link(25e-3, 125e6)}

pytestmark = pytest.mark.skipif(not REFERENCE.is_dir(), reason=f"no reference data at {REFERENCE}")


def rows(name):
    with (REFERENCE / name).open() as file:
        return list(csv.DictReader(file))


def starts_s(case, workers, nbytes, link):
    """A straggler of the reference: worker 3, late by one second or by two and a half rounds."""
    late = {"straggler3_1s": 1.0, "straggler3_small": 2.5 * link.transfer_s(nbytes / workers)}
    starts = np.zeros(workers)
    starts[3] = late.get(case, 0.0)
    return starts


def eager_rows():
    if REFERENCE.is_dir():
        for row in rows("start_rules.csv"):
            if row["recurrence"] == "r3" and row["case"] != "random_starts":  # whose starts are not on record
                yield pytest.param(row, id=f"{row['case']}-{row['net']}-{row['P']}-{row['n_bytes']}")


@pytest.mark.parametrize("row", list(eager_rows()))
def test_the_ring_by_the_eager_rule(row):
    link, workers, nbytes = NETWORKS[row["net"]], int(row["P"]), float(row["n_bytes"])
    links = [link] * workers
    if row["case"] == "slow_uplink3_x10":
        links[3] = Link(link.latency_s, link.bandwidth_bytes_per_s / 10)
    starts = starts_s(row["case"], workers, nbytes, link)
    received, left = run_rounds(rounds("all_reduce", workers, nbytes), Uplinks.of(links, workers), starts)
    # The reference stops its watch when a worker has received all; the simulator also waits for its last to leave.
    np.testing.assert_allclose(received.max(), float(row["numpy_max_s"]), rtol=1e-9)
    np.testing.assert_allclose(received.min(), float(row["numpy_min_s"]), rtol=1e-9)
    timeline = run_events(data_parallel(np.zeros((1, workers)), [Call(0, "all_reduce", nbytes)]), links, starts)
    done = timeline.end_s[timeline.what == "all_reduce"]
    np.testing.assert_allclose(done, np.maximum(received, left), rtol=1e-9)
    np.testing.assert_allclose(done.max(), float(row["numpy_max_s"]), rtol=1e-9)


ALGORITHMS = {
    "ring_allreduce": ("all_reduce", "ring"),
    "rd_allreduce": ("all_reduce", "recursive-doubling"),
    "rab_allreduce": ("all_reduce", "rabenseifner"),
    "ring_allgather": ("all_gather", "ring"),  # its n is the gathered tensor
    "ring_reduce_scatter": ("reduce_scatter", "ring"),
    "pairwise_alltoall": ("all_to_all", "pairwise"),
    "binomial_bcast": ("broadcast", "binomial"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_collectives_that_start_together(name):
    kind, algorithm = ALGORITHMS[name]
    of_algorithm = [row for row in rows("flat.csv") if row["algorithm"] == name]
    assert len(of_algorithm) == 105
    for row in of_algorithm:
        workers, nbytes, link = int(row["P"]), float(row["n_bytes"]), NETWORKS[row["net"]]
        contributed = nbytes / workers if kind == "all_gather" else nbytes
        finish_s = collective_finish_s(kind, workers, contributed, link, algorithm)
        np.testing.assert_allclose(finish_s.max(), float(row["sim_time_s"]), rtol=1e-9)
        messages = sum(len(of.senders) for of in rounds(kind, workers, contributed, algorithm))
        assert messages == int(row["messages"])


def straggler_rows():
    """All but a broadcast with a late worker 3: a leaf of the reference's tree, and here it has worker 7 to tell."""
    if REFERENCE.is_dir():
        for row in rows("hetero.csv"):
            if row["case"].startswith("straggler") and "r3_binomial_bcast" not in row["case"]:
                yield pytest.param(row, id=row["case"])


@pytest.mark.parametrize("row", list(straggler_rows()))
def test_a_straggler_by_the_rendezvous_rule(row):
    """In the reference both ends of a message wait, so nobody is through earlier than by the eager rule.

    The last worker is through at the same time. Rows of ``slowlink_both`` are not compared: there host 3 also receives
    slowly, and who sends to it waits.
    """
    _, late, *name, net, nbytes = row["case"].split("_")
    kind, algorithm = ALGORITHMS["_".join(name)]
    starts = np.where(np.arange(8) == int(late[1:]), 1.0, 0.0)
    contributed = float(nbytes) / 8 if kind == "all_gather" else float(nbytes)
    finish_s = collective_finish_s(kind, 8, contributed, NETWORKS[net], algorithm, starts)
    by_rank = np.array(row["per_rank_finish_s"].split(), dtype=float)
    assert np.all(finish_s <= by_rank * (1 + 1e-9))
    np.testing.assert_allclose(finish_s, by_rank, rtol=1e-3)
    np.testing.assert_allclose(finish_s.max(), by_rank.max(), rtol=1e-9)
