"""What is timed, how often, and from which starts; and what a process computes meanwhile. No time is asserted."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from syncline.errors import SpecError
from syncline.measure.calibration.calibrate import (
    NUMBERS_PER_PAIR,
    block_means_s,
    copy_bytes_per_s,
    product_flops_per_s,
    step_seconds,
    wire_seconds,
)
from syncline.measure.calibration.collective_times import (
    TIMED_COLLECTIVES,
    TIMING_TURNS,
    Gate,
    Timing,
    Work,
    spread,
    time_collectives,
    time_statistics,
)
from syncline.problems import PROBLEMS, Rows
from tests.processes import run_processes

CPU = torch.device("cpu")
RANKS = 3
AHEAD_NS = 3_600_000_000_000
"""By so much the clock of rank 1 is ahead: an hour, as of a machine that was started earlier."""

TINY = Timing((*TIMED_COLLECTIVES, "gather"), (4, 1000), budget_s=0.005, min_repetitions=2, max_repetitions=4)


def unpickled(*_: object, **__: object) -> object:
    raise AssertionError("something was unpickled")


def everything() -> dict:
    dist.distributed_c10d._unpickler = unpickled
    rank = dist.get_rank()
    if rank == 1:
        right = time.monotonic_ns
        time.monotonic_ns = lambda: right() + AHEAD_NS
    gate = Gate(AHEAD_NS if rank == 1 else 0)
    called = []
    rows = time_collectives(TINY, gate, on_point=called.append)
    begun = gate.gather([gate.wait_for_start() for _ in range(3)])
    return {
        "rows": rows,
        "called": called,
        "begun": begun,
        "most": gate.max_over_ranks(rank),
        "too long": time_collectives(Timing(("broadcast",), (4, 8), max_repetition_s=1e-9), gate),
    }


@pytest.fixture(scope="module")
def told() -> list[dict]:
    return run_processes(everything, RANKS)


def test_a_row_for_each_collective_and_size_on_every_rank(told: list[dict]) -> None:
    rows = told[0]["rows"]
    assert all(rank["rows"] == rows for rank in told)
    assert [(row["collective"], row["workers"]) for row in rows] == [(kind, RANKS) for kind, _ in TINY.points]
    for row in rows:
        assert 3 <= row["repetitions"] <= TINY.max_repetitions + TIMING_TURNS - 1
        assert 0 < row["min_s"] <= row["median_s"] and row["spread"] >= 0 and row["skew_s"] >= 0


def test_sizes_are_those_of_the_closed_forms(told: list[dict]) -> None:
    whole = {kind: [row["nbytes"] for row in told[0]["rows"] if row["collective"] == kind] for kind, _ in TINY.points}
    assert whole["all_reduce"] == [4, 1000]
    assert whole["all_gather"] == whole["gather"] == [4, 336]  # what each contributes: 84 numbers, a third of 250
    assert whole["broadcast"] == whole["all_to_all"] == whole["reduce_scatter"] == whole["send"] == [12, 1008]


def test_starts_are_common_although_clocks_differ(told: list[dict]) -> None:
    begun = np.array(told[0]["begun"])
    assert (np.ptp(begun, axis=0) < AHEAD_NS / 10).all() and (np.diff(begun, axis=1) > 0).all()
    assert all(rank["most"] == RANKS - 1 for rank in told)


def test_what_takes_too_long_is_left_out(told: list[dict]) -> None:
    assert all(rank["too long"] == [] for rank in told)
    assert told[0]["called"] == list(range(TIMING_TURNS * len(TINY.points)))


def test_a_repetition_lasts_from_the_last_beginning_to_the_last_end() -> None:
    one = Work(lambda: None, 4, (0, 2))
    times = [[(0, 5), (0, 9), (0, 5)], [(50, 99)] * 3, [(1, 4), (3, 5), (1, 7)]]  # rank 1 takes no part
    found = time_statistics(times, one)
    assert found["repetitions"] == 3
    assert (found["median_s"], found["min_s"], found["skew_s"]) == pytest.approx((6e-9, 4e-9, 1e-9))
    assert found["spread"] == spread([4, 6, 6]) == 0
    apart = [[(0, 50), (0, 9)] * 3, [(50, 99)] * 6, [(9, 40), (1, 7)] * 3]
    assert time_statistics(apart, one)["repetitions"] == 3 and time_statistics(apart, one)["median_s"] == pytest.approx(
        8e-9
    )
    assert spread([1, 2, 3, 4, 1000]) == pytest.approx(1.4826 / 3)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"collectives": ("all_sum",)}, "collectives: got 'all_sum'"),
        ({"sizes": ()}, "sizes"),
        ({"sizes": (0,)}, "sizes"),
        ({"budget_s": 0}, "budget"),
        ({"min_repetitions": 0}, "repetition"),
    ],
)
def test_what_cannot_be_timed_is_refused(fields: dict, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        Timing(**fields)


def test_a_window_has_blocks_of_at_least_one_run() -> None:
    calls = []
    means_s = block_means_s(lambda: calls.append(0), 1e-9, CPU, blocks=5)
    assert means_s.shape == (5,) and (means_s > 0).all() and len(calls) >= 6


def test_steps_products_and_copies() -> None:
    task = PROBLEMS["digits"](batch_size=2, hidden=4).build(Rows((0,), (1,), 2))
    assert (step_seconds(task, 1e-3, CPU) > 0).all()
    assert product_flops_per_s(1e-3, CPU, (8, 16)) > 0 and copy_bytes_per_s(1e-3, CPU, 4096) > 0


def test_every_wire_format_is_timed_at_every_size() -> None:
    told = wire_seconds(1e-6, CPU, (64, 128, 256))
    assert {"bf16", "fp16", "signs", "integers-4", "integers-8", "sparse-fp32"} <= set(told) and "dense" not in told
    for name, rows in told.items():
        share = NUMBERS_PER_PAIR if name.startswith("sparse") else 1
        assert [count * share for count, _, _ in rows] == [64, 128, 256]
        assert all(encode_s > 0 and decode_s > 0 for _, encode_s, decode_s in rows)
