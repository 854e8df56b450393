"""The ring and its relatives against SimGrid 3.32 and a recurrence that nobody here wrote."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from syncline.costmodel.link import Link
from syncline.sim import Call, data_parallel, rounds, run_events
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


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("ring_allreduce", "all_reduce"),
        ("ring_allgather", "all_gather"),
        ("ring_reduce_scatter", "reduce_scatter"),
        ("pairwise_alltoall", "all_to_all"),
        ("binomial_bcast", "broadcast"),
    ],
)
def test_collectives_that_start_together(algorithm, kind):
    compared = 0
    for row in rows("flat.csv"):
        workers, nbytes = int(row["P"]), float(row["n_bytes"])
        if row["algorithm"] != algorithm or (kind == "broadcast" and workers == 3):  # there SimGrid's root waits
            continue
        contributed = nbytes / workers if kind == "all_gather" else nbytes
        uplinks = Uplinks.of(NETWORKS[row["net"]], workers)
        done = np.maximum(*run_rounds(rounds(kind, workers, contributed), uplinks, np.zeros(workers)))
        np.testing.assert_allclose(done.max(), float(row["sim_time_s"]), rtol=1e-9)
        compared += 1
    assert compared >= 60
