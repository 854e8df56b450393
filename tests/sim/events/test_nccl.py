"""What NCCL runs over sockets, slice by slice: events, lockstep, closed forms, and a recurrence in plain Python."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import OF_NCCL, Link, NcclCosts, Sites, collective_s, wire_bytes
from syncline.costmodel.collectives.nccl import NCCL_KINDS
from syncline.sim import Call, clock, collective_finish_s, rounds
from syncline.sim.events.run import run_events
from syncline.sim.lockstep.routed import Contention
from syncline.sim.program.instructions import Collective
from syncline.sim.program.rounds import sent_bytes

MIB = 2.0**20
SMALL = NcclCosts(buffer_bytes=1024.0, channels=1)  # pieces of 512 bytes, chains' of 128
RINGS = ("all_reduce", "all_gather", "reduce_scatter")

costs = st.builds(
    NcclCosts,
    st.sampled_from([256.0, 1000.0, 4096.0]),
    st.integers(1, 2),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1]),
)
links = st.builds(Link, st.floats(1e-4, 10.0), st.floats(1e2, 1e5), overhead_s=st.sampled_from([0.0, 1e-2]), nccl=costs)
kinds = st.sampled_from(NCCL_KINDS)


def finish_s(kind, workers, nbytes, network, starts_s=None, by="events", rule="eager"):
    return collective_finish_s(kind, workers, nbytes, network, OF_NCCL[kind][0], starts_s, by, rule)


@given(kinds, st.sampled_from([1, 2, 3, 4, 5, 8]), st.floats(0, 3e4), links, st.sampled_from(["eager", "rendezvous"]))
def test_closed_form_lockstep_and_events_are_one(kind, workers, nbytes, link, rule):
    """Also where a block is no multiple of a piece, and whatever the rule."""
    seconds = float(collective_s(kind, workers, nbytes, link, OF_NCCL[kind][0], rule=rule))
    for by in ("events", "lockstep"):
        assert finish_s(kind, workers, nbytes, link, None, by, rule).max() == pytest.approx(seconds, rel=1e-12)


@given(st.sampled_from((*RINGS, "all_to_all")), st.sampled_from([1, 2, 3, 5]), st.floats(1, 3e4), links)
def test_rings_and_exchanges_share_half_duplex_links_in_step(kind, workers, nbytes, link):
    half = replace(link, duplex="half")
    seconds = float(collective_s(kind, workers, nbytes, half, OF_NCCL[kind][0]))
    assert finish_s(kind, workers, nbytes, half).max() == pytest.approx(seconds, rel=1e-9)


def recurrence(kind, nbytes, links_, starts_s, cut):
    """When each is through: worker by worker and message by message, with nothing vectorised and no rounds shared."""
    p = len(links_)
    out, came_in = list(starts_s), [-np.inf] * p
    arrived = [[] for _ in range(p)]  # of each worker's messages, in their order

    def send(i, j, size, needs):
        start = max(
            [starts_s[i], out[i], came_in[j]] + ([arrived[i][needs]] if needs is not None and needs >= 0 else [])
        )
        rate = min(links_[i].goodput_bytes_per_s, links_[j].goodput_bytes_per_s)
        end = start + links_[i].overhead_s + size / rate
        out[i] = came_in[j] = end
        arrived[j].append(end + (links_[i].latency_s + links_[j].latency_s) / 2)

    if kind in RINGS:
        block = nbytes if kind == "all_gather" else nbytes / p
        steps, sizes = (2 if kind == "all_reduce" else 1) * (p - 1), []
        while block > 0:
            piece = min(cut.ring_piece_bytes, block)
            sizes += [piece / cut.slices] * cut.slices * steps
            block -= piece
        for at, size in enumerate(sizes):
            for i in range(p):
                send(i, (i + 1) % p, size, at - cut.slices)
    elif kind in ("broadcast", "reduce"):  # along the chain, or back
        chain = list(range(p)) if kind == "broadcast" else list(range(p))[::-1]
        while (left := nbytes - len(arrived[chain[1]]) * cut.chain_piece_bytes) > 0:
            piece, at = min(cut.chain_piece_bytes, left), len(arrived[chain[1]])
            for i, j in itertools.pairwise(chain):
                send(i, j, piece, None if i == chain[0] else at)
    else:
        for k in range(p - 1):
            for i in range(p) if kind == "all_to_all" else (k + 1,):
                j = (i + k + 1) % p if kind == "all_to_all" else 0
                send(i, j, nbytes / p if kind == "all_to_all" else nbytes, None)
    return [max([out[i], *arrived[i]]) for i in range(p)]


@given(kinds, st.integers(2, 6), st.floats(1, 2e4), costs, st.integers(0, 2**31))
def test_unequal_workers_and_links_are_the_plain_recurrence(kind, workers, nbytes, cut, seed):
    cut, draw = replace(cut, call_s=0.0), np.random.default_rng(seed)
    unequal = [
        Link(draw.uniform(0, 5), 10 ** draw.uniform(2, 5), overhead_s=draw.choice([0, 0.01]), nccl=cut)
        for _ in range(workers)
    ]
    starts_s = draw.uniform(0, 20, workers)
    expected = recurrence(kind, nbytes, unequal, starts_s, cut)
    for by in ("events", "lockstep"):
        np.testing.assert_allclose(finish_s(kind, workers, nbytes, unequal, starts_s, by), expected, rtol=1e-9)


def test_slices_hide_the_latency_that_whole_pieces_pay():
    """Three workers, 4 s a piece, 1 s of latency: by halves nobody waits; whole, everybody does, at each of 4 steps."""
    link = Link(1.0, 128.0, nccl=SMALL)
    assert finish_s("all_reduce", 3, 3 * 512.0, link).tolist() == [17.0] * 3
    assert finish_s("all_reduce", 3, 3 * 512.0, replace(link, nccl=replace(SMALL, slices=1))).tolist() == [20.0] * 3
    assert collective_finish_s("all_reduce", 3, 3 * 512.0, link, "ring").tolist() == [20.0] * 3


def test_a_late_worker_finds_what_was_sent_ahead():
    """It comes at 10, with the first two slices there since 3 and 5: from then on it sends without a break."""
    link = Link(1.0, 128.0, nccl=SMALL)
    starts_s = [0.0, 0.0, 10.0]
    assert finish_s("all_reduce", 3, 3 * 512.0, link, starts_s).tolist() == recurrence(
        "all_reduce", 3 * 512.0, [link] * 3, starts_s, SMALL
    )
    assert finish_s("broadcast", 3, 512.0, link, starts_s).tolist() == [4.0, 6.0, 10.0]


def test_workers_that_share_a_channel_are_left_to_the_events():
    sites = Sites((2, 2), Link(1e-4, 1e9), Link(1e-2, 1e8))
    told = collective_finish_s(
        "all_reduce", 4, 1e8, sites, "nccl-ring", evaluator="lockstep"
    )  # one message crosses at a time
    np.testing.assert_allclose(told, collective_finish_s("all_reduce", 4, 1e8, sites, "nccl-ring", evaluator="events"))
    assert told.max() < collective_finish_s("all_reduce", 4, 1e8, sites, "ring").max()
    with pytest.raises(Contention, match="share a channel"):
        collective_finish_s("all_to_all", 4, 1e8, sites, "nccl-posted", evaluator="lockstep")
    assert collective_finish_s("all_to_all", 4, 1e8, sites, "nccl-posted").max() > 2e8 / 4 / 1e8


@pytest.mark.parametrize("kind", NCCL_KINDS)
def test_rounds_carry_the_bytes_that_are_told(kind):
    for workers in (1, 2, 5, 6):
        played = sent_bytes(rounds(kind, workers, 4e6, OF_NCCL[kind][0]), workers)
        assert played.mean() == pytest.approx(float(wire_bytes(kind, workers, 4e6, OF_NCCL[kind][0])))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_training_on_nccl_is_told_alike_by_lockstep_and_events(overlap):
    link = Link(0.01, 1e6, nccl=NcclCosts(buffer_bytes=2e4))
    draw = np.random.default_rng(0)
    compute_s = draw.uniform(0.05, 0.2, (12, 4))
    made = ((step, kind) for step in range(12) for kind in ("all_reduce", "broadcast", "all_gather", "all_to_all"))
    calls = [
        Call(step, kind, 3e4 + 1e3 * step, wait_steps=int(overlap and kind == "all_gather")) for step, kind in made
    ]
    calls.append(Call(11, "reduce_scatter", 1e5, group=(0, 2)))
    told = [clock(calls, compute_s, link, 4, 12, evaluator=by) for by in ("lockstep", "events")]
    np.testing.assert_allclose(told[0].step_end_s, told[1].step_end_s, rtol=1e-9)
    named = clock(calls, compute_s, link, 4, 12, algorithm="nccl-ring")
    assert named.step_end_s[-1] != told[0].step_end_s[-1]  # only rings are NCCL's


def test_it_takes_turns_with_other_collectives_on_a_stream():
    parts = [
        ("all_reduce", "nccl-ring"),
        ("all_reduce", "ring"),
        ("broadcast", "nccl-chain"),
        ("all_gather", "gloo-ring"),
    ]
    joins = [Collective(kind, 1536.0, key, algorithm=name) for key, (kind, name) in enumerate(parts)]
    link = Link(1.0, 128.0, nccl=SMALL)
    for rule in ("eager", "rendezvous"):
        timeline = run_events([joins] * 3, link, rule=rule)
        alone = [float(collective_s(kind, 3, 1536.0, link, name)) for kind, name in parts]
        # The chain's first worker is done before the others, and comes to the next one while they receive.
        assert sum(alone[:3]) <= timeline.end_s.max() <= sum(alone)
