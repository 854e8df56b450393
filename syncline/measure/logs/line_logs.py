"""Lines between places: JSON of iperf3, output of ping, and tables of regions.

iperf3 and ping name addresses, not places. A file's name tells the places of both ends: ``us_to_eu.json``,
``us-to-eu.80.json`` or ``us--eu.txt``; without such a name the hosts in the file are the places.

A table of regions is a CSV file with one of the pairs of columns `ENDS` and the rate or the round trip in one of the
columns `RATES` and `ROUND_TRIPS`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from syncline.measure.logs.logged import Logged, log_error, number_of

PLACES = re.compile(r"^(.+?)(?:[-_]to[-_]|--|->)([^.]+)")
ROUND_TRIP = re.compile(r"(?:rtt|round-trip) min/avg/max/(?:mdev|stddev) = [\d.]+/([\d.]+)/[\d.]+/[\d.]+ ms")
PINGED = re.compile(r"^PING (\S+)")

ENDS = (("from", "to"), ("source", "target"), ("sender", "receiver"))
"""Pairs of columns with the places of a line."""

RATES = {"gbit_s": 125e6, "mbit_s": 125e3, "bandwidth_gbit_s": 125e6, "bandwidth_mbit_s": 125e3, "nccl_mbit_s": 125e3}
"""Columns of rates, each with its unit in bytes per second."""

ROUND_TRIPS = {"rtt_ms": 1e-3, "ping_ms": 1e-3, "latency_ms": 2e-3}
"""Columns of round trips, each with its unit in seconds; a latency is one way."""


def is_iperf(text: str) -> bool:
    """Return whether a text is the JSON of iperf3."""
    return text.lstrip().startswith("{") and '"start"' in text and '"end"' in text


def iperf_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the rate of all streams of a run of iperf3, with the round trip that the sender's kernel saw.

    Raises:
        SynclineError: the JSON cannot be read, or iperf3 reports an error.
    """
    try:
        run = json.loads(text)
    except ValueError as error:
        raise log_error(file, getattr(error, "lineno", 0), f"expected JSON of iperf3 -J ({error})") from None
    if run.get("error"):
        raise log_error(file, 0, f"iperf3 failed: {run['error']}")
    try:
        start, end = run["start"], run["end"]
        total = end.get("sum_received") or end["sum"]
        streams = int(start["test_start"]["num_streams"])
        reverse = bool(start["test_start"].get("reverse"))
        ends = start["connected"][0]["local_host"], start["connecting_to"]["host"]
        rate = number_of(str(total["bits_per_second"]), "bits_per_second", file, 0) / 8
        round_trips = [stream["sender"].get("mean_rtt") for stream in end.get("streams", ())]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise log_error(file, 0, f"expected JSON of iperf3 -J, which has {error}") from None
    known_s = [1e-6 * float(rtt) for rtt in round_trips if rtt]
    source, target = _ends(file, *(ends[::-1] if reverse else ends))
    setting = {
        "source": source, "target": target, "streams": streams,
        "rtt_s": sum(known_s) / len(known_s) if known_s else None,
    }  # fmt: skip
    yield Logged("rate", rate, setting, file, 0)


def is_ping(text: str) -> bool:
    """Return whether a text is the output of ping."""
    return any(PINGED.match(line) for line in text.splitlines())


def ping_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the mean round trip of each ping in a text.

    Raises:
        SynclineError: a ping has no line of round trips, because nothing came back.
    """
    host, begin = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if pinged := PINGED.match(line):
            if host:
                raise log_error(file, begin, f"ping of {host} has no line 'rtt min/avg/max/mdev = ...'")
            host, begin = pinged[1], number
        elif (match := ROUND_TRIP.search(line)) and host:
            source, target = _ends(file, "here", host)
            rtt_s = 1e-3 * number_of(match[1], "rtt", file, number)
            yield Logged("round trip", rtt_s, {"source": source, "target": target}, file, number)
            host = ""
    if host:
        raise log_error(file, begin, f"ping of {host} has no line 'rtt min/avg/max/mdev = ...'")


def is_region_table(header: set[str]) -> bool:
    """Return whether these are the columns of a table of regions."""
    has_ends = any(header.issuperset(pair) for pair in ENDS)
    return has_ends and not header.isdisjoint({*RATES, *ROUND_TRIPS})


def region_table(text: str, file: Path) -> Iterator[Logged]:
    """Yield the rates and round trips of a table of regions.

    Raises:
        SynclineError: a number cannot be read, or a place is missing.
    """
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        source, target = next((row[a], row[b]) for a, b in ENDS if a in row and b in row)
        if not source or not target:
            raise log_error(file, number, "expected the places of both ends")
        rtt_s = _first(row, ROUND_TRIPS, file, number)
        rate = _first(row, RATES, file, number)
        ends: dict[str, Any] = {"source": source, "target": target}
        if rtt_s is not None:
            yield Logged("round trip", rtt_s, ends, file, number)
        if rate is not None:
            streams = int(number_of(row["streams"], "streams", file, number)) if row.get("streams") else 1
            yield Logged("rate", rate, ends | {"streams": streams, "rtt_s": rtt_s}, file, number)


def _first(row: Mapping[str, str], units: Mapping[str, float], file: Path, line: int) -> float | None:
    """Return the value of the first of the columns that a row fills, in SI units."""
    name = next((name for name in units if row.get(name)), None)
    return None if name is None else units[name] * number_of(row[name], name, file, line)


def _ends(file: Path, source: str, target: str) -> tuple[str, str]:
    """Return the places of both ends: those in the file's name, else the hosts in the file."""
    named = PLACES.match(file.stem)
    return (named[1], named[2]) if named else (source, target)
