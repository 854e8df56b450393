"""What it costs to look at a number that the device has just computed, as a trigger does in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.gpu.parts import Row
from benchmarks.gpu.setting import Setting
from benchmarks.gpu.stopwatch import timed

LAYERS = 72
"""Matrices of GPT-160M: six in each of its twelve layers."""


def readback(setting: Setting) -> Iterator[Row]:
    """Seconds of the host from an idle device: a kernel and the wait for it, then with its result on the host."""
    one = torch.ones(1, device=setting.on)
    many = torch.ones(LAYERS, device=setting.on)
    apart = [torch.ones((), device=setting.on) for _ in range(LAYERS)]
    ways: list[tuple[str, int, Callable[[], object]]] = [
        ("a kernel, not read", 0, lambda: one.mul_(1)),
        ("item", 1, lambda: one.mul_(1).item()),
        ("tolist", LAYERS, lambda: many.mul_(1).tolist()),
        ("stack, tolist", LAYERS, lambda: torch.stack([x.mul_(1) for x in apart]).tolist()),
        ("stack, not read", 0, lambda: torch.stack([x.mul_(1) for x in apart])),
        ("item one by one", LAYERS, lambda: [x.mul_(1).item() for x in apart]),
    ]
    for how, numbers, work in ways:
        yield {"how": how, "numbers": numbers, **timed(work, setting.on, repeats=5 if setting.tiny else 200)}
