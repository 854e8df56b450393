"""Seconds of work on a device: by its own clock for kernels, by the host's for what a training waits for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Work = Callable[[], object]

WARM_UP = 2
"""Rounds that load kernels and fill caches, and count for nothing."""


def wait(device: torch.device) -> None:
    """Until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def host_s(work: Work, device: torch.device) -> float:
    """Of the host's clock, from an idle device to an idle device: launches count."""
    wait(device)
    start_s = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start_s


FLUSHED_BYTES = 2**28
"""What is written to empty a device's cache: several times what any GPU of today has (H200: 50 MB of L2)."""


def cold_s(work: Work, device: torch.device, calls: int) -> float:
    """Of the device's clock, per call, each behind a write that leaves nothing of the call before in the cache.

    While the device writes, the host launches: launches hide here, too.
    """
    if device.type != "cuda":
        return queued_s(work, device, calls)
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    wait(device)
    for start, end in marks:
        flushed.zero_()
        start.record()
        work()
        end.record()
    wait(device)
    return sum(start.elapsed_time(end) for start, end in marks) / 1e3 / calls  # it tells milliseconds


def queued_s(work: Work, device: torch.device, calls: int) -> float:
    """Of the device's clock, per call, of calls queued one behind the other: launches hide behind longer kernels."""
    if device.type != "cuda":
        return host_s(lambda: [work() for _ in range(calls)], device) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    wait(device)
    start.record()
    for _ in range(calls):
        work()
    end.record()
    wait(device)
    return start.elapsed_time(end) / 1e3 / calls  # it tells milliseconds


def repeated(once_s: Callable[[], float], repeats: int, longest_s: float, warm_up: int = WARM_UP) -> list[float]:
    """What ``repeats`` rounds took after the warm-up, or as many as begin within ``longest_s``; at least one."""
    for _ in range(warm_up):
        once_s()
    start_s = time.monotonic()
    out = [once_s()]
    while len(out) < repeats and time.monotonic() - start_s < longest_s:
        out.append(once_s())
    return out


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """Median, least, and the range of the middle half over the median."""
    median_s = statistics.median(seconds)
    quarters = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [median_s] * 3
    return {
        "median_s": median_s,
        "min_s": min(seconds),
        "spread": (quarters[2] - quarters[0]) / median_s if median_s else 0.0,
        "repeats": len(seconds),
    }


def timed(
    work: Work, device: torch.device, *, calls: int | None = None, repeats: int = 10, longest_s: float = 2.0
) -> dict[str, Any]:
    """A summary of ``cold_s`` of so many calls, or of ``host_s`` where no number is given."""
    if calls is None:
        return summary(repeated(lambda: host_s(work, device), repeats, longest_s))
    return summary(repeated(lambda: cold_s(work, device, calls), repeats, longest_s))
