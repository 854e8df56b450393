from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel.collectives.algorithms import Round
from syncline.costmodel.collectives.cost import wire_bytes
from syncline.errors import SpecError
from syncline.sim.program.rounds import rounds, sent_bytes
from tests.sim.strategies import EVERY_ALGORITHM, algorithms, sizes

workers = st.integers(1, 40)


def is_even(algorithm, workers):
    """Whether each worker sends as much as any other."""
    if algorithm in ("rabenseifner", "recursive-doubling"):
        return workers & (workers - 1) == 0
    return algorithm in ("ring", "pairwise", "halving", "pat")


@given(algorithms, workers, sizes)
def test_a_worker_sends_once_and_receives_once_in_a_round_and_never_to_itself(of, workers, nbytes):
    kind, algorithm = of
    for senders, receivers, sent in rounds(kind, workers, nbytes, algorithm):
        assert np.shape(sent) in ((), senders.shape)
        assert len(senders) == len(receivers) > 0
        assert len(set(senders)) == len(senders) and len(set(receivers)) == len(receivers)
        assert not np.any(senders == receivers)
        assert {*senders, *receivers} <= set(range(workers))


@given(algorithms, workers)
def test_what_each_worker_has_reaches_whom_it_must(of, workers):
    kind, algorithm = of
    knows = np.eye(workers, dtype=bool)  # knows[i, j]: worker i has heard, first or second hand, from worker j
    for senders, receivers, _ in rounds(kind, workers, 1.0, algorithm):
        knows[receivers] |= knows[senders]
    reached = {"broadcast": knows[:, 0], "gather": knows[0], "reduce": knows[0], "send": knows[-1, 0]}
    assert reached.get(kind, knows).all()


@given(workers)
def test_pairwise_exchange_visits_each_pair_once(workers):
    pairs = [pair for of in rounds("all_to_all", workers, 1.0) for pair in zip(of.senders, of.receivers, strict=True)]
    assert sorted(pairs) == [(i, j) for i in range(workers) for j in range(workers) if i != j]


@given(algorithms, workers, sizes)
def test_bytes_on_the_wire_are_the_cost_models(of, workers, nbytes):
    kind, algorithm = of
    sent = sent_bytes(rounds(kind, workers, nbytes, algorithm), workers)
    each = sent if is_even(algorithm, workers) else sent.mean()
    np.testing.assert_allclose(each, wire_bytes(kind, workers, nbytes, algorithm), rtol=1e-12, atol=1e-300)


@given(algorithms, workers, sizes)
def test_what_is_sent_is_received(algorithm, workers, nbytes):
    kind = algorithm[0]
    of = rounds(kind, workers, nbytes, algorithm[1])
    received = sent_bytes(tuple(Round(r.receivers, r.senders, r.nbytes) for r in of), workers)
    np.testing.assert_allclose(received.sum(), sent_bytes(of, workers).sum(), rtol=1e-12)
    if kind == "gather":  # who passes on what it receives adds its own n bytes; the root keeps everything
        sent = sent_bytes(of, workers)
        np.testing.assert_allclose((sent - received)[1:], nbytes, rtol=1e-12)
        np.testing.assert_allclose(received[0], (workers - 1) * nbytes, rtol=1e-12)


def test_a_gathers_bytes_for_many_numbers_of_workers_in_one_call():
    by_rounds = [sent_bytes(rounds("gather", number, 8.0), number).mean() for number in range(1, 34)]
    np.testing.assert_allclose(wire_bytes("gather", np.arange(1, 34), 8.0), by_rounds, rtol=1e-12)


def test_a_ring_of_three_in_full():
    told = [(r.senders.tolist(), r.receivers.tolist(), r.nbytes) for r in rounds("all_reduce", 3, 12.0)]
    assert told == [([0, 1, 2], [1, 2, 0], 4.0)] * 4


def pairs(of):
    return [list(zip(r.senders.tolist(), r.receivers.tolist(), strict=True)) for r in of]


def test_a_tree_of_six_in_full():
    down = [[(0, 3)], [(0, 1), (3, 4)], [(1, 2), (4, 5)]]  # the upper half of three is the larger one
    assert pairs(rounds("broadcast", 6, 12.0)) == down
    up = [[(b, a) for a, b in of] for of in down[::-1]]
    assert pairs(rounds("all_reduce", 6, 12.0, "tree")) == up + down


def test_a_tree_of_eight_is_the_binomial_tree_of_mpich():
    down = [[(0, 4)], [(0, 2), (4, 6)], [(0, 1), (2, 3), (4, 5), (6, 7)]]
    assert pairs(rounds("broadcast", 8, 12.0)) == down


def test_recursive_doubling_of_six_in_full():
    of = rounds("all_reduce", 6, 12.0, "recursive-doubling")
    near, far = [(0, 1), (1, 0), (2, 3), (3, 2)], [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert pairs(of) == [[(4, 0), (5, 1)], near, far, [(3, 4), (2, 5)]]
    assert {r.nbytes for r in of} == {12.0}


def test_rabenseifner_of_six_in_full():
    of = rounds("all_reduce", 6, 12.0, "rabenseifner")
    near, far = [(0, 1), (1, 0), (2, 3), (3, 2)], [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert pairs(of) == [[(4, 0), (5, 1)], far, near, near, far, [(0, 4), (1, 5)]]
    assert [r.nbytes for r in of] == [12.0, 6.0, 3.0, 3.0, 6.0, 12.0]


def test_a_scatter_of_seven_in_full():
    of = rounds("broadcast", 7, 7.0, "scatter-all-gather")
    assert pairs(of[:3]) == [[(0, 3)], [(0, 1), (3, 5)], [(1, 2), (3, 4), (5, 6)]]
    assert [np.asarray(r.nbytes).tolist() for r in of[:3]] == [[4.0], [2.0, 2.0], [1.0, 1.0, 1.0]]
    assert pairs(of[3:]) == [[(i, (i + 1) % 7) for i in range(7)]] * 6


def test_messages_of_one_round_may_differ_in_size():
    (_, second, _), ring = (of := rounds("broadcast", 5, 5.0, "scatter-all-gather"))[:3], of[3:]
    assert np.asarray(of[0].nbytes).tolist() == [3.0] and np.asarray(second.nbytes).tolist() == [1.0, 2.0]
    assert sent_bytes(of, 5).tolist() == [3.0 + 1.0 + 4.0, 4.0, 2.0 + 4.0, 1.0 + 4.0, 4.0] and len(ring) == 4


def test_a_gather_of_seven_in_full():
    told = [
        (list(zip(r.senders.tolist(), r.receivers.tolist(), strict=True)), r.nbytes) for r in rounds("gather", 7, 12.0)
    ]
    # Worker 6 has nobody below it, so it sends one block beside the two of worker 2, and worker 4 three.
    assert told == [([(1, 0), (3, 2), (5, 4)], 12.0), ([(2, 0)], 24.0), ([(6, 4)], 12.0), ([(4, 0)], 36.0)]


@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
def test_one_worker_sends_nothing(kind, algorithm):
    assert rounds(kind, 1, 8.0, algorithm) == ()


def test_an_unknown_collective_names_the_closest():
    with pytest.raises(SpecError, match="did you mean 'all_reduce'"):
        rounds("allreduce", 4, 8.0)
    with pytest.raises(SpecError, match=r"all_reduce.algorithm: got 'tre'.*did you mean 'tree'"):
        rounds("all_reduce", 4, 8.0, "tre")
