"""Measurements in logs, one `Format` for each program that writes them, and the GPUs that a log can name.

iperf3 and ping measure a line between two places, but name addresses. A file's name says which places they are:
``us_to_eu.json``, ``us-to-eu.80.json`` or ``us--eu.txt``; without such a name the hosts in the file are the places.

A table of regions is a CSV file with one of the pairs of columns `ENDS` and the rate or the round trip in one of the
columns `RATES` and `ROUND_TRIPS`.

nccl-tests (``all_reduce_perf`` and its siblings) print these lines, and a job may print others between them:

    # Collective test starting: all_reduce_perf
    #  Rank  0 Group  0 Pid   1234 on     node1 device  0 [0000:04:00] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw  #wrong     time ...
        8388608       2097152     float     sum      -1    75.41  111.24  208.58       0    74.90 ...

Times are those out of place. Older versions do not name the collective; it then follows from the file's name, or from
the ratio of the bus bandwidth to the algorithm's bandwidth.

The communication benchmarks of DeepSpeed (``ds_bench``, with ``--dist torch`` those of PyTorch) print:

    ---- Performance of all_reduce on 16 devices ---------------------------------------------------------
    Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)
    ----------------------------------------------------------------------------------------------------
    1.0 MB               262144x4                  112.123 us           149.634              140.282

The description has the number of elements and the bytes of each, which are exact where the size is rounded. With
``--raw``, sizes are in bytes and durations in microseconds, without a unit.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from syncline.errors import SpecError, SynclineError

Quantity = Literal["collective", "rate", "round trip"]


class Logged(NamedTuple):
    """A measurement, in the shape that all formats of logs return.

    | quantity     | value                           | setting                                                        |
    |--------------|---------------------------------|----------------------------------------------------------------|
    | `collective` | seconds                         | ``kind``, ``workers``, ``nodes``, ``nbytes``, ``gpu``          |
    | `rate`       | bytes per second of all streams | ``source``, ``target``, ``streams``, ``rtt_s`` (None: unknown) |
    | `round trip` | seconds                         | ``source``, ``target``                                         |

    Attributes:
        value: the measured value, in SI units.
        setting: the conditions of the measurement, by name; ``nbytes`` as the closed forms count them.
        line: number of the line, from 1; 0 for a file without lines.
    """

    quantity: Quantity
    value: float
    setting: Mapping[str, Any]
    file: Path
    line: int


def log_error(file: Path, line: int, problem: str) -> SynclineError:
    """Return the error of a line of a log."""
    where = f"{file}, line {line}" if line else str(file)
    return SynclineError(f"measurements: {where}: {problem}")


def positive_number(text: str, name: str, minimum: float | None = None) -> float:
    """Return the finite number in a text, which must be positive, or at least ``minimum`` if that is given.

    Raises:
        SpecError: another number or text; the error has the field's ``name``.
    """
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    is_large_enough = value > 0 if minimum is None else value >= minimum
    if not (math.isfinite(value) and is_large_enough):
        raise SpecError(name, text, "a positive number" if minimum is None else f"a number, at least {minimum:g}")
    return value


def number_of(text: str, name: str, file: Path, line: int) -> float:
    """Return the positive number in a text; raise an error that names the field, the file and the line otherwise."""
    try:
        return positive_number(text, name)
    except SpecError as error:
        raise log_error(file, line, str(error)) from None


def payload_bytes(kind: str, whole_bytes: float, workers: int) -> float:
    """Return the bytes that closed forms count for a benchmark's size: for a gather, those of one worker's part.

    Source: NVIDIA nccl-tests, doc/PERFORMANCE.md.
    """
    return whole_bytes / workers if kind in ("all_gather", "gather") else whole_bytes


class Gpu(NamedTuple):
    """The network and the NVLink of a GPU's machines.

    Attributes:
        network: preset of the network between such GPUs; None if there is none.
        nvlink: generation of NVLink whose costs are measured; None if they are not.
    """

    network: str | None
    nvlink: int | None


GPUS = {
    "V100": Gpu("p3.2xlarge", None), "A100": Gpu("dgx-a100", 3), "H100": Gpu("dgx-h100", 4), "H200": Gpu("dgx-h200", 4),
    "H20": Gpu("hgx-h20", 4), "H800": Gpu(None, 4), "B200": Gpu("dgx-b200", 5), "B300": Gpu("dgx-b300", 5),
    "GB200": Gpu("gb200-nvl72", 5), "GB300": Gpu("gb300-nvl72", 5),
}  # fmt: skip
"""The GPUs by the word in a driver's name. Source: NVIDIA's data sheets."""

MACHINES = {word.lower(): gpu.network for word, gpu in GPUS.items() if gpu.network} | {"a100-40gb": "dgx-a100"}
"""Presets of networks by the preset of the hardware, for tables and logs that name no network."""


def gpus_in(names: str) -> list[Gpu]:
    """Return the GPUs of `GPUS` whose names are words of a driver's name.

    >>> gpus_in("NVIDIA A100-SXM4-80GB")
    [Gpu(network='dgx-a100', nvlink=3)]
    """
    words = names.replace("-", " ").split()
    return [gpu for word, gpu in GPUS.items() if word in words]


PLACES = re.compile(r"^(.+?)(?:[-_]to[-_]|--|->)([^.]+)")
ROUND_TRIP = re.compile(r"(?:rtt|round-trip) min/avg/max/(?:mdev|stddev) = [\d.]+/([\d.]+)/[\d.]+/[\d.]+ ms")
PINGED = re.compile(r"^PING (\S+)")

ENDS = (("from", "to"), ("source", "target"), ("sender", "receiver"))
"""Pairs of columns with the places of a line."""

RATES = {"gbit_s": 125e6, "mbit_s": 125e3, "bandwidth_gbit_s": 125e6, "bandwidth_mbit_s": 125e3, "nccl_mbit_s": 125e3}
"""Columns of rates, each with its unit in bytes per second."""

ROUND_TRIPS = {"rtt_ms": 1e-3, "ping_ms": 1e-3, "latency_ms": 2e-3}
"""Columns of round trips, each with its unit in seconds; a latency is one way."""


def iperf_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the rate of all streams of a run of iperf3, with the round trip that the sender's kernel saw."""
    try:
        run = json.loads(text)
    except ValueError as error:
        raise log_error(file, getattr(error, "lineno", 0), f"expected JSON of iperf3 -J ({error})") from None
    if run.get("error"):
        raise log_error(file, 0, f"iperf3 failed: {run['error']}")
    try:
        start, end = run["start"], run["end"]
        total = end.get("sum_received") or end["sum"]  # the received bytes, if the log distinguishes them
        streams = int(start["test_start"]["num_streams"])
        is_reversed = bool(start["test_start"].get("reverse"))
        client, server = start["connected"][0]["local_host"], start["connecting_to"]["host"]
        rate = number_of(str(total["bits_per_second"]), "bits_per_second", file, line=0) / 8
        round_trips = [stream["sender"].get("mean_rtt") for stream in end.get("streams", ())]
    except (KeyError, IndexError, TypeError, AttributeError) as error:  # as text, a KeyError is the missing key
        raise log_error(file, 0, f"expected JSON of iperf3 -J, which has {error}") from None
    known_s = [1e-6 * float(rtt) for rtt in round_trips if rtt]  # iperf3 writes microseconds
    sender, receiver = (server, client) if is_reversed else (client, server)
    source, target = _ends(file, sender, receiver)
    setting = {
        "source": source, "target": target, "streams": streams,
        "rtt_s": sum(known_s) / len(known_s) if known_s else None,
    }  # fmt: skip
    yield Logged("rate", rate, setting, file, line=0)


def ping_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the mean round trip of each ping in a text."""
    host, first_line = "", 0  # host and line of the ping whose summary is awaited
    for number, line in enumerate(text.splitlines(), start=1):
        pinged, round_trip = PINGED.match(line), ROUND_TRIP.search(line)
        if pinged is not None and host:  # the ping before has no summary
            break
        if pinged is not None:
            host, first_line = pinged[1], number
        elif round_trip is not None and host:
            source, target = _ends(file, "here", host)
            rtt_s = 1e-3 * number_of(round_trip[1], "rtt", file, line=number)
            yield Logged("round trip", rtt_s, setting={"source": source, "target": target}, file=file, line=number)
            host = ""
    if host:
        raise log_error(file, first_line, f"ping of {host} has no line 'rtt min/avg/max/mdev = ...'")


def is_region_table(text: str) -> bool:
    """Return whether the first line of a text names the columns of a table of regions."""
    header = set(next(csv.reader(io.StringIO(text)), ()))
    has_ends = any(header.issuperset(pair) for pair in ENDS)
    return has_ends and not header.isdisjoint({*RATES, *ROUND_TRIPS})


def region_table(text: str, file: Path) -> Iterator[Logged]:
    """Yield the rates and round trips in a table of regions, a CSV file."""
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):  # the header is line 1
        (source_column, target_column), *_ = [pair for pair in ENDS if row.keys() >= set(pair)]
        source, target = row[source_column], row[target_column]
        if not source or not target:
            raise log_error(file, number, "expected the places of both ends")
        rtt_s = _first_value(row, ROUND_TRIPS, file, line=number)
        rate = _first_value(row, RATES, file, line=number)
        ends: dict[str, Any] = {"source": source, "target": target}
        if rtt_s is not None:
            yield Logged("round trip", rtt_s, setting=ends, file=file, line=number)
        if rate is not None:
            streams = int(number_of(row["streams"], "streams", file, line=number)) if row.get("streams") else 1
            yield Logged("rate", rate, setting=ends | {"streams": streams, "rtt_s": rtt_s}, file=file, line=number)


def _first_value(row: Mapping[str, str], units: Mapping[str, float], file: Path, line: int) -> float | None:
    """Return the value in SI units of the first of the columns ``units`` that a row fills; None if it fills none."""
    for column, unit in units.items():
        if row.get(column):
            return unit * number_of(row[column], column, file, line)
    return None


def _ends(file: Path, source: str, target: str) -> tuple[str, str]:
    """Return the places of both ends: those in the file's name, else the hosts ``source`` and ``target``."""
    ends_in_name = PLACES.match(file.stem)
    return (source, target) if ends_in_name is None else (ends_in_name[1], ends_in_name[2])


NCCL_TESTS_KINDS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "sendrecv": "", "scatter": "", "hypercube": "",
}  # fmt: skip
"""Collective of each program ``NAME_perf``; empty if no closed form has it."""

RANK = re.compile(r"#\s*Rank\s+\d+\s.*\son\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?\s*(.*?)\s*$")
PROGRAM = re.compile(rf"({'|'.join(sorted(NCCL_TESTS_KINDS, key=len, reverse=True))})_perf")
NAME_WITHOUT_PERF = re.compile("(all_reduce|all_gather|reduce_scatter|alltoall|broadcast)")
HEADER = re.compile(r"#\s+size\s+count\s.*\btime\b")
NCCL_TESTS_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s")
SAME_RATIO = 0.02
"""Largest relative difference of two equal ratios of bandwidths, which are rounded to two digits."""


def nccl_tests_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the timed collectives in the output of nccl-tests."""
    program_in_name = PROGRAM.search(file.name) or NAME_WITHOUT_PERF.search(file.name)
    kind = None if program_in_name is None else NCCL_TESTS_KINDS[program_in_name[1]]
    hosts: list[str] = []  # of each rank
    gpu, columns = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), start=1):
        is_row = NCCL_TESTS_ROW.match(line) is not None
        rank, program, header = RANK.search(line), PROGRAM.search(line), HEADER.search(line)
        if rank is not None:
            hosts.append(rank[1])
            gpu = rank[2]
        elif program is not None and not is_row:
            kind = NCCL_TESTS_KINDS[program[1]]
        elif header is not None:
            names = header[0].lstrip("# ").split()
            columns = {name: names.index(name) for name in ("size", "time")}
        elif columns and is_row:
            yield _nccl_tests_row(line.split(), columns, kind, hosts, gpu, origin=(file, number))


def _nccl_tests_row(
    cells: list[str], columns: dict[str, int], kind: str | None, hosts: list[str], gpu: str, origin: tuple[Path, int]
) -> Logged:
    """Return the measurement in a row of the output of nccl-tests.

    Args:
        columns: the indices of the words ``size`` and ``time``; two bandwidths follow the time.
        kind: the collective; empty if no closed form has it, None if the output does not name it.
        origin: the file and the number of the row's line.
    """
    if not hosts:
        raise log_error(
            *origin, "no lines '# Rank ... on HOST device ...' before it, from which the number of GPUs follows"
        )
    if len(cells) < columns["time"] + 3:
        raise log_error(*origin, f"{len(cells)} columns where the header has a time and two bandwidths")
    workers = len(hosts)
    size = number_of(cells[columns["size"]], "size", *origin)
    time_text, algorithm_text, bus_text = cells[columns["time"] : columns["time"] + 3]
    time_us = number_of(time_text, "time", *origin)
    if kind is None and workers > 2:
        # Among P > 2 workers only an all-reduce has the ratio 2 (P - 1) / P. Source: nccl-tests, doc/PERFORMANCE.md.
        algorithm_bandwidth = number_of(algorithm_text, "algbw", *origin)
        ratio = number_of(bus_text, "busbw", *origin) / algorithm_bandwidth
        if abs(ratio / (2 * (workers - 1) / workers) - 1) < SAME_RATIO:
            kind = "all_reduce"
    if not kind:
        problem = "the log does not say which collective it measured: name the file after it, as in all_reduce_perf.log"
        raise log_error(*origin, problem)
    nbytes = payload_bytes(kind, size, workers)
    setting = {"kind": kind, "workers": workers, "nodes": len(set(hosts)), "nbytes": nbytes, "gpu": gpu}
    return Logged("collective", 1e-6 * time_us, setting, *origin)


TITLE = re.compile(r"Performance of (\w+) on (\d+) devices", re.IGNORECASE)
DS_BENCH_KINDS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "all_gather": "all_gather", "allgather": "all_gather",
    "all_to_all": "all_to_all", "alltoall": "all_to_all", "broadcast": "broadcast", "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
}  # fmt: skip
"""Collectives by the names in titles; others, such as pt2pt, have no closed form of a collective."""

DS_BENCH_ROW_START = re.compile(r"\s*[\d.]+\s*[KMGT]?i?B?\s+\S*x")
DS_BENCH_ROW = re.compile(r"\s*[\d.]+\s*[KMGT]?i?B?\s+(\d+)x(\d+)\s+([\d.]+)\s*(us|ms|s)?\s")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def torch_comms_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the timed collectives in the output of DeepSpeed's benchmarks; messages between pairs are left out."""
    kind, workers = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        title = TITLE.search(line)
        if title is not None:
            kind, workers = DS_BENCH_KINDS.get(title[1].lower(), ""), int(title[2])
            if workers < 2:
                raise log_error(file, number, f"{workers} device, where a collective has at least two")
        elif kind and DS_BENCH_ROW_START.match(line):
            row = DS_BENCH_ROW.match(line)
            if row is None:
                raise log_error(file, number, "expected size, ELEMENTSxBYTES, duration and two rates")
            elements, element_bytes, duration, unit = row.groups(default="us")  # the option --raw leaves the unit out
            seconds = UNITS[unit] * number_of(duration, "duration", file, line=number)
            nbytes = number_of(elements, "elements", file, line=number) * int(element_bytes)
            # Like the closed forms, the log counts bytes of the input: for a gather, each worker's part.
            setting = {"kind": kind, "workers": workers, "nodes": None, "nbytes": nbytes, "gpu": ""}
            yield Logged("collective", seconds, setting, file, line=number)


class Format(NamedTuple):
    """A format of logs.

    Attributes:
        matches: function that returns whether a text has this format.
        read: function that yields the measurements of a text.
        of_lines: whether the measurements are TCP rates and round trips of lines between places.
    """

    name: str
    matches: Callable[[str], bool]
    read: Callable[[str, Path], Iterator[Logged]]
    of_lines: bool = False


def has_line(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a function that returns whether a line of a text has the pattern."""
    return lambda text: any(pattern.search(line) for line in text.splitlines())


FORMATS = (
    Format(
        "JSON of iperf3 -J", lambda text: text.lstrip().startswith("{") and '"start"' in text and '"end"' in text,
        iperf_log, of_lines=True,
    ),
    Format("output of nccl-tests", has_line(HEADER), nccl_tests_log),
    Format("output of DeepSpeed's communication benchmarks", has_line(TITLE), torch_comms_log),
    Format("output of ping", has_line(PINGED), ping_log, of_lines=True),
    Format("a table of regions (from, to, gbit_s, rtt_ms)", is_region_table, region_table, of_lines=True),
)  # fmt: skip
"""The formats, in the order in which a file is compared with them."""


def read_text(file: Path, path: str = "measurements") -> str:
    """Return the text of a log file; refuse a file that cannot be read."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise SpecError(path, str(file), f"a file that can be read ({reason})") from None


def format_of(text: str) -> Format | None:
    """Return the format of a measurement log, such as that of ``ping``, from its text; None if no format fits."""
    return next((log_format for log_format in FORMATS if log_format.matches(text)), None)


def read_log(file: Path, path: str = "measurements") -> list[Logged]:
    """Return the measurements of a log, of whichever format; errors name the field ``path``.

    Raises:
        SynclineError: the file has none of the formats, or no measurement; or a line cannot be read.
    """
    text = read_text(file, path)
    log_format = format_of(text)
    if log_format is None:
        raise SpecError(path, str(file), " or ".join(known_format.name for known_format in FORMATS))
    logged = list(log_format.read(text, file))
    if not logged:
        raise SpecError(path, str(file), f"{log_format.name} with a measurement")
    return logged
