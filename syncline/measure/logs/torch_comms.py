"""Output of the communication benchmarks of DeepSpeed (``ds_bench``, with ``--dist torch`` those of PyTorch).

    ---- Performance of all_reduce on 16 devices ---------------------------------------------------------
    Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)
    ----------------------------------------------------------------------------------------------------
    1.0 MB               262144x4                  112.123 us           149.634              140.282

The description has the elements and their bytes, which are exact where the size is rounded. Sizes and durations have no
unit with ``--raw``: bytes and microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from syncline.measure.logs.logged import Logged, log_error, number_of

TITLE = re.compile(r"Performance of (\w+) on (\d+) devices", re.IGNORECASE)
KINDS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "all_gather": "all_gather", "allgather": "all_gather",
    "all_to_all": "all_to_all", "alltoall": "all_to_all", "broadcast": "broadcast", "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
}  # fmt: skip
"""Collectives by the names in titles; others, such as pt2pt, have no closed form of a collective."""

ROW = re.compile(r"\s*[\d.]+\s*[KMGT]?i?B?\s+(\d+)x(\d+)\s+([\d.]+)\s*(us|ms|s)?\s")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def is_torch_comms(text: str) -> bool:
    """Return whether a text is the output of these benchmarks."""
    return any(TITLE.search(line) for line in text.splitlines())


def torch_comms_log(text: str, file: Path) -> Iterator[Logged]:
    """Yield the timed collectives of a log; messages between pairs are left out.

    Raises:
        SynclineError: a row cannot be read.
    """
    kind, workers = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if title := TITLE.search(line):
            kind, workers = KINDS.get(title[1].lower(), ""), int(title[2])
            if workers < 2:
                raise log_error(file, number, f"{workers} device, where a collective has two at least")
        elif kind and re.match(r"\s*[\d.]+\s*[KMGT]?i?B?\s+\S*x", line):
            row = ROW.match(line)
            if row is None:
                raise log_error(file, number, "expected size, ELEMENTSxBYTES, duration and two rates")
            seconds = UNITS[row[4] or "us"] * number_of(row[3], "duration", file, number)
            nbytes = number_of(row[1], "elements", file, number) * int(row[2])
            # The input of a gather is each worker's part, so that its bytes are those of the closed form.
            setting = {"kind": kind, "workers": workers, "nodes": None, "nbytes": nbytes, "gpu": ""}
            yield Logged("collective", seconds, setting, file, number)
