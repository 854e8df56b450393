"""Times of gloo's collectives between the hosts of a shaped network, beside what the cost model says."""

from __future__ import annotations

import csv
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shaped.network import PAYLOAD, Network, possible_priority, run_on_hosts
from syncline.costmodel import Link
from syncline.costmodel.collectives.gloo import gloo_message_s, gloo_s
from syncline.costmodel.network.software_costs import FREE, GlooCosts

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
SIZES = (4, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)

ROOT = Path(__file__).parents[2]


def link(bytes_per_s: float, delay_s: float) -> Link:
    """What the cost model sees of the hosts' lines: the rate less what headers take."""
    return Link(delay_s, bytes_per_s, "shaped", efficiency=PAYLOAD)


def predicted_s(kind: str, workers: int, nbytes: float, on: Link, costs: GlooCosts = FREE) -> float:
    """By the closed forms of gloo's algorithms."""
    if kind == "send":
        return float(gloo_message_s(nbytes, on, costs))
    return float(gloo_s(kind, workers, nbytes, on, costs))


def measure(
    hosts: int,
    bytes_per_s: float,
    delay_s: float,
    collectives: Sequence[str] = COLLECTIVES,
    sizes: Sequence[int] = SIZES,
    *,
    budget_s: float = 1.0,
    fewest: int = 3,
    most: int = 15,
    longest_s: float = 6.0,
    timeout_s: float = 900.0,
    priority: str = "rr",
    costs: GlooCosts = FREE,
) -> list[dict[str, Any]]:
    """Time collectives on a network that is set up for it and taken away.

    Args:
        hosts: how many.
        bytes_per_s: of each host's line.
        delay_s: one way.
        collectives: names, ``send`` for a message from rank 0 to 1.
        sizes: bytes in the whole, of a gather the result; those that would take over ``longest_s`` are left out.
        budget_s: per collective and size, as far as ``fewest`` and ``most`` repetitions allow.
        fewest: repetitions.
        most: repetitions.
        longest_s: of one repetition.
        timeout_s: for all.
        priority: of the processes, one of ``PRIORITIES``.
        costs: of the software, for the prediction beside.

    Returns:
        A row per collective and size: times in seconds from the common start to the end of the last rank.

    Raises:
        Unavailable: what this machine lacks.
        RuntimeError: a process that failed.
    """
    on = link(bytes_per_s, delay_s)
    kept = [size for size in sizes if predicted_s("broadcast", hosts, size, on) <= 2 * longest_s]
    with Network(hosts, bytes_per_s, delay_s) as network, tempfile.TemporaryDirectory() as folder:
        gate = Path(folder) / "gate"
        np.zeros((3, 64)).tofile(gate)
        plan = {
            "gate": str(gate), "out": str(Path(folder) / "out"), "collectives": list(collectives), "sizes": kept,
            "budget_s": budget_s, "fewest": fewest, "most": most, "longest_s": longest_s, "timeout_s": timeout_s,
            "warm_bytes": int(min(2 << 20, max(1 << 16, 0.2 * bytes_per_s / hosts))),
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.shaped.worker", json.dumps(plan)]
        codes = run_on_hosts(network, command, priority, timeout_s, {"PYTHONPATH": str(ROOT)}, cwd=ROOT)
        if any(codes):
            raise RuntimeError(f"processes ended with {codes}")
        ranks = [json.loads(Path(f"{folder}/out.{rank}").read_text()) for rank in range(hosts)]
        wire = network.wire()
    about = {"hosts": hosts, "bytes_per_s": bytes_per_s, "delay_s": delay_s, "priority": possible_priority(priority)}
    rows = []
    for of_ranks in zip(*ranks, strict=True):
        times = np.array([one["times"] for one in of_ranks])  # (ranks, repetitions, 3)
        if not times.size:
            continue
        kind, nbytes = of_ranks[0]["collective"], of_ranks[0]["nbytes"]
        taken_s = (times[:, :, 2].max(axis=0) - times[0, :, 0]).tolist()
        model_s = predicted_s(kind, hosts, nbytes, on, costs)
        rows.append({
            **about,
            "collective": kind,
            "nbytes": nbytes,
            "repetitions": len(taken_s),
            "median_s": statistics.median(taken_s),
            "min_s": min(taken_s),
            "max_s": max(taken_s),
            "spread": statistics.pstdev(taken_s) / statistics.fmean(taken_s),
            "skew_s": float(np.median(np.ptp(times[:, :, 1], axis=0))),
            "model_s": model_s,
            "error": model_s / statistics.median(taken_s) - 1,
            "late_mean_s": wire.late_mean_s,
            "late_most_s": wire.late_most_s,
            "lost": wire.lost,
        })  # fmt: skip
    return rows


def versions() -> dict[str, Any]:
    """When, and with what."""
    import torch

    import syncline

    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "syncline": syncline.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
    }


def write(rows: Sequence[dict[str, Any]], file: Path, command: str) -> None:
    """Rows with the command and the versions: as .json once, as .csv in every row."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".json":
        file.write_text(json.dumps({"command": command, **versions(), "rows": list(rows)}, indent=1) + "\n")
        return
    whole = [{**row, "command": command, **versions()} for row in rows]
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(whole[0]) if whole else [])
        writer.writeheader()
        writer.writerows(whole)
