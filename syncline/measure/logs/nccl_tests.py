"""Output of nccl-tests: ``all_reduce_perf`` and its siblings, with whatever else a job has printed between its lines.

    # Collective test starting: all_reduce_perf
    #  Rank  0 Group  0 Pid   1234 on     node1 device  0 [0000:04:00] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw  #wrong     time ...
        8388608       2097152     float     sum      -1    75.41  111.24  208.58       0    74.90 ...

Older versions do not name the collective; the bus bandwidth over the algorithm's then tells, or the file's name. Times
are those out of place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from syncline.measure.logs.logged import Logged, log_error, number_of, payload_bytes

KINDS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "sendrecv": "", "scatter": "", "hypercube": "",
}  # fmt: skip
"""Collective of each program ``NAME_perf``; empty if no closed form has it."""

RANK = re.compile(r"#\s*Rank\s+\d+\s.*\son\s+(\S+)\s+device\s+\d+\s*(?:\[[^\]]*\])?\s*(.*?)\s*$")
PROGRAM = re.compile(rf"({'|'.join(sorted(KINDS, key=len, reverse=True))})_perf")
HEADER = re.compile(r"#\s+size\s+count\s.*\btime\b")
ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s")
SAME = 0.02
"""Relative difference of two bandwidths that are rounded to two digits."""


def is_nccl_tests(text: str) -> bool:
    """Return whether a text is the output of nccl-tests."""
    return any(HEADER.search(line) for line in text.splitlines())


def nccl_tests_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the timed collectives of a log.

    Raises:
        SynclineError: there are no ranks, a row cannot be read, or no program's name tells the collective.
    """
    hosts: list[str] = []
    kind, gpu, columns = _kind_in(file.name), "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), start=1):
        if rank := RANK.search(line):
            hosts, gpu = [*hosts, rank[1]], rank[2]
        elif (program := PROGRAM.search(line)) and not ROW.match(line):
            kind = KINDS[program[1]]
        elif header := HEADER.search(line):
            names = header[0].lstrip("# ").split()
            columns = {name: names.index(name) for name in ("size", "time")}
        elif columns and ROW.match(line):
            yield _row(line.split(), columns, kind, hosts, gpu, (file, number))


def _row(
    cells: list[str], columns: dict[str, int], kind: str | None, hosts: list[str], gpu: str, place: tuple[Path, int]
) -> Logged:
    """Return the measurement of a row."""
    if not hosts:
        raise log_error(*place, "no lines '# Rank ... on HOST device ...' before it, which tell the number of GPUs")
    if len(cells) < columns["time"] + 3:
        raise log_error(*place, f"{len(cells)} columns where the header has a time and two bandwidths")
    workers = len(hosts)
    first = columns["time"]
    size, time_us, algbw, busbw = (
        number_of(cells[number], name, *place)
        for name, number in (("size", columns["size"]), ("time", first), ("algbw", first + 1), ("busbw", first + 2))
    )
    kind = _kind_by_bandwidth(busbw / algbw, workers) if kind is None else kind
    if not kind:
        raise log_error(*place, "nothing tells a collective that has a closed form: name the file all_reduce_perf.log")
    nbytes = payload_bytes(kind, size, workers)
    setting = {"kind": kind, "workers": workers, "nodes": len(set(hosts)), "nbytes": nbytes, "gpu": gpu}
    return Logged("collective", 1e-6 * time_us, setting, *place)


def _kind_in(name: str) -> str | None:
    """Return the collective of a program's name in a file's name; None if there is none."""
    program = PROGRAM.search(name) or re.search("(all_reduce|all_gather|reduce_scatter|alltoall|broadcast)", name)
    return None if program is None else KINDS[program[1]]


def _kind_by_bandwidth(ratio: float, workers: int) -> str:
    """Return ``all_reduce`` if the bus bandwidth over the algorithm's is that of an all-reduce alone; else nothing."""
    return "all_reduce" if workers > 2 and abs(ratio / (2 * (workers - 1) / workers) - 1) < SAME else ""
