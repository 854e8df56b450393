"""One host's part in a measurement: times collectives of torch.distributed over gloo, from common starts.

    python -m benchmarks.shaped.worker PLAN     (run on every host by benchmarks.shaped.measure)

All hosts run on one kernel, so its monotonic clock is common to them. Each repetition begins at a time that rank 0
says through shared memory, not through the network that is measured.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from syncline.measure.calibration.collective_times import Work, build_work

SLOTS = 64
"""Numbers in the shared file: of rank 0's, then of every rank."""

LEAD_S = 0.003
"""From when all are there to the start."""


class Gate:
    """Where ranks meet: a file of numbers that all map.

    Args:
        file: the file.
        rank: this one's.
        ranks: how many.
    """

    def __init__(self, file: str, rank: int, ranks: int) -> None:
        self.shared = np.memmap(file, dtype=np.float64, mode="r+", shape=(3, SLOTS))
        self.rank, self.ranks, self.turn = rank, ranks, 0

    def meet(self, lead_s: float = 0.0) -> float:
        """Wait for all; the common time after it, ``lead_s`` after the last has come."""
        self.turn += 1
        arrived, told = self.shared[0], self.shared[1]
        arrived[self.rank] = self.turn
        if self.rank == 0:
            while arrived[: self.ranks].min() < self.turn:
                time.sleep(2e-4)
            told[1] = time.monotonic() + lead_s
            told[0] = self.turn
        while told[0] < self.turn:
            time.sleep(2e-4)
        start_s = float(told[1])
        if lead_s:
            time.sleep(max(0.0, start_s - time.monotonic()))
        return start_s

    def max_over_ranks(self, value: float) -> float:
        """The largest of all ranks' values."""
        self.shared[2, self.rank] = value
        self.meet()
        most = float(self.shared[2, : self.ranks].max())
        self.meet()
        return most


def timed(gate: Gate, plan: dict[str, Any], one: Work) -> list[tuple[float, float, float]]:
    """Start, this rank's begin and its end of each repetition; none if one takes longer than the plan allows."""

    def once() -> tuple[float, float, float]:
        start_s = gate.meet(LEAD_S)
        begin_s = time.monotonic()
        one.run()
        return start_s, begin_s, time.monotonic()

    start_s, _, end_s = once()
    expected_s = gate.max_over_ranks(end_s - start_s)
    if expected_s > plan["longest_s"]:
        return []
    if expected_s < 1:
        start_s, _, end_s = once()
        expected_s = min(expected_s, gate.max_over_ranks(end_s - start_s))
    count = int(np.clip(plan["budget_s"] / max(expected_s, 1e-4), plan["fewest"], plan["most"]))
    return [once() for _ in range(count)]


def main(plan: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    device = torch.device("cpu")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gate = Gate(plan["gate"], rank, ranks)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=plan["timeout_s"]))
    for _ in range(2):  # connections open their windows
        build_work("all_to_all", ranks * plan["warm_bytes"], ranks, rank, device).run()
    rows = []
    for kind in plan["collectives"]:
        for nbytes in plan["sizes"]:
            one = build_work(kind, nbytes, ranks, rank, device)
            rows.append({"collective": kind, "nbytes": one.nbytes, "times": timed(gate, plan, one)})
    gate.meet()
    Path(f"{plan['out']}.{rank}").write_text(json.dumps(rows))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
