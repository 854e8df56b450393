"""Lines between places as users write them: rows, files, matrices, DataFrames; and back to fields."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from syncline.costmodel import GlooCosts, HivemindCosts, Link, Matrix, NcclCosts
from syncline.errors import SpecError
from syncline.specs.cluster.clusters import named_cluster
from syncline.specs.cluster.networks import network, network_fields
from tests.reference import ROOT

ROWS = [
    {"from": "us", "to": "eu", "bandwidth": "210 Mbit/s", "rtt": "103 ms"},
    {"from": "eu", "to": "us", "bandwidth": "190 Mbit/s", "latency": "50 ms"},
    {"from": "us", "to": "asia", "bandwidth": "134 Mbit/s", "rtt": "157 ms"},
    {"from": "eu", "to": "asia", "bandwidth": "76 Mbit/s", "rtt": "253 ms"},
]
PLACES = {"us": 2, "eu": 1, "asia": 1}
INSIDE = {"bandwidth": "6.9 Gbit/s", "latency": "350 us"}
GIVEN = {"kind": "matrix", "places": PLACES, "lines": ROWS, "inside": INSIDE}


def test_a_row_holds_for_both_directions_unless_the_other_has_its_own():
    made = network(GIVEN)
    assert isinstance(made, Matrix) and made.per == "connection" and made.ranks == (0, 0, 1, 2)
    assert made.lines[0][1] == Link(51.5e-3, 26.25e6, "us-eu")
    assert made.lines[1][0] == Link(50e-3, 23.75e6, "eu-us")
    assert made.lines[2][0] == Link(78.5e-3, 16.75e6, "asia-us")
    assert made.lines[2][2] == Link(350e-6, 862.5e6, "asia-asia")


def test_rows_may_be_a_file_a_frame_or_matrices(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["from,to,bandwidth_mbit_s,rtt_ms", "us,eu,210,103", "eu,us,190,100", "us,asia,134,157", "eu,asia,76,253"]
    (tmp_path / "lines.csv").write_text("\n".join(lines) + "\n")
    frame = pd.read_csv("lines.csv")
    rates = [[6900, 210, 134], [190, 6900, 76], [134, 76, 6900]]
    trips = [[0.7, 103, 157], [100, 0.7, 253], [157, 253, 0.7]]
    bandwidth = [[f"{rate} Mbit/s" for rate in row] for row in rates]
    rtt = [[f"{trip} ms" for trip in row] for row in trips]
    expected = network(GIVEN)
    for made in (
        network({**GIVEN, "lines": "lines.csv"}),
        network({**GIVEN, "lines": frame}),
        network({**GIVEN, "lines": frame.rename(columns={"bandwidth_mbit_s": "mbit_s"})}),  # as `validate` reads it
        network({**GIVEN, "lines": frame.assign(bandwidth_mbit_s=None, gbit_s=frame["bandwidth_mbit_s"] / 1000)}),
        network({"places": PLACES, "bandwidth": bandwidth, "rtt": rtt}),
    ):
        assert made.places == expected.places
        for row, other in zip(made.lines, expected.lines, strict=True):
            for line, expected_line in zip(row, other, strict=True):
                assert line.name == expected_line.name
                np.testing.assert_allclose(line.latency_s, expected_line.latency_s)
                np.testing.assert_allclose(line.bandwidth_bytes_per_s, expected_line.bandwidth_bytes_per_s)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"per": "host", "host": "6.9 Gbit/s", "uplink": {"bandwidth": "1 Gbit/s", "upload": "100 Mbit/s"}},
        {"per": "place", "uplink": {"us": "1 Gbit/s", "eu": "2 Gbit/s", "asia": {"bandwidth": 1e6, "latency": "1 ms"}}},
        {"ranks": ["asia", "us", "eu", "us"], "hivemind": {"call_overhead": "3 s"}, "name": "lab"},
        {"gloo": {"message_overhead": "0.1 ms"}},
        {"nccl": True, "lines": [{**ROWS[0], "overhead": "1 ms"}, *ROWS[2:]]},
    ],
)
def test_fields_build_the_same_network_again(more):
    made = network({**GIVEN, **more})
    assert network(network_fields(made)) == made


def test_libraries_and_caps():
    assert network({**GIVEN, "hivemind": True}).hivemind == HivemindCosts()
    assert network({**GIVEN, "hivemind": False}).hivemind is None
    assert network({**GIVEN, "gloo": {}}).gloo == GlooCosts() and network({**GIVEN, "nccl": True}).nccl == NcclCosts()
    assert network({**GIVEN, "host": {"bandwidth": 5.0, "upload": 1.0}}).card == Link(0.0, 5.0, upload_bytes_per_s=1.0)
    assert network({**GIVEN, "ranks": ["asia", "us", "eu", "us"]}).ranks == (2, 0, 1, 0)


def test_windows_limit_each_line_by_its_own_round_trip():
    made = network({**GIVEN, "tcp": {"window": "1 MB", "connections": 2}})
    assert made.lines[0][1].bandwidth_bytes_per_s == pytest.approx(2e6 / 0.103)
    assert made.lines[1][2].bandwidth_bytes_per_s == pytest.approx(2e6 / 0.253 if 2e6 / 0.253 < 9.5e6 else 9.5e6)
    own = network({**GIVEN, "lines": [{**ROWS[0], "tcp": {"window": "1 MB"}}, *ROWS[2:]], "tcp": {"window": "9 MB"}})
    assert own.lines[0][1].bandwidth_bytes_per_s == pytest.approx(1e6 / 0.103) and own.lines[0][1].tcp is None
    pings = [{"from": "us", "to": "eu", "rtt": "103 ms"}]  # the rate is the windows', at most the card's
    made = network({"places": ["us", "eu"], "lines": pings, "host": "1 MB/s", "tcp": {"window": "1 MB"}})
    assert made.lines[0][1].bandwidth_bytes_per_s == 1e6


@pytest.mark.parametrize("name", ["hivemind", "dtfm_case3"])
def test_examples_are_clusters(name):
    cluster = named_cluster(ROOT / "examples" / f"{name}.yaml")
    assert cluster.workers == {"hivemind": 8, "dtfm_case3": 64}[name]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "matrix"}, "network.places: got None"),
        ({**GIVEN, "places": {"us": 0}}, "network.places.us: got 0"),
        ({**GIVEN, "inside": None}, "network.lines.us.us: got None"),
        ({**GIVEN, "lines": ROWS[:2]}, "expected a line, in either direction"),
        ({**GIVEN, "lines": [*ROWS, {**ROWS[0], "to": "mars"}]}, "network.lines.4.to: got 'mars'"),
        ({**GIVEN, "lines": [*ROWS, ROWS[0]]}, "network.lines.4: got 'us to eu'"),
        ({**GIVEN, "lines": [{**ROWS[0], "latency": 1}]}, "network.lines.0.rtt.*none with latency"),
        ({**GIVEN, "lines": [{**ROWS[0], "bandwith": 1}]}, "network.lines.0.bandwith.*did you mean 'bandwidth'"),
        ({**GIVEN, "lines": "lines.txt"}, "network.lines: got 'lines.txt'"),
        ({**GIVEN, "rtt": [[1]]}, "network.rtt: .*none with lines"),
        ({"places": ["a", "b"], "bandwidth": [[1]], "rtt": [[1]]}, "network.bandwidth: got 1; expected 2 rows of 2"),
        ({**GIVEN, "ranks": ["us", "us", "us", "eu"]}, "network.ranks: got 3; expected 2 workers in 'us'"),
        ({**GIVEN, "ranks": ["uss", "us", "eu", "asia"]}, "network.ranks.0: got 'uss'"),
        ({**GIVEN, "uplink": {"us": 1.0}}, "network.uplink.eu: got None"),
        ({**GIVEN, "host": {"upload": 1.0}}, "network.host.bandwidth: got None"),
        ({**GIVEN, "hivemind": {"byte_overhead": 0}}, "network.hivemind.byte_overhead: got 0"),
        ({**GIVEN, "gloo": {}, "nccl": True}, "none with gloo"),
    ],
)
def test_what_is_no_matrix_is_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        network(fields)


LINE = {"bandwidth": "6.2 Gbit/s", "latency": "51.55 ms"}
HALF = {**LINE, "latency": "25.775 ms"}


@pytest.mark.parametrize(("streams", "gbit_s"), [(1, 0.21), (10, 2.1), (40, 6.2)])
def test_windows_limit_any_line_alike(streams, gbit_s):
    """On a link, a row of a matrix, an edge, a level and an uplink: min(k x window / round trip, bandwidth)."""
    tcp = {"tcp": {"window": 0.21e9 / 8 * 0.1031, "connections": streams}}
    lan = {"bandwidth": "10 Gbit/s", "latency": 0}
    networks = (
        {**LINE, **tcp},
        {"places": ["a", "b"], "lines": [{"from": "a", "to": "b", **LINE, **tcp}]},
        {"hosts": ["a", "b"], "edges": [{"from": "a", "to": "b", **LINE, **tcp}]},
        {"levels": [{"units": 1, "link": lan}, {"units": 2, "rails": 1, "link": {**LINE, **tcp}}]},
        {"sites": 2, "lan": lan, "uplink": {**HALF, **tcp}},
    )
    for fields in networks:
        topology = network(fields).among(2)
        channels = topology.paths(np.array([0]), np.array([1])).channels[0]
        rate = topology.bandwidth_bytes_per_s[channels[channels >= 0]].min()
        assert rate * 8 / 1e9 == pytest.approx(gbit_s, rel=1e-6)
