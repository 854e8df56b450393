"""What gloo's collectives take: by hand, by a literal recurrence, and as measured."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import GLOO, Link, NoClosedForm, collective_s, wire_bytes
from syncline.costmodel.collectives.gloo import gloo_message_s, gloo_s, segments, slowest_tree_paths, window_s
from syncline.costmodel.link_fit import TimedCall, fit_costs, gloo_errors
from syncline.costmodel.network.software_costs import GlooCosts
from syncline.errors import SpecError
from tests.costmodel.collectives.gloo.shaped import SHAPED
from tests.reference import REFERENCE, needs_reference

SLOW = Link(1.0, 1.0)  # a second of latency, a second per byte
FAR = Link(1.0, 1e12)  # latency alone
SWEEP = REFERENCE / "shaped" / "sweep.csv"

links = st.builds(Link, st.floats(1e-5, 0.1), st.floats(1e5, 1e10))


def window(messages: int, x: float, alpha: float) -> float:
    """Literally: a message's notice leaves when the one two before has arrived; one connection carries data alone."""
    arrived = [0.0, 0.0]
    left = 0.0
    for _ in range(messages):
        left = max(left, arrived[-2] + alpha) + x
        arrived.append(left + alpha)
    return arrived[-1]


@given(st.integers(1, 40), st.floats(0, 10), st.floats(0.01, 10))
def test_a_window_of_two(messages, x, alpha):
    if messages > 1:
        assert window_s(messages, x, alpha, False) == pytest.approx(window(messages, x, alpha), rel=1e-9)


def test_a_window_on_one_socket_by_hand():
    # x = 2, alpha = 1. Data leave 1..3, 3..5; the third's notice is posted at 4, waits for 5, is there at 6: the third
    # leaves 6..8. The fourth's is posted at 6, too, and waits for 8, is there at 9: it leaves 9..11, arrives at 12.
    assert window_s(4, 2.0, 1.0, True) == 12
    # x = 1/2: data leave 1..1.5, 1.5..2; notices at 2.5 and 3, there at 3.5 and 4; data 3.5..4, 4..4.5, there at 5.5.
    assert window_s(4, 0.5, 1.0, True) == window_s(4, 0.5, 1.0, False) == 5.5


def test_collectives_by_hand():
    # Every form on a second of latency and a second per byte; floats of 4 bytes.
    assert gloo_message_s(10.0, SLOW) == 12
    assert gloo_s("all_to_all", 4, 16.0, SLOW) == 2 + 12
    assert gloo_s("gather", 4, 16.0, SLOW) == 2 + 48
    assert gloo_s("broadcast", 4, 16.0, SLOW) == 3 + 3 * 16  # two share the root's link, then one child's
    assert gloo_s("broadcast", 3, 16.0, SLOW) == 2 + 2 * 16  # both are the root's
    assert gloo_s("all_gather", 3, 8.0, SLOW) == 2 + 8 + max(8, 6)  # 4 messages of 4: two, and two more
    assert gloo_s("all_gather", 2, 8.0, SLOW) == 2 + 8
    # 4 workers, 32 bytes: 8 segments of 4; each ring 6 messages: 2 + 8, and twice max(8, 2 + 4).
    assert gloo_s("all_reduce", 4, 32.0, SLOW) == gloo_s("reduce_scatter", 4, 32.0, SLOW) == 2 * (10 + 16)


def test_latencies_of_short_tensors():
    told = {p: [round(float(gloo_s("all_reduce", p, 4.0 * n, FAR))) for n in range(1, 2 * p + 1)] for p in (2, 3, 4, 8)}
    assert told[2] == [3, 3, 4, 4]
    assert told[3] == [5, 5, 7, 7, 8, 8]
    assert told[4] == [7, 7, 8, 8, 11, 11, 12, 12]
    assert told[8] == [15, 15, 16, 16, 17, 17, 18, 18, 21, 21, 24, 24, 27, 27, 28, 28]
    assert round(float(gloo_s("all_reduce", 4, 36.0, FAR))) == 11  # 5 segments of two elements


def test_segments():
    assert [int(each) for each in segments(4, 2.0**20)] == [8, 2**17]
    assert [int(each) for each in segments(4, 9 * 2.0**20)] == [12, 9 * 2**20 // 12]
    assert [int(each) for each in segments(4, 4.0)] == [8, 4]


def test_the_tree_of_gloo():
    assert slowest_tree_paths(1) == ((),) and slowest_tree_paths(2) == ((1,),)
    assert slowest_tree_paths(4) == ((1, 2), (2,))  # worker 2 hears from the root, worker 3 from worker 1
    assert max(slowest_tree_paths(8), key=sum) == (1, 2, 3)


@pytest.mark.parametrize("kind", GLOO)
def test_one_form_for_numbers_and_arrays(kind):
    workers, nbytes = np.array([1, 2, 3, 5, 8])[:, None], np.array([0.0, 4.0, 40.0, 1e6, 3e7])
    link = Link(np.array(2e-3), np.array(1e8), overhead_s=1e-4)
    costs = GlooCosts(1e-4, ((2, 1e-3), (8, 4e-3)), ((kind, 1e-9),))
    table = gloo_s(kind, workers, nbytes, link, costs)
    assert table.shape == (5, 5)
    each = [[float(gloo_s(kind, int(p), float(n), link, costs)) for n in nbytes] for p in workers[:, 0]]
    np.testing.assert_allclose(table, each, rtol=1e-12)
    assert (table[0] == 0).all()


@given(st.sampled_from(sorted(GLOO)), st.integers(2, 40), st.floats(1, 1e9), links)
def test_a_receiver_that_has_to_speak_first_is_never_faster_than_bytes_and_two_latencies(kind, workers, nbytes, link):
    seconds = float(gloo_s(kind, workers, nbytes, link))
    least = 2 * link.latency_s + float(wire_bytes(kind, workers, nbytes, GLOO[kind])) / link.goodput_bytes_per_s
    assert seconds >= least * (1 - 1e-9)
    assert collective_s(kind, workers, nbytes, link, GLOO[kind]) == pytest.approx(seconds)


def test_costs_come_on_top():
    costs = GlooCosts(0.5, ((2, 1.0), (4, 3.0)), (("all_to_all", 0.25), ("all_gather", 0.25)))
    assert gloo_s("all_to_all", 3, 12.0, SLOW, costs) == 2 * 1.5 + 8 + 2 + 3  # per call halfway between 1 and 3
    assert gloo_s("all_gather", 2, 8.0, SLOW, costs) - gloo_s("all_gather", 2, 8.0, SLOW) == 2 * 0.5 + 1 + 0.25 * 16
    late = Link(1.0, 1.0, overhead_s=0.5)
    assert gloo_s("all_reduce", 4, 32.0, late) == gloo_s("all_reduce", 4, 32.0, SLOW, GlooCosts(0.5))
    assert gloo_message_s(10.0, SLOW, costs) == 13


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gloo_s("scan", 2, 1.0, SLOW), "collective: got 'scan'"),
        (lambda: gloo_s("gather", 0, 1.0, SLOW), "workers: got 0"),
        (lambda: gloo_s("gather", 2, -1.0, SLOW), "nbytes: got -1.0"),
        (lambda: GlooCosts(-1.0), "gloo.message_s: got -1.0"),
        (lambda: GlooCosts(byte_s=(("send", 0.0),)), "gloo.byte_s: got 'send'"),
        (lambda: fit_costs([]), "measured: got 'nothing'"),
        (lambda: fit_costs([TimedCall("gather", 2, 1.0, 0.0, SLOW)]), "measured.seconds: got 0.0"),
    ],
)
def test_what_cannot_be(call, said):
    with pytest.raises(SpecError, match=f"^{said}"):
        call()


def test_no_form_on_half_duplex_links():
    with pytest.raises(NoClosedForm, match="full-duplex"):
        collective_s("all_gather", 4, 1.0, Link(1.0, 1.0, duplex="half"), "gloo-ring")


def test_a_fit_finds_the_costs_in_spite_of_outliers():
    costs = GlooCosts(2e-4, ((2, 1e-3), (4, 2e-3)), (("all_reduce", 1e-10), ("broadcast", 0.0)))
    link = Link(1e-3, 1e8)
    points = [
        TimedCall(kind, workers, nbytes, float(gloo_s(kind, workers, nbytes, link, costs)), link)
        for kind in ("all_reduce", "broadcast")
        for workers in (2, 4)
        for nbytes in (4.0, 1e3, 1e5, 1e6, 1e7, 1e8)
    ]
    points[3] = points[3]._replace(seconds=2 * points[3].seconds)
    points[17] = points[17]._replace(seconds=1.3 * points[17].seconds)
    found = fit_costs(points)
    assert found.message_s == pytest.approx(2e-4, rel=0.02)
    assert dict(found.call_s) == pytest.approx(dict(costs.call_s), rel=0.02)
    assert dict(found.byte_s) == pytest.approx(dict(costs.byte_s), abs=2e-11)
    assert np.median(np.abs(gloo_errors(points, found))) < 1e-3


def sweep() -> dict[tuple[float, float], list[TimedCall]]:
    """What was measured at rates up to 1 Gbit/s and a millisecond one way or more, by rate and latency."""
    settings: dict[tuple[float, float], list[TimedCall]] = {}
    for row in csv.DictReader(SWEEP.open()):
        rate, latency_s, workers = float(row["rate"]), float(row["delay_s"]), int(row["hosts"])
        if latency_s >= 1e-3:
            gathers = row["collective"] == "all_gather"  # counted by its result there
            nbytes = int(row["bytes"]) / (workers if gathers else 1)
            link = Link(latency_s, rate / 8, efficiency=8948 / 9000)
            point = TimedCall(row["collective"], workers, nbytes, float(row["median_s"]), link)
            settings.setdefault((rate, latency_s), []).append(point)
    return settings


@needs_reference
def test_costs_learned_at_one_setting_predict_the_others():
    settings = sweep()
    learned = fit_costs(settings.pop((1e9, 1e-3)))
    others = [point for points in settings.values() for point in points]
    assert len(others) > 200 and {point.workers for point in others} == {2, 4}
    for kind in {point.kind for point in others}:
        off = np.abs(gloo_errors([point for point in others if point.kind == kind], learned))
        assert np.median(off) <= 0.012 and np.percentile(off, 90) <= 0.05, kind
    off = np.abs(gloo_errors(others, learned))
    assert np.median(off) <= 0.008 and np.percentile(off, 90) <= 0.03
    # The preset is this fit, in round numbers.
    assert SHAPED.message_s == pytest.approx(learned.message_s, rel=0.02)
    assert dict(SHAPED.call_s) == pytest.approx(dict(learned.call_s), rel=0.03)
    for kind, calls in learned.call_of_s:
        assert dict(dict(SHAPED.call_of_s)[kind]) == pytest.approx(dict(calls), abs=1e-5)
    for kind, byte_s in learned.byte_s:
        assert SHAPED.seconds_per_byte(kind) == pytest.approx(byte_s, abs=1e-11)


@needs_reference
def test_fixed_latency_and_bandwidth_tell_the_forms_apart():
    """Without any fit the real forms are several times nearer than the textbook's."""
    points = [point for of in sweep().values() for point in of]
    off = np.median(np.abs(gloo_errors(points)))
    textbook = [
        float(collective_s(point.kind, point.workers, point.nbytes, point.link)) / point.seconds - 1 for point in points
    ]
    assert off < 0.05 and np.median(np.abs(textbook)) > 0.25
