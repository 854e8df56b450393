"""Answers on lines between places: all workers, tables beside their file, hivemind's whole gradients, one price."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import syncline as sl
from syncline.costmodel.collectives.table import candidates_on
from syncline.costmodel.traffic.overlap import WHOLE, Bucket, buckets_on
from syncline.planner.solving.link_selection import link_place
from syncline.sim import Call, clock, collective_finish_s
from syncline.specs import network

ROWS = [("us", "eu", 210, 103), ("eu", "us", 180, 103), ("us", "asia", 134, 157), ("eu", "asia", 76, 253)]
LAB = {"kind": "matrix", "places": {"us": 2, "eu": 2, "asia": 1}, "host": "6.9 Gbit/s",
       "inside": {"bandwidth": "6.9 Gbit/s", "latency": "350 us"}}  # fmt: skip
LINES = [{"from": a, "to": b, "bandwidth_mbit_s": rate, "rtt_ms": rtt} for a, b, rate, rtt in ROWS]
STAR = {"hosts": list("abcd"), "name": "star",
        "edges": [{"from": end, "to": "s", "latency": "10ms", "bandwidth": "1 Gbit/s"} for end in "abcd"]}  # fmt: skip


def project(on, **options):
    (row,) = sl.project(networks=[on], model="gpt2", methods=["ddp-adam"], thresholds=False, **options).rows
    return row


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    pd.DataFrame(LINES).to_csv(tmp_path / "lines.csv", index=False)
    (tmp_path / "lab.yaml").write_text(
        "kind: matrix\nplaces: {us: 2, eu: 2, asia: 1}\nlines: lines.csv\n"
        "inside: {bandwidth: 6.9 Gbit/s, latency: 350 us}\nhost: 6.9 Gbit/s\n"
    )
    return tmp_path / "lab.yaml"


def test_a_table_lies_beside_its_file_and_all_workers_take_part(lab: Path) -> None:
    row = project(str(lab))
    assert (
        row["workers"] == 5
        and row["network"] == "lab"
        and row["algorithm"] in candidates_on("all_reduce", network(str(lab)), 5)
    )
    assert project(str(lab), workers=4)["workers"] == 4


def test_a_frame_is_a_table_in_every_function(lab: Path) -> None:
    frame = LAB | {"lines": pd.DataFrame(LINES)}
    assert project(frame)["step_time_s"] == pytest.approx(project(str(lab))["step_time_s"], rel=1e-12)
    assert sl.pipeline(networks=[frame], stages=4).rows
    assert sl.collectives(networks=[frame], collectives=["all_reduce"]).rows


def test_advise_takes_the_workers_of_the_network(lab: Path) -> None:
    advice = sl.advise(network=str(lab), model="gpt2", hardware="a100", methods=["ddp-adam"])
    assert {row["workers"] for row in advice.rows} - {None} == {5}


def test_all_lines_between_places_are_solved_for_together() -> None:
    on = network(LAB | {"lines": LINES})
    place = link_place(on)
    assert place.name == "lines between places" and float(place.link.bandwidth_bytes_per_s) == pytest.approx(76e6 / 8)
    doubled = place.with_link(network("126.5ms,152Mbit/s"))
    for before, after in zip(np.ravel(on.lines), np.ravel(doubled.lines), strict=True):
        if before is not None:
            between = before.name not in ("us-us", "eu-eu", "asia-asia")
            factor = 2.0 if between else 1.0
            assert float(after.bandwidth_bytes_per_s) == pytest.approx(factor * float(before.bandwidth_bytes_per_s))
            assert float(after.latency_s) == pytest.approx(float(before.latency_s))
    assert link_place(on, "us-eu").link.name == "us-eu"
    # A latency in place of none is added to all lines between places, because no factor changes a latency of 0.
    free = network(LAB | {"lines": [line | {"rtt_ms": 0 if line["to"] == "asia" else 100} for line in LINES]})
    slower = link_place(free).with_link(network("7ms,76Mbit/s"))
    latencies = {line.name: line.latency_s for line in np.ravel(slower.lines) if line is not None}
    assert latencies["us-asia"] == latencies["eu-asia"] == 7e-3 and latencies["us-eu"] == pytest.approx(57e-3)
    assert latencies["us-us"] == 350e-6


def test_hivemind_averages_a_gradient_as_a_whole() -> None:
    buckets = (Bucket(0.5, 0.7), Bucket(0.5, 1.0))
    plain, software = (network(LAB | {"lines": LINES} | more) for more in ({}, {"hivemind": True}))
    assert buckets_on(plain, buckets) == buckets and buckets_on(software, buckets) == WHOLE
    overlapped, after = (project(LAB | {"lines": LINES, "hivemind": True}, overlap=kind) for kind in ("ddp", "none"))
    assert overlapped["step_time_s"] == pytest.approx(after["step_time_s"], rel=1e-12)
    call = Call(0, "all_reduce", 1e8, in_backward=True)
    by_clock = clock([call], 1.0, software, 5, 1, overlap="ddp", buckets=buckets)
    alone_s = collective_finish_s("all_reduce", 5, 1e8, software).max()
    assert by_clock.wall_s == pytest.approx(1.0 + alone_s, rel=1e-9)


def test_a_switch_s_links_are_no_lines_between_places() -> None:
    """On a star of equal links the ordered ring is the ring, so that a graph and a link have one price."""
    assert candidates_on("all_reduce", network(STAR), 4) == ("ordered-ring",)
    as_graph, as_link = (
        collective_finish_s("all_reduce", 4, 1e8, on, name).max()
        for on, name in ((network(STAR), "ordered-ring"), (network("20ms,1Gbit/s"), "ring"))
    )
    assert as_graph == pytest.approx(as_link, rel=1e-9)
    assert project(STAR, layout="pipeline=4")["step_time_s"] > 0


def test_a_projection_and_a_training_s_clock_take_one_price(lab: Path) -> None:
    row = project(str(lab), overlap="none", precision="fp32", compute_utilisation=None)
    on = network(str(lab))
    call = Call(0, "all_reduce", row["bytes_per_worker"])
    for evaluator in ("auto", "events"):
        timed = clock([call], 0.0, on, 5, 1, algorithm="auto", evaluator=evaluator)
        assert timed.wall_s == pytest.approx(row["communication_s"], rel=1e-9)
