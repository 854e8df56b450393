"""Latency, bandwidth and costs out of times that are made of them."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.costmodel import Link
from syncline.costmodel.collectives.cost import collective_s
from syncline.costmodel.collectives.gloo import gloo_message_s, gloo_s
from syncline.costmodel.link_fit import SEND, TimedCall, fit_link, predicted_s
from syncline.costmodel.network.software_costs import FREE, GlooCosts
from syncline.errors import SpecError
from tests.costmodel.collectives.gloo.shaped import SHAPED

SIZES = (4, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", SEND)
COSTS = GlooCosts(
    call_s=((2, 0.2e-3), (4, 0.5e-3)),
    byte_s=(("all_gather", 0.4e-9), ("all_reduce", 0.05e-9), ("reduce_scatter", 0.43e-9)),
)
LINKS = {
    "loopback": Link(30e-6, 2.5e9),
    "10 Gbit/s": Link(60e-6, 1.25e9),
    "1 Gbit/s": Link(1e-3, 0.125e9),
    "wan": Link(20e-3, 12.5e6),
}


def rows(
    link: Link, costs: GlooCosts = COSTS, noise: float = 0.0, outliers: float = 0.0, workers=(2, 4)
) -> list[TimedCall]:
    random = np.random.default_rng(1)
    made = []
    for kind in KINDS:
        for p in workers:
            for n in SIZES:
                seconds = gloo_message_s(n, link, costs) if kind == SEND else gloo_s(kind, p, n, link, costs)
                seconds *= 1 + noise * random.standard_normal()
                seconds *= 1 + random.uniform(1, 5) * (random.random() < outliers)
                made.append(TimedCall(kind, p, n, float(seconds)))
    return made


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize(("noise", "outliers", "within"), [(0, 0, 0.002), (0.01, 0, 0.02), (0.01, 0.1, 0.02)])
def test_the_constants_come_back(link: Link, noise: float, outliers: float, within: float):
    found = fit_link(rows(link, noise=noise, outliers=outliers))
    assert found.link.latency_s == pytest.approx(link.latency_s, rel=within)
    assert found.link.bandwidth_bytes_per_s == pytest.approx(link.bandwidth_bytes_per_s, rel=within)
    assert found.costs.message_s == 0
    assert np.median(np.abs(found.errors)) <= max(1.2 * noise, 0.001)


def test_costs_come_back_where_they_weigh():
    link = LINKS["10 Gbit/s"]
    found = fit_link(rows(link, noise=0.005))
    for p, seconds in COSTS.call_s:
        assert float(found.costs.seconds_per_call("all_reduce", p)) == pytest.approx(seconds, rel=0.03)
    for kind in ("all_gather", "reduce_scatter"):
        assert found.costs.seconds_per_byte(kind) == pytest.approx(COSTS.seconds_per_byte(kind), rel=0.1)
    assert found.costs.seconds_per_byte("broadcast") == 0


def test_one_number_of_workers_is_enough():
    link = LINKS["1 Gbit/s"]
    found = fit_link(rows(link, noise=0.005, workers=(3,)))
    assert found.link.latency_s == pytest.approx(link.latency_s, rel=0.02)
    assert found.link.bandwidth_bytes_per_s == pytest.approx(link.bandwidth_bytes_per_s, rel=0.02)


@pytest.mark.parametrize("bare", [SEND, "broadcast"])
def test_messages_or_broadcasts_tell_the_bandwidth(bare: str):
    link = LINKS["10 Gbit/s"]
    of = [one for one in rows(link, noise=0.005) if one.kind == bare or one.kind not in (SEND, "broadcast")]
    assert fit_link(of).link.bandwidth_bytes_per_s == pytest.approx(link.bandwidth_bytes_per_s, rel=0.02)


def test_what_a_message_costs_is_called_latency():
    link = LINKS["1 Gbit/s"]
    found = fit_link(rows(link, GlooCosts(message_s=0.2e-3)))
    assert found.link.latency_s == pytest.approx(link.latency_s + 0.2e-3, rel=1e-3)


def test_costs_that_there_are_not_are_none():
    found = fit_link(rows(LINKS["1 Gbit/s"], FREE))
    assert found.costs.byte_s == () and all(seconds == 0 for _, seconds in found.costs.call_s)
    assert set(found.spread) == {"latency", "bandwidth"}


def test_a_link_that_is_known_is_held():
    link = LINKS["1 Gbit/s"]
    found = fit_link(rows(link, SHAPED), link)
    assert found.link is link
    assert found.costs.message_s == pytest.approx(SHAPED.message_s, rel=0.01)
    assert np.abs(found.errors).max() < 0.01


def test_nothing_is_known_of_what_has_no_notices_but_latency_and_bandwidth():
    link = LINKS["10 Gbit/s"]
    of = [
        TimedCall(kind, p, n, float(link.transfer_s(n) if kind == SEND else collective_s(kind, p, n, link)))
        for kind in KINDS
        for p in (2, 4)
        for n in SIZES
    ]
    found = fit_link(of, library="textbook")
    assert found.link.latency_s == pytest.approx(link.latency_s, rel=1e-3) and found.costs == FREE
    assert found.link.bandwidth_bytes_per_s == pytest.approx(link.bandwidth_bytes_per_s, rel=1e-3)
    assert predicted_s(SEND, 2, 4e6, link, library="textbook") == link.transfer_s(4e6)


@pytest.mark.parametrize(
    ("of", "told"),
    [
        ([TimedCall("all_reduce", 2, 4, 1e-3)], "messages"),
        ([TimedCall(SEND, 2, 4, 1e-3), TimedCall(SEND, 2, 1 << 20, 1e-3)], "longer"),
        ([TimedCall("scan", 2, 4, 1e-3)], "measured.kind"),
        ([TimedCall(SEND, 2, 4, 0.0)], "above 0"),
    ],
)
def test_what_tells_nothing_is_refused(of: list[TimedCall], told: str):
    with pytest.raises(SpecError, match=told):
        fit_link(of)
