"""Every collective, algorithm and number of workers: closed form, lockstep and events say the same."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replication.theory.votes import VOTES, vote_by_collectives_s, vote_parts
from syncline.costmodel import HIERARCHICAL, Link, Sites, TwoLevel, algorithms_on, closed_form_s, collective_s
from syncline.costmodel.collectives.algorithms.trees import two_tree_parents, two_tree_reduce_rounds
from syncline.costmodel.collectives.cost import hierarchy_s
from syncline.costmodel.collectives.hierarchical import Peers
from syncline.sim import collective_finish_s
from syncline.sim.clocks.single_collective import rounds_finish_s
from syncline.sim.program.rounds import rounds, rounds_on, sent_bytes
from tests.sim.strategies import EVERY_ALGORITHM

sizes = st.floats(np.log(4.0), np.log(2.0**30)).map(np.exp)
rules = st.sampled_from(["eager", "rendezvous"])
links = st.builds(
    Link, st.floats(0.0, 0.1), st.floats(1e6, 1e11), overhead_s=st.floats(0.0, 1e-3), efficiency=st.floats(0.5, 1.0)
)
AGREE = 1e-9


@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
@given(st.integers(2, 64), sizes, links, rules)
@example(63, 4.0, Link(1e-3, 1e9), "eager")
@example(64, 2.0**30, Link(0.0, 1e9, overhead_s=1e-5), "eager")
@settings(max_examples=30, deadline=None)
def test_lockstep_is_the_closed_form(kind, algorithm, workers, nbytes, link, rule):
    told_s = collective_s(kind, workers, nbytes, link, algorithm, rule=rule)
    of = rounds(kind, workers, nbytes, algorithm)
    assert rounds_finish_s(of, workers, link, evaluator="lockstep", rule=rule).max() == pytest.approx(told_s, rel=AGREE)


@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
@given(st.integers(2, 64), sizes, links, rules)
@settings(max_examples=4, deadline=None)
def test_events_are_the_closed_form(kind, algorithm, workers, nbytes, link, rule):
    told_s = collective_s(kind, workers, nbytes, link, algorithm, rule=rule)
    of = rounds(kind, workers, nbytes, algorithm)
    assert rounds_finish_s(of, workers, link, evaluator="events", rule=rule).max() == pytest.approx(told_s, rel=AGREE)


@pytest.mark.parametrize(("kind", "algorithm"), EVERY_ALGORITHM)
def test_half_duplex_links_where_there_is_a_closed_form(kind, algorithm):
    links = Link(1e-3, 1e6, duplex="half"), Link(0.0, 1e6, overhead_s=1e-4, duplex="half")
    for workers, rule, link, nbytes in product([2, 3, 4, 6, 8], ["eager", "rendezvous"], links, [100.0, 1e3, 1e5]):
        told_s = closed_form_s(kind, workers, nbytes, link, algorithm, rule)
        if told_s is not None:
            of = rounds(kind, workers, nbytes, algorithm)
            played_s = rounds_finish_s(of, workers, link, evaluator="events", rule=rule).max()
            assert played_s == pytest.approx(told_s, rel=AGREE), (workers, rule, link, nbytes)


INSIDE, BETWEEN = Link(2e-6, 1e9, overhead_s=1e-6), Link(5e-5, 2e7, overhead_s=3e-6)
HALF = Link(5e-5, 2e7, duplex="half")
NETWORKS = [
    TwoLevel(4, INSIDE, BETWEEN),
    TwoLevel(4, INSIDE, BETWEEN, 1),
    TwoLevel(5, INSIDE, BETWEEN, 3),  # two cards carry two workers, the third one
    TwoLevel(4, INSIDE, HALF, 2),
    TwoLevel(3, Link(2e-6, 1e9, duplex="half"), BETWEEN),
    Sites(2, INSIDE, BETWEEN),
    Sites(4, INSIDE, HALF),
]


LEVELLED = [(kind, algorithm) for kind, names in HIERARCHICAL.items() for algorithm in names]


@pytest.mark.parametrize(("kind", "algorithm"), LEVELLED)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda of: of.describe())
def test_hierarchical_ones_on_nodes_and_sites(kind, algorithm, network):
    size = network.per_node if isinstance(network, TwoLevel) else 3
    for workers in (2 * size, 3 * size, 4 * size):
        if isinstance(network, Sites) and workers % network.count:
            continue
        assert algorithm in algorithms_on(kind, network, workers)
        for nbytes, rule in ((100.0, "eager"), (1e6, "eager"), (1e6, "rendezvous")):
            told_s = closed_form_s(kind, workers, nbytes, network, algorithm, rule)
            if told_s is None:
                continue  # half-duplex, and messages that go one way or a number of nodes that is no power of two
            of = rounds_on(kind, workers, nbytes, network, algorithm)
            for by in ("lockstep", "events"):
                played_s = rounds_finish_s(of, workers, network, evaluator=by, rule=rule).max()
                assert played_s == pytest.approx(told_s, rel=AGREE)


@given(st.sampled_from(LEVELLED), st.integers(1, 8), st.integers(1, 8), sizes, links, rules)
@settings(max_examples=60, deadline=None)
def test_hierarchical_ones_on_one_link(named, size, nodes, nbytes, link, rule):
    kind, algorithm = named
    told_s = hierarchy_s(kind, algorithm, [Peers(count, link, link) for count in (size, nodes)], nbytes, rule)
    of = rounds(kind, size * nodes, nbytes, algorithm, size)
    played_s = rounds_finish_s(of, size * nodes, link, evaluator="lockstep", rule=rule).max()
    assert played_s == pytest.approx(told_s, rel=AGREE)


@pytest.mark.parametrize("how", VOTES)
@pytest.mark.parametrize("workers", [2, 5, 8])
@pytest.mark.parametrize("rule", ["eager", "rendezvous"])
def test_a_vote_takes_as_long_as_its_collectives_one_after_another(how, workers, rule):
    link = Link(1e-3, 1e6)
    of = [
        each
        for kind, nbytes, algorithm in vote_parts(how, workers, 10_000)
        for each in rounds(kind, workers, nbytes, algorithm)
    ]
    told_s = vote_by_collectives_s(how, workers, 10_000, link, rule=rule)
    for by in ("lockstep", "events"):
        assert rounds_finish_s(of, workers, link, evaluator=by, rule=rule).max() == pytest.approx(told_s, rel=AGREE)


@given(st.integers(2, 300))
def test_no_worker_is_inner_in_both_of_two_trees(workers):
    above = two_tree_parents(workers)
    inner = [{*of.values()} for of in above]
    assert not inner[0] & inner[1]
    for parent in above:
        assert len(parent) == workers - 1
        assert max(list(parent.values()).count(each) for each in parent.values()) <= 2
    for each in two_tree_reduce_rounds(workers):
        senders, receivers = zip(*each, strict=True)
        assert len({*senders}) == len(senders) and len({*receivers}) == len(receivers)


def test_two_trees_of_five_in_full():
    assert two_tree_parents(5) == ({1: 3, 0: 1, 2: 1, 4: 3}, {0: 2, 4: 0, 1: 0, 3: 2})
    of = rounds("all_reduce", 5, 8.0, "double-binary-tree")
    up = [list(zip(r.senders.tolist(), r.receivers.tolist(), strict=True)) for r in of[:3]]
    assert {each.nbytes for each in of} == {4.0} and len(of) == 6
    assert sorted(pair for each in up for pair in each) == sorted(
        [*two_tree_parents(5)[0].items(), *two_tree_parents(5)[1].items()]
    )
    down = [[(b, a) for a, b in each] for each in up[::-1]]
    assert [list(zip(r.senders.tolist(), r.receivers.tolist(), strict=True)) for r in of[3:]] == down


def test_two_nodes_of_two_in_full():
    def told(algorithm):
        of = rounds("all_reduce", 4, 8.0, algorithm, 2)
        return [(sorted(zip(r.senders.tolist(), r.receivers.tolist(), strict=True)), r.nbytes) for r in of]

    inside, across = [(0, 1), (1, 0), (2, 3), (3, 2)], [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert told("hierarchical") == [(inside, 4.0), (across, 2.0), (across, 2.0), (inside, 4.0)]
    assert told("hierarchical-doubling") == [(inside, 4.0), (across, 4.0), (inside, 4.0)]
    leaders = [(0, 2), (2, 0)]
    assert told("leader") == [([(1, 0), (3, 2)], 8.0), (leaders, 8.0), ([(0, 1), (2, 3)], 8.0)]


@given(st.sampled_from(LEVELLED), st.integers(1, 6), st.integers(1, 6))
def test_hierarchical_ones_reach_everybody_and_send_what_the_cost_model_counts(named, size, nodes):
    from syncline.costmodel import wire_bytes

    (kind, algorithm), workers = named, size * nodes
    of = rounds(kind, workers, 8.0, algorithm, size)
    knows = np.eye(workers, dtype=bool)
    for senders, receivers, _ in of:
        assert len(set(senders)) == len(senders) and len(set(receivers)) == len(receivers)
        knows[receivers] |= knows[senders]
    reached = {"broadcast": knows[:, 0], "gather": knows[0]}.get(kind, knows)
    assert reached.all()
    counted = wire_bytes(kind, workers, 8.0, algorithm, size)
    np.testing.assert_allclose(sent_bytes(of, workers).mean(), counted, rtol=1e-12)


def test_nodes_are_found_on_the_way_to_the_simulators():
    network = TwoLevel(4, INSIDE, BETWEEN)
    for by in ("lockstep", "events"):
        done_s = collective_finish_s("all_reduce", 8, 1e6, network, "hierarchical", evaluator=by)
        assert done_s.max() == pytest.approx(collective_s("all_reduce", 8, 1e6, network, "hierarchical"), rel=AGREE)
