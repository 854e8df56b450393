"""Errors of times on lines between places: each group of measurements by constants of the others."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from syncline.costmodel import HivemindCosts
from syncline.costmodel.collectives.prices import collective_prices
from syncline.costmodel.network.regions import AWS_PAIRS
from syncline.measure.validation.cluster_files import COLLECTIVES
from syncline.sim.clocks.single_collective import simulated_s
from syncline.specs.cluster.networks import network

MEASURED = COLLECTIVES.with_name("wide_area.csv")
HALF_BYTES = 2
ROUND_TRIP = "103.1 ms"
LONG_S, SHORT_S = 0.08, 0.05
"""Round trips from which windows limit a line between regions, and up to which its cap does."""


class Error(NamedTuple):
    """An error of a predicted time, ``predicted / measured - 1``; its constants come from other groups."""

    group: str
    error: float


def read(quantity: str) -> list[dict[str, str]]:
    """Return the rows of one quantity: ``seconds`` of averagings, ``gbit_s`` of streams."""
    with MEASURED.open(encoding="utf-8", newline="") as lines:
        return [row for row in csv.DictReader(lines) if row["quantity"] == quantity]


def averaging_s(row: Mapping[str, str], costs: HivemindCosts | bool = True) -> float:
    """Return the seconds of an averaging, priced as every answer prices it."""
    places = {f"gc-{name}": int(row[f"machines_{name}"]) for name in ("us", "eu") if int(row[f"machines_{name}"])}
    made = network({"sites": places, "hivemind": costs})
    nbytes, workers = HALF_BYTES * float(row["parameters"]), np.array([sum(places.values())])
    return float(np.asarray(collective_prices("all_reduce", workers, nbytes, made, timer=simulated_s).seconds).item())


def averaging_errors() -> list[Error]:
    """Return errors of averagings: in a zone by costs of the other rows, between regions by those of the zone."""
    rows = read("seconds")
    zone = [row for row in rows if row["id"].startswith("A")]
    errors = [
        Error(row["id"], averaging_s(row, zone_costs([other for other in zone if other is not row])) / seconds(row) - 1)
        for row in zone
    ]
    between = [row for row in rows if row not in zone]
    return errors + [Error(row["id"][:3], averaging_s(row) / seconds(row) - 1) for row in between]


def seconds(row: Mapping[str, str]) -> float:
    """Return the measured seconds of an averaging."""
    return float(row["value"])


def zone_costs(rows: Sequence[Mapping[str, str]]) -> HivemindCosts:
    """Return the costs T = call + peer (P - 2) + byte n of averagings in a zone, by relative least squares."""
    terms = np.array([(1.0, int(row["machines_us"]) - 2, HALF_BYTES * float(row["parameters"]) / 1e9) for row in rows])
    measured = np.array([seconds(row) for row in rows])
    call_s, peer_s, gigabyte_s = np.linalg.lstsq(terms / measured[:, None], np.ones(len(rows)), rcond=None)[0]
    return HivemindCosts(call_s, peer_s, gigabyte_s / 1e9)


def stream_bytes_per_s(window_bytes: float, streams: int) -> float:
    """Return what streams of a window carry between the regions, below the 6.2 Gbit/s that 80 of them get."""
    tcp = {"window": window_bytes, "connections": streams}
    line = {"from": "us", "to": "eu", "bandwidth": "6.2 Gbit/s", "rtt": ROUND_TRIP, "tcp": tcp}
    made = network({"kind": "matrix", "places": ["us", "eu"], "lines": [line], "host": "6.9 Gbit/s"})
    topology = made.among(2)
    channels = topology.paths(np.array([0]), np.array([1])).channels[0]
    return float(topology.bandwidth_bytes_per_s[channels].min())


def stream_errors() -> list[Error]:
    """Return errors of the times of several streams by the window of a single one."""
    rate = {int(row["streams"]): float(row["value"]) * 1e9 / 8 for row in read("gbit_s")}
    window = rate[1] * 103.1e-3
    return [
        Error("streams", rate[count] / stream_bytes_per_s(window, count) - 1) for count in sorted(rate) if count > 1
    ]


def pair_errors() -> list[Error]:
    """Return errors of times between regions by the windows and the cap of the lines to the other regions."""
    receivers = np.array([receiver for receiver, *_ in AWS_PAIRS])
    rtt_s, rate = np.array([(ping_ms / 1e3, mbit_s * 1e6 / 8) for *_, ping_ms, mbit_s in AWS_PAIRS]).T
    errors = []
    for region in sorted(set(receivers)):
        others = receivers != region
        window = float(np.median((rate * rtt_s)[others & (rtt_s > LONG_S)]))
        cap = float(np.median(rate[others & (rtt_s < SHORT_S)]))
        errors += [Error(region, rate[pair] / min(window / rtt_s[pair], cap) - 1) for pair in np.flatnonzero(~others)]
    return errors


def wide_line_errors() -> list[Error]:
    """Return the errors of all groups."""
    return averaging_errors() + stream_errors() + pair_errors()


def covered(errors: Sequence[Error], bounds: Any) -> float:
    """Return the part of the measurements that are within the bounds that the other groups' errors give."""
    inside = []
    for group, error in errors:
        interval = bounds([other for name, other in errors if name != group])
        inside.append(interval.low <= 1 / (1 + error) <= interval.high)
    return float(np.mean(inside))
