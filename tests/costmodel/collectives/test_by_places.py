"""Rings in the order of places, collectives by places, and servers: one time by lockstep and events."""

from __future__ import annotations

import itertools
from itertools import product

import numpy as np
import pytest

from syncline.costmodel import Link, Matrix, collective_s, wire_bytes
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.collectives.table import ALGORITHMS, OF_DIRECT, OF_PLACES, candidates_on
from syncline.costmodel.network import places as orders
from syncline.costmodel.network.link import among, topology
from syncline.costmodel.network.places import narrowest_line, places_on, ring_order, ring_text
from syncline.sim import Call, clock, collective_finish_s
from syncline.sim.clocks.single_collective import simulated_s
from syncline.sim.lockstep.routed import Contention
from syncline.sim.program.rounds import rounds_on, sent_bytes

NEAR = Link(0.2e-3, 1e9)
SIZES = [(1, 1, 1, 1), (2, 2, 1), (3, 5, 2, 1)]
KINDS = [(kind, name) for kind in ("all_reduce", "all_gather", "reduce_scatter") for name in OF_PLACES[kind]]


def drawn(count, seed=0, symmetric=False):
    """Return rates and delays between places, ``(S, S)``."""
    generator = np.random.default_rng(seed)
    rate, delay = generator.uniform(5e6, 1e8, (count, count)), generator.uniform(5e-3, 0.15, (count, count))
    return ((rate + rate.T) / 2, (delay + delay.T) / 2) if symmetric else (rate, delay)


def matrix(sizes, per="connection", seed=0, near=NEAR, **fields):
    rate, delay = drawn(len(sizes), seed)
    lines = tuple(
        tuple(near if i == j else Link(delay[i, j], rate[i, j]) for j in range(len(sizes))) for i in range(len(sizes))
    )
    ranks = tuple(i for i, count in enumerate(sizes) for _ in range(count))
    return Matrix(tuple("abcdefgh"[: len(sizes)]), lines, ranks, per, **fields)


def quality(order, rate, delay):
    return narrowest_line(np.array(order), rate), -float(delay[order, np.roll(order, -1)].sum())


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("places", [3, 5, 7])
def test_the_order_is_the_best_of_all(places, symmetric):
    for seed in range(6):
        rate, delay = drawn(places, seed, symmetric)
        if seed % 2:
            rate = np.round(rate, -7)  # equal lines, between which the delay decides
        best = max(quality([0, *rest], rate, delay) for rest in itertools.permutations(range(1, places)))
        assert quality(ring_order(rate, delay).tolist(), rate, delay) == pytest.approx(best)


def test_the_heuristic_is_near_the_exact_order(monkeypatch):
    parts = []
    for seed in range(20):
        rate, delay = drawn(10, seed, symmetric=seed % 2 == 0)
        exact = narrowest_line(ring_order(rate, delay), rate)
        with monkeypatch.context() as patched:
            patched.setattr(orders, "MOST_EXACT_PLACES", 2)
            order = ring_order(rate, delay)
        assert sorted(order.tolist()) == list(range(10))
        parts.append(narrowest_line(order, rate) / exact)
    assert min(parts) > 0.75 and np.median(parts) > 0.99


def test_many_places_have_a_ring_of_wide_lines():
    rate, delay = drawn(64)
    order = ring_order(rate, delay)
    assert sorted(order.tolist()) == list(range(64)) and order[0] == 0
    assert narrowest_line(order, rate) > 8e7 > narrowest_line(np.arange(64), rate)


def test_places_follow_each_other_whatever_the_ranks():
    wide, narrow = Link(10e-3, 1e8), Link(10e-3, 1e7)
    lines = ((NEAR, narrow, wide), (wide, NEAR, narrow), (narrow, wide, NEAR))  # wide: a to c to b to a
    network = Matrix(("a", "b", "c"), lines, (0, 1, 2, 0, 1, 2))
    assert places_on(network, 6).ranks == ((0, 3), (2, 5), (1, 4))
    assert ring_text(network, 6) == "a, c, b"
    assert places_on(among(topology(network, 6), [1, 2, 4]), 3).ranks == ((0, 2), (1,))


@pytest.mark.parametrize(("kind", "name"), [*KINDS, *(("all_reduce", name) for name in OF_DIRECT["all_reduce"])])
def test_lockstep_and_events_tell_one_time(kind, name):
    for per, sizes in product(["connection", "host", "pair", "place"], SIZES):
        network, workers = matrix(sizes, per), sum(sizes)
        by_events = collective_finish_s(kind, workers, 1e8, network, name, evaluator="events")
        try:
            in_step = collective_finish_s(kind, workers, 1e8, network, name, evaluator="lockstep")
        except Contention:
            assert per != "connection" and name == "server-sharded"
        else:
            np.testing.assert_allclose(in_step, by_events, rtol=1e-9, err_msg=f"{sizes}, {per}")


@pytest.mark.parametrize("starts_s", [[0.0, 0.3, 0.1, 0.2, 0.0]])
@pytest.mark.parametrize("name", ["ordered-ring", "by-places", "server-at-once", "server-sharded"])
def test_late_workers_alike(name, starts_s):
    network = matrix((2, 2, 1))
    done = [
        collective_finish_s("all_reduce", 5, 1e8, network, name, starts_s, evaluator)
        for evaluator in ("lockstep", "events")
    ]
    np.testing.assert_allclose(*done, rtol=1e-9)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", ["ordered-ring", "by-places", "server-at-once", "server-sharded"])
def test_equal_lines_have_the_closed_form_of_a_link(name, workers):
    link = Link(10e-3, 125e6, overhead_s=1e-3)
    seconds = float(collective_s("all_reduce", workers, 1e8, link, name))
    places = tuple("abcdefgh"[:workers])
    lines = tuple(tuple(link for _ in places) for _ in places)
    apart = Matrix(places, lines, tuple(range(workers)), card=Link(0.0, 125e6))  # a card for all messages of a worker
    for on in (link, apart):
        for evaluator in ("lockstep", "events"):
            done_s = collective_finish_s("all_reduce", workers, 1e8, on, name, evaluator=evaluator)
            assert done_s.max() == pytest.approx(seconds, rel=1e-9)
    if name == "server-at-once" and workers > 1:
        assert seconds == pytest.approx(2 * 11e-3 + 2 * (workers - 1) * 1e8 / 125e6)


def ring_s(order, rate, delay, nbytes):
    """Return the end of a ring all-reduce: the longest way of its messages, one after another or around the ring."""
    workers = len(order)
    occupied = nbytes / workers / rate[order, np.roll(order, -1)]
    going = occupied + delay[order, np.roll(order, -1)]
    now = np.zeros(workers)
    for _ in range(2 * (workers - 1)):
        now = np.maximum(now + occupied, np.roll(now + going, 1))
    return now.max()


def test_an_ordered_ring_takes_what_its_messages_take():
    rate, delay = drawn(6, seed=3)
    network = matrix((1,) * 6, seed=3)
    order = ring_order(rate, delay)
    expected = ring_s(order, rate, delay, 1e9)
    for evaluator in ("lockstep", "events"):
        done_s = collective_finish_s("all_reduce", 6, 1e9, network, "ordered-ring", evaluator=evaluator)
        assert done_s.max() == pytest.approx(expected, rel=1e-9)
    assert expected < 0.7 * ring_s(np.arange(6), rate, delay, 1e9)


def test_by_places_uses_the_connections_of_all_workers():
    """Inside: 3 messages of a quarter; across: 2 of an eighth on each of 4 connections; and inside again."""
    far = Link(50e-3, 1e7)
    network = Matrix(("a", "b"), ((NEAR, far), (far, NEAR)), (0,) * 4 + (1,) * 4)
    inside = 3 * (0.2e-3 + 1e8 / 4 / 1e9)
    expected = 2 * inside + 2 * (50e-3 + 1e8 / 8 / 1e7)
    for evaluator in ("lockstep", "events"):
        done_s = collective_finish_s("all_reduce", 8, 1e8, network, "by-places", evaluator=evaluator)
        assert done_s.max() == pytest.approx(expected, rel=1e-9)


def test_a_server_waits_for_its_slowest_line():
    rate, delay = drawn(4, seed=1)
    network = matrix((1,) * 4, seed=1)
    server = places_on(network, 4).server
    others = [rank for rank in range(4) if rank != server]
    there = max(delay[other, server] + 1e8 / rate[other, server] for other in others)
    back = max(delay[server, other] + 1e8 / rate[server, other] for other in others)
    done_s = collective_finish_s("all_reduce", 4, 1e8, network, "server-at-once")
    assert done_s.max() == pytest.approx(there + back, rel=1e-9)
    widest = [min(min(rate[a, b], rate[b, a]) for b in range(4) if b != a) for a in range(4)]
    assert server == int(np.argmax(widest))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ["ordered-ring", "by-places", "direct", "server-sharded", "server-at-once"])
def test_bytes_sent_are_those_counted(name, sizes):
    network, workers = matrix(sizes), sum(sizes)
    sent = sent_bytes(rounds_on("all_reduce", workers, 1e8, network, name), workers)
    assert sent.mean() == pytest.approx(float(wire_bytes("all_reduce", workers, 1e8, name)))


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce"])
@pytest.mark.parametrize("nbytes", [1e3, 1e9])
def test_auto_takes_the_fastest_of_its_candidates(kind, nbytes):
    network = matrix((2, 2, 1))
    priced = collective_prices(kind, np.array([5]), nbytes, network, "auto", timer=simulated_s)
    times = {name: simulated_s(kind, 5, nbytes, network, name)[0] for name in candidates_on(kind, network, 5)}
    assert float(priced.seconds[0]) == min(times.values()) == times[priced.names[0]]
    if kind == "all_reduce":
        assert set(times) == {"ordered-ring", "direct", "by-places"}
    else:
        assert ("ring" in times) is False and set(times) <= {*ALGORITHMS[kind], *OF_PLACES[kind]}


@pytest.mark.parametrize("group", [None, range(0, 4, 2), (0, 3, 4)])
def test_a_training_s_clock_takes_what_auto_costs(group):
    network = matrix((2, 2, 1)) if group != range(0, 4, 2) else matrix((2, 2))
    workers = network.workers
    calls = [Call(0, "all_reduce", 1e8, group)]
    evaluators = ("lockstep", "events") if group is None else ("events",)
    walls = [
        clock(calls, 0.0, network, workers, 1, algorithm="auto", evaluator=evaluator).wall_s for evaluator in evaluators
    ]
    if group is None:
        expected = float(
            collective_prices("all_reduce", np.array([workers]), 1e8, network, "auto", timer=simulated_s).seconds[0]
        )
        np.testing.assert_allclose(walls, expected, rtol=1e-9)
    else:
        named = [
            clock(calls, 0.0, network, workers, 1, algorithm=name, evaluator="events").wall_s
            for name in ("ordered-ring", "direct", "by-places")
        ]
        assert walls[0] == pytest.approx(min(named), rel=1e-9)


def test_hivemind_has_one_algorithm():
    from syncline.costmodel import HivemindCosts

    network = matrix((2, 2), hivemind=HivemindCosts())
    assert candidates_on("all_reduce", network, 4) == ("direct",)
