"""Many equal rounds at once are the rounds one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.acceleration import Kernels
from syncline.costmodel.network.link import Link, topology
from syncline.sim import Round, rounds
from syncline.sim.lockstep import rings as cycles
from syncline.sim.lockstep.rings import rings
from tests.sim.lockstep.rounds import run_rounds
from tests.sim.strategies import rules

RTOL = 1e-9


def one_by_one(of, links, entry_s, rule):
    """When each worker has received its last and when its last has left, message by message."""
    received_s, out_s, in_s = entry_s.tolist(), entry_s.tolist(), [-np.inf] * len(entry_s)
    for senders, receivers, nbytes in of:
        sizes = np.broadcast_to(nbytes, senders.shape).tolist()
        ends = []
        for i, j, size in zip(senders.tolist(), receivers.tolist(), sizes, strict=True):
            alpha_s = (links[i].latency_s + links[j].latency_s) / 2
            busy_s = links[i].overhead_s + size / min(links[i].up_bytes_per_s, links[j].down_bytes_per_s)
            if rule == "eager":
                ends.append((i, j, max(received_s[i], out_s[i], in_s[j]) + busy_s, alpha_s))
            else:
                ends.append((i, j, max(out_s[i], out_s[j]) + alpha_s + busy_s, 0.0))
        for i, j, end_s, alpha_s in ends:
            if rule == "eager":
                out_s[i] = in_s[j] = end_s
                received_s[j] = max(received_s[j], end_s + alpha_s)
            else:
                received_s[i] = out_s[i] = max(out_s[i], end_s)
                received_s[j] = out_s[j] = max(out_s[j], end_s)
    return received_s, out_s


def links_of(workers, equal, seed):
    rng = np.random.default_rng(seed)

    def link():
        up, down = 10 ** rng.uniform(6, 9, 2)
        return Link(rng.uniform(0, 0.01), down, overhead_s=rng.uniform(0, 1e-3), upload_bytes_per_s=up)

    return [link()] * workers if equal else [link() for _ in range(workers)]


@settings(deadline=None)
@given(
    st.integers(1, 6), st.integers(2, 12), st.integers(32, 90), st.booleans(), rules, st.integers(0, 10**6), st.data()
)
def test_rings_in_any_order(number, length, times, equal, rule, seed, data):
    """Also with other rounds before and after, and many entry times at once."""
    workers = number * length
    rng = np.random.default_rng(seed)
    order = rng.permutation(workers).reshape(number, length)
    ring = Round(order.ravel(), np.roll(order, -1, axis=1).ravel(), rng.uniform(0, 1e6))
    assert rings(ring.senders, ring.receivers, workers).shape == (length, number)
    around = data.draw(st.sampled_from([(), rounds("broadcast", workers, 1e5)]))
    of = [*around, *[ring] * times, *around]
    entries_s = rng.exponential(0.02, (3, workers))
    links = links_of(workers, equal, seed)
    many_s = run_rounds(of, topology(links, workers), entries_s, rule)
    for row, entry_s in enumerate(entries_s):
        expected = one_by_one(of, links, entry_s, rule)
        np.testing.assert_allclose([each[row] for each in many_s], expected, rtol=RTOL)


@pytest.mark.parametrize("rule", ["eager", "rendezvous"])
@pytest.mark.parametrize("equal", [True, False])
def test_a_long_ring(equal, rule):
    links, entry_s = links_of(150, equal, 7), np.random.default_rng(1).exponential(1.0, 150)
    of = rounds("all_reduce", 150, 1e6)
    done_s = run_rounds(of, topology(links, 150), entry_s, rule)
    np.testing.assert_allclose(done_s, one_by_one(of, links, entry_s, rule), rtol=RTOL)


@pytest.mark.parametrize(
    "receivers", [[1, 2, 0, 4, 3], [1, 2, 3, 4, 4], [1, 0]], ids=["unequal rings", "no permutation", "not everybody"]
)
def test_no_rings(receivers):
    assert rings(np.arange(len(receivers)), np.array(receivers), 5) is None


@pytest.mark.parametrize("rule", ["eager", "rendezvous"])
def test_rounds_that_are_no_rings_come_again_one_by_one(rule):
    pairs = Round(np.array([0, 1, 2, 3]), np.array([1, 2, 3, 4]), 1e5)
    links, entry_s = links_of(5, False, 3), np.random.default_rng(2).exponential(0.1, 5)
    done_s = run_rounds([pairs] * 40, topology(links, 5), entry_s, rule)
    np.testing.assert_allclose(done_s, one_by_one([pairs] * 40, links, entry_s, rule), rtol=RTOL)


def test_a_ring_of_a_hundred_thousand_workers():
    # 2 x 10^10 messages of 1 us, that arrive 100 us later. Worker 0 is 30 s late, when all the others wait for it.
    link, entry_s = Link(100e-6, 1e9), np.where(np.arange(100_000) == 0, 30.0, 0.0)
    received_s, left_s = run_rounds(rounds("all_reduce", 100_000, 1e8), topology(link, 100_000), entry_s)
    # Its first message makes 100,000 hops around the ring, and it can send what comes of it; that is 10 s of latency.
    # Its own last has left after 199,998 of 1 us, and the last of all arrives after as many hops of 101 us.
    assert left_s[0] == pytest.approx(30.0 + 10.0 + 199_998 * 1e-6, rel=RTOL)
    assert max(received_s.max(), left_s.max()) == pytest.approx(30.0 + 199_998 * 101e-6, rel=RTOL)


@pytest.fixture(scope="module")
def compiled():
    return pytest.importorskip("syncline.sim.lockstep.compiled")


@settings(deadline=None)
@given(
    st.sampled_from([1, 2, 3, 50, 1024, 1100]), st.integers(1, 3), st.sampled_from([1, 2, 8]), st.integers(1, 60),
    st.integers(0, 10**6),
)  # fmt: skip
def test_compiled_rounds_are_the_others_to_the_last_bit(compiled, length, number, times, count, seed):
    rng, shape = np.random.default_rng(seed), (length, number, times)
    x = np.where(rng.uniform(size=shape) < 0.2, -np.inf, rng.exponential(1.0, shape))
    occupied_s, latency_s = rng.uniform(0, 1, (2, length, number, 1))
    stay, go = (np.broadcast_to(each, shape).ravel() for each in (occupied_s, occupied_s + latency_s))
    eager = compiled.run_rounds(x.ravel(), stay, go, number * times, count, True)
    assert np.array_equal(eager.reshape(shape), cycles.eager_rounds(x, occupied_s, latency_s, count))
    rendezvous = compiled.run_rounds(x.ravel(), stay, stay, number * times, count, False)
    assert np.array_equal(rendezvous.reshape(shape), cycles.rendezvous_rounds(x, occupied_s, count))


@pytest.mark.parametrize("rule", ["eager", "rendezvous"])
def test_compiled_rounds_are_taken_when_they_are_worth_it(compiled, rule, monkeypatch):
    links, entry_s = links_of(150, False, 7), np.random.default_rng(1).exponential(1.0, 150)
    of = rounds("all_reduce", 150, 1e6)
    before = run_rounds(of, topology(links, 150), entry_s, rule)
    monkeypatch.setattr(cycles, "KERNELS", Kernels("syncline.sim.lockstep.compiled", break_even_units=1))
    assert np.array_equal(run_rounds(of, topology(links, 150), entry_s, rule), before)
    assert cycles.KERNELS.for_work(0) is compiled
