from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import (
    ALGORITHMS,
    COLLECTIVES,
    SERVERS,
    Link,
    NoClosedForm,
    best_algorithm,
    closed_form_s,
    collective_s,
    gather_s,
    ring_all_reduce_s,
    wire_bytes,
)
from syncline.errors import SpecError
from syncline.specs import network
from tests.reference import REFERENCE, needs_reference

SIMGRID_ALGORITHMS = {
    "ring_allreduce": ("all_reduce", "ring"),
    "rd_allreduce": ("all_reduce", "recursive-doubling"),
    "rab_allreduce": ("all_reduce", "rabenseifner"),
    "ring_allgather": ("all_gather", "ring"),  # its n is the gathered tensor
    "ring_reduce_scatter": ("reduce_scatter", "ring"),
    "pairwise_alltoall": ("all_to_all", "pairwise"),
    "binomial_bcast": ("broadcast", "binomial"),
}
SIMGRID_NETWORKS = {"IB": "infiniband", "10GbE": "10gbe", "WAN": "wan"}
LINK = Link(0.5, 8.0)
EVERY_ALGORITHM = [(kind, algorithm) for kind, of in ALGORITHMS.items() for algorithm in of]


@needs_reference
@pytest.mark.parametrize("name", SIMGRID_ALGORITHMS)
def test_closed_forms_equal_an_independent_simulator(name: str) -> None:
    kind, algorithm = SIMGRID_ALGORITHMS[name]
    with (REFERENCE / "simgrid" / "flat.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["algorithm"] == name]
    assert len(rows) == 105
    for row in rows:
        workers, nbytes = int(row["P"]), float(row["n_bytes"])
        contribution = nbytes / workers if kind == "all_gather" else nbytes
        predicted_s = collective_s(kind, workers, contribution, network(SIMGRID_NETWORKS[row["net"]]), algorithm)
        assert predicted_s == pytest.approx(float(row["sim_time_s"]), rel=1e-13), row


def test_worked_examples() -> None:
    # 4 workers, 32 bytes, 0.5 s + 1/8 s per byte: blocks of 8 bytes take 1.5 s, whole tensors 4.5 s.
    assert ring_all_reduce_s(4, 32, LINK) == 6 * 1.5
    assert collective_s("reduce_scatter", 4, 32, LINK, "ring") == 3 * 1.5
    assert collective_s("all_to_all", 4, 32, LINK, "pairwise") == 3 * 1.5
    assert collective_s("all_gather", 4, 32, LINK, "ring") == 3 * 4.5
    assert collective_s("broadcast", 4, 32, LINK, "binomial") == 2 * 4.5
    assert gather_s(4, 32, LINK) == 4.5 + 8.5  # one tensor, then two
    assert gather_s(5, 32, LINK) == 2 * 0.5 + 4 * 4  # the last one, 4, sends to the root itself


@pytest.mark.parametrize(
    ("kind", "algorithm", "workers", "latencies", "sent"),  # 8 bytes take 1 s
    [
        ("all_reduce", "recursive-doubling", 4, 2, [4, 4]),
        ("all_reduce", "recursive-doubling", 7, 4, [4, 4, 4, 4]),  # fold, 2 exchanges, give back
        ("all_reduce", "rabenseifner", 4, 4, [2, 1, 1, 2]),
        ("all_reduce", "rabenseifner", 7, 6, [4, 2, 1, 1, 2, 4]),
        ("all_reduce", "tree", 5, 6, [4, 4, 4, 4, 4, 4]),
        ("all_reduce", "double-binary-tree", 2, 2, [2, 2]),
        ("all_reduce", "double-binary-tree", 4, 6, 6 * [2]),
        ("all_reduce", "double-binary-tree", 7, 6, 8 * [2]),
        ("all_reduce", "double-binary-tree", 8, 8, 10 * [2]),
        ("all_reduce", "server-naive", 5, 2, 8 * [4]),
        ("all_reduce", "server-efficient", 4, 6, [4, 8, 2, 1, 1, 2]),  # gather, scatter, all-gather
        ("reduce_scatter", "all-reduce", 4, 6, 6 * [1]),
        ("all_gather", "recursive-doubling", 4, 2, [4, 8]),
        ("all_gather", "recursive-doubling", 7, 3, [4, 8, 12]),
        ("all_gather", "pat", 4, 2, [4, 8]),
        ("all_gather", "pat", 7, 3, [4, 8, 12]),
        ("reduce_scatter", "halving", 4, 2, [2, 1]),
        ("reduce_scatter", "halving", 5, 3, [0.8, 1.6, 0.8]),
        ("reduce_scatter", "pat", 5, 3, [1.6, 0.8, 0.8]),
        ("broadcast", "scatter-all-gather", 4, 2 + 3, [2, 1, 1, 1, 1]),
        ("broadcast", "scatter-all-gather", 5, 3 + 4, [2.4, 1.6, 0.8, *4 * [0.8]]),
    ],
)
def test_worked_examples_of_the_other_algorithms(
    kind: str, algorithm: str, workers: int, latencies: int, sent: list[float]
) -> None:
    told_s = collective_s(kind, workers, 32, LINK, algorithm)  # 4 s of bytes
    assert told_s == pytest.approx(latencies * LINK.latency_s + sum(sent), rel=1e-14)


def test_a_broadcast_reaches_twice_as_many_workers_each_round() -> None:
    workers = np.array([1, 2, 3, 4, 5, 8, 9, 2**20, 2**20 + 1])
    np.testing.assert_array_equal(
        collective_s("broadcast", workers, 0, Link(1.0, 1.0), "binomial"), [0, 1, 2, 2, 3, 3, 4, 20, 21]
    )


def test_a_gather_of_many_sizes_pays_the_depth_of_its_tree_and_every_workers_bytes() -> None:
    workers = np.array([1, 2, 3, 4, 5, 8, 9, 2**20, 2**20 + 1])
    np.testing.assert_array_equal(gather_s(workers, 0, Link(1.0, 1.0)), [0, 1, 1, 2, 2, 3, 3, 20, 20])
    np.testing.assert_allclose(gather_s(workers, 3.0, Link(0.0, 1.0)), 3.0 * (workers - 1), rtol=1e-12)


@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
def test_one_worker_pays_and_sends_nothing(kind: str, algorithm: str) -> None:
    assert collective_s(kind, 1, 1e9, LINK, algorithm) == 0
    assert wire_bytes(kind, 1, 1e9, algorithm) == 0


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_the_first_algorithm_is_taken_if_none_is_named(kind: str) -> None:
    assert collective_s(kind, 6, 1e6, LINK) == collective_s(kind, 6, 1e6, LINK, ALGORITHMS[kind][0])
    assert wire_bytes(kind, 6, 1e6) == wire_bytes(kind, 6, 1e6, ALGORITHMS[kind][0])


def test_the_best_algorithm_depends_on_the_size_and_the_number_of_workers() -> None:
    link = network("10gbe")
    assert [best_algorithm("all_reduce", 64, nbytes, link) for nbytes in (4, 1e9)] == [
        "recursive-doubling",
        "rabenseifner",
    ]
    assert best_algorithm("all_reduce", 63, 1e9, link) == "ring"  # folding sends all bytes twice
    assert best_algorithm("all_reduce", 2, 4, link) == "recursive-doubling"  # one round, not two
    assert [best_algorithm("broadcast", 64, nbytes, link) for nbytes in (4, 1e9)] == ["binomial", "scatter-all-gather"]
    assert best_algorithm("all_gather", 2, 4, link) == "ring"  # the same, and the first


@given(st.sampled_from(COLLECTIVES), st.integers(1, 256), st.floats(0, 1e10))
def test_none_is_better_than_the_best_algorithm(kind: str, workers: int, nbytes: float) -> None:
    best_s = collective_s(kind, workers, nbytes, LINK, best_algorithm(kind, workers, nbytes, LINK))
    assert best_s == min(
        float(collective_s(kind, workers, nbytes, LINK, each)) for each in ALGORITHMS[kind] if each not in SERVERS
    )


@given(st.sampled_from(ALGORITHMS["all_reduce"]), st.integers(1, 1024))
def test_no_all_reduce_moves_less_than_it_must(algorithm: str, workers: int) -> None:
    least = 2 * 8.0 * (workers - 1)  # each worker's part has to get in, and the sum out again
    assert workers * wire_bytes("all_reduce", workers, 8.0, algorithm) >= least * (1 - 1e-12)
    assert collective_s("all_reduce", workers, 8.0, Link(0.0, 1.0), algorithm) >= least / workers * (1 - 1e-12)


@given(workers=st.integers(1, 4096), nbytes=st.floats(0, 1e12))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather_of_its_parts(workers: int, nbytes: float) -> None:
    parts_s = collective_s("reduce_scatter", workers, nbytes, LINK, "ring") + collective_s(
        "all_gather", workers, nbytes / workers, LINK, "ring"
    )
    assert ring_all_reduce_s(workers, nbytes, LINK) == pytest.approx(parts_s, rel=1e-12)


@given(of=st.sampled_from(EVERY_ALGORITHM), workers=st.integers(1, 1024), nbytes=st.floats(0, 1e12))
def test_no_worker_can_send_faster_than_its_link(of: tuple[str, str], workers: int, nbytes: float) -> None:
    kind, algorithm = of
    sent_s = wire_bytes(kind, workers, nbytes, algorithm) / LINK.bandwidth_bytes_per_s
    assert collective_s(kind, workers, nbytes, LINK, algorithm) >= sent_s * (1 - 1e-12)


def test_wire_bytes_count_every_delivery() -> None:
    workers, nbytes = 8, 80.0
    assert workers * wire_bytes("broadcast", workers, nbytes) == 7 * nbytes
    assert workers * wire_bytes("all_gather", workers, nbytes) == 7 * 8 * nbytes
    assert workers * wire_bytes("gather", workers, nbytes) == (1 + 1 + 2 + 1 + 2 + 2 + 3) * nbytes  # ones of 1 to 7
    assert wire_bytes("all_reduce", workers, nbytes) == 2 * wire_bytes("reduce_scatter", workers, nbytes) == 140


@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
def test_a_million_configurations_in_one_call_equal_single_calls(kind: str, algorithm: str) -> None:
    workers = np.arange(1, 101)[:, None, None]
    nbytes = np.geomspace(1, 1e12, 100)[:, None]
    link = Link(np.linspace(0, 0.1, 100), 1.25e9)
    times_s = np.asarray(collective_s(kind, workers, nbytes, link, algorithm))
    sent = np.asarray(wire_bytes(kind, workers, nbytes, algorithm))
    assert times_s.shape == (100, 100, 100)
    for p, n, a in [(0, 0, 0), (99, 99, 99), (6, 50, 73)]:
        one = Link(float(np.asarray(link.latency_s)[a]), 1.25e9)
        single_s = collective_s(kind, p + 1, float(nbytes[n, 0]), one, algorithm)
        assert times_s[p, n, a] == pytest.approx(single_s, rel=1e-14)
        assert sent[p, n, 0] == pytest.approx(wire_bytes(kind, p + 1, float(nbytes[n, 0]), algorithm), rel=1e-14)


def test_impossible_collectives_are_refused() -> None:
    with pytest.raises(SpecError, match="did you mean 'all_reduce'"):
        collective_s("allreduce", 2, 1, LINK)
    with pytest.raises(SpecError, match=r"all_reduce.algorithm: got 'halving'; expected one of .*rabenseifner"):
        collective_s("all_reduce", 2, 1, LINK, "halving")
    with pytest.raises(SpecError, match="did you mean 'ring'"):
        wire_bytes("all_reduce", 2, 1, "rings")
    with pytest.raises(SpecError, match="did you mean 'all_reduce'"):
        best_algorithm("allreduce", 2, 1, LINK)
    with pytest.raises(SpecError, match="workers: got 0"):
        ring_all_reduce_s(np.array([2, 0]), 1, LINK)
    with pytest.raises(SpecError, match="nbytes: got -1"):
        ring_all_reduce_s(2, -1, LINK)


def test_what_waits_under_each_rule() -> None:
    link = Link(0.5, 8.0, overhead_s=0.25)  # 5 workers, 32 bytes: a naive server receives 4 messages of 4 s, sends 4
    assert collective_s("all_reduce", 5, 32, link, "server-naive") == 2 * 0.5 + 8 * (0.25 + 4)
    assert collective_s("all_reduce", 5, 32, link, "server-naive", rule="rendezvous") == 8 * (0.5 + 0.25 + 4)
    assert collective_s("gather", 5, 32, link, rule="rendezvous") == 3 * (0.5 + 0.25) + 16
    assert collective_s("all_reduce", 4, 32, link) == collective_s("all_reduce", 4, 32, link, rule="rendezvous") == 10.5


def test_what_a_link_carries_counts() -> None:
    thin = Link(0.5, 16.0, efficiency=0.5, upload_bytes_per_s=1e9)
    assert ring_all_reduce_s(4, 32, thin) == ring_all_reduce_s(4, 32, LINK)


@pytest.mark.parametrize(
    ("kind", "algorithm", "workers", "latencies", "sent"),
    [
        ("all_reduce", "ring", 3, 4, 8 * [4 / 3]),  # a worker's two transfers share its link
        ("all_reduce", "recursive-doubling", 4, 2, [4, 4, 4, 4]),
        ("all_reduce", "tree", 5, 6, 6 * [4]),  # nobody sends and receives at once
        ("broadcast", "binomial", 5, 3, 3 * [4]),
        ("all_reduce", "server-naive", 3, 2, 4 * [4]),
    ],
)
def test_half_duplex_links_by_hand(kind: str, algorithm: str, workers: int, latencies: int, sent: list[float]) -> None:
    half = Link(0.5, 8.0, duplex="half")
    assert collective_s(kind, workers, 32, half, algorithm) == pytest.approx(latencies * 0.5 + sum(sent), rel=1e-14)


@pytest.mark.parametrize(
    ("workers", "algorithm", "reason"),
    [
        (6, "rabenseifner", "beyond a power of two are folded in"),
        (8, "double-binary-tree", "some workers send only"),
    ],
)
def test_half_duplex_links_have_no_form_for_uneven_rounds(workers: int, algorithm: str, reason: str) -> None:
    half = Link(0.5, 8.0, duplex="half")
    with pytest.raises(NoClosedForm, match=reason):
        collective_s("all_reduce", workers, 32, half, algorithm)
    assert closed_form_s("all_reduce", workers, 32, half, algorithm) is None


def test_servers_are_compared_but_never_the_best() -> None:
    """Without overhead 63 messages in a row cost two latencies, where a tree pays twelve."""
    link = network("10gbe")
    server_s, best_s = (
        collective_s("all_reduce", 64, 4, link, name) for name in ("server-naive", "recursive-doubling")
    )
    assert server_s < best_s and best_algorithm("all_reduce", 64, 4, link) == "recursive-doubling"
