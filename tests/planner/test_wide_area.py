"""Lines between places against measurements of others; see also `tests.measure.validation.test_wide_lines`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from syncline.costmodel import HivemindCosts
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.network.regions import LAN, LINES
from syncline.planner.projection.pricing import simulated_s
from syncline.specs.cluster.networks import network
from tests.measure.validation.wide_lines import averaging_s, read, stream_bytes_per_s
from tests.reference import REFERENCE, needs_reference

pytestmark = needs_reference

HALF_BYTES = 2


def median_error(errors: Iterable[float]) -> float:
    return float(np.median(np.abs(list(errors))))


def test_without_the_software_a_zone_is_ten_times_too_fast():
    """The network of a zone needs 1.3 to 2.3 seconds of 13.8 to 20.8."""
    free = HivemindCosts(0.0, 0.0, 1e-12)
    seconds = [averaging_s(row, free) for row in read("seconds") if row["id"].startswith("A") and "nlp" in row["id"]]
    assert min(seconds) == pytest.approx(1.3, abs=0.03) and max(seconds) == pytest.approx(2.3, abs=0.03)


def test_one_row_of_iperf_gives_the_window_of_the_others():
    table = json.loads((REFERENCE / "wan" / "networks.json").read_text())["gc_hivemind"]["eu_us_multi_stream_gbit_s"]
    measured = {int(streams): gbit_s * 1e9 / 8 for streams, gbit_s in table.items()}
    for known in (1, 5, 10, 20):
        window = measured[known] * 103.1e-3 / known
        errors = [stream_bytes_per_s(window, streams) / rate - 1 for streams, rate in measured.items()]
        assert median_error(errors) < 0.015 and max(map(abs, errors)) < 0.023


def test_presets_have_the_measured_cells():
    tables: dict[str, Any] = json.loads((REFERENCE / "wan" / "networks.json").read_text())
    for pair in tables["aws_cross_region_nccl"]["pairs"]:
        line = LINES[pair["send"].lower(), pair["recv"].lower()]
        assert line.latency_s == pytest.approx(pair["ping_ms"] / 2e3)
        assert line.bandwidth_bytes_per_s == pytest.approx(pair["nccl_64MB_gbit_s"] * 1e9 / 8, rel=2e-3)
    google = tables["gc_hivemind"]
    for ends, gbit_s in google["single_stream_tcp_gbit_s"].items():
        a, _, b = ends.lower().partition("-")
        line = LINES[f"gc-{a}", f"gc-{b}"] if b else LAN["gc"]
        assert line.bandwidth_bytes_per_s == pytest.approx(gbit_s * 1e9 / 8)
        assert line.latency_s == pytest.approx(google["rtt_ms"][ends] / 2e3)


def test_64_places_in_a_second():
    """A direct exchange and a ring among 64 places with different lines from each to each."""
    generator = np.random.default_rng(0)
    mbit_s, rtt_ms = generator.uniform(50, 1000, (2, 64, 64))
    names = [f"p{number}" for number in range(64)]
    matrices = {
        "bandwidth": [[None if a == b else f"{mbit_s[a, b]:.0f} Mbit/s" for b in range(64)] for a in range(64)],
        "rtt": [[None if a == b else f"{rtt_ms[a, b]:.0f} ms" for b in range(64)] for a in range(64)],
    }
    made = network({"kind": "matrix", "places": names, **matrices})
    for algorithm in ("direct", "ring"):
        priced = collective_prices("all_reduce", np.array([64]), 1e9, made, algorithm, timer=simulated_s)
        assert priced.sources == ("lockstep",) and priced.seconds.item() > 0
