"""The most that the device does: matrix products by precision, copies within its memory, and to and from the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.gpu.facts import at_work
from benchmarks.gpu.parts import Row
from benchmarks.gpu.setting import Setting, dtype_name
from benchmarks.gpu.stopwatch import timed

MATMUL_CALLS = 10

UNCACHED_BYTES = 2**28
"""From which on a copy says what the memory carries: each side is several times a GPU's L2."""


def ceilings(setting: Setting) -> Iterator[Row]:
    """One row per precision and size, then per kind of copy and size."""
    yield from _products(setting)
    yield from _copies(setting)


def _products(setting: Setting) -> Iterator[Row]:
    large: tuple[int, ...] = (2048, 4096, 8192, 16384)
    before = torch.get_float32_matmul_precision()
    kinds = [(dtype_name(setting.half), setting.half, "highest", large)]
    kinds += [("tf32", torch.float32, "high", large[:3]), ("fp32", torch.float32, "highest", large[:3])]
    try:
        for precision, dtype, inside, sizes in kinds:
            torch.set_float32_matmul_precision(inside)
            for n in (16, 32) if setting.tiny else sizes:
                # Numbers that are not all alike: a product of zeros draws less power, and so runs at a higher clock.
                a, b = (torch.randn(n, n, device=setting.on, dtype=dtype) for _ in range(2))
                out = torch.empty_like(a)
                took = timed(lambda: torch.mm(a, b, out=out), setting.on, calls=MATMUL_CALLS)  # noqa: B023
                flops_per_s = 2 * n**3 / took["median_s"]
                row: Row = {"what": "matmul", "precision": precision, "size": n, "flops_per_s": flops_per_s, **took}
                yield row | at_work(lambda: torch.mm(a, b, out=out), took["median_s"], setting)  # noqa: B023
    finally:
        torch.set_float32_matmul_precision(before)


def _copies(setting: Setting) -> Iterator[Row]:
    """A copy within the memory reads and writes each byte; one across counts it once.

    Within the memory only such count as no cache holds.
    """
    for nbytes in (2**10,) if setting.tiny else (2**24, 2**28, 2**30):
        here = torch.ones(nbytes, dtype=torch.uint8, device=setting.on)
        there = torch.empty_like(here)
        copies: list[tuple[str, int, Callable[[], object]]] = []
        if nbytes >= UNCACHED_BYTES or setting.tiny:
            copies.append(("device copy", 2 * nbytes, lambda: there.copy_(here)))  # noqa: B023
        for memory, pinned in (("pinned", setting.device == "cuda"), ("pageable", False)):
            host = torch.ones(nbytes, dtype=torch.uint8, pin_memory=pinned)
            copies += [
                (f"{memory} host to device", nbytes, lambda host=host: here.copy_(host, non_blocking=True)),  # type: ignore[misc]  # noqa: B023
                (f"device to {memory} host", nbytes, lambda host=host: host.copy_(here, non_blocking=True)),  # type: ignore[misc]  # noqa: B023
            ]
        for what, moved, work in copies:
            took = timed(work, setting.on, calls=4)
            yield {"what": what, "nbytes": nbytes, "bytes_per_s": moved / took["median_s"], **took}
