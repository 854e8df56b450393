"""What one process computes in which time while all the others compute: products, copies, steps, wire formats.

Work is repeated for a while that is cut into blocks, and a block's mean is what counts: where processes share a core,
a short piece of work mostly finds the core its own, and pays for the others in few repetitions. Over the blocks the
median is taken, so that what disturbed some of them does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from syncline.comm import WIRE_FORMATS, PackedIntegers, PackedSigns, SparsePairs
from syncline.costmodel.network.paths import Floats
from syncline.problems import Task

BLOCKS = 8

PRODUCTS = {"cpu": (256, 512, 1024), "cuda": (1024, 2048, 4096, 8192)}
"""Sizes of square fp32 products, the fastest of which counts as the peak."""

COPIED_BYTES = 1 << 26
"""Beyond caches."""

WIRE_ELEMENTS = (1 << 12, 1 << 15, 1 << 18, 1 << 20)

CHUNK, KEPT = 4096, 8
"""Entries that an index of a sparse pair points into; one in so many numbers becomes a pair."""


def block_means_s(run: Callable[[], object], window_s: float, device: torch.device, blocks: int = BLOCKS) -> Floats:
    """Seconds of one ``run``, the mean of each block of a window; at least one run in each.

    Args:
        run: what is timed; it is run once before.
        window_s: for how long in all.
        device: waited for at the end of each block.
        blocks: so many.
    """

    def settled_s() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    run()
    means = np.empty(blocks)
    for block in range(blocks):
        begin_s, count = settled_s(), 0
        until_s = begin_s + window_s / blocks
        while not count or time.perf_counter() < until_s:
            run()
            count += 1
        means[block] = (settled_s() - begin_s) / count
    return means


def step_seconds(task: Task, window_s: float, device: torch.device) -> Floats:
    """Seconds of the gradients of a training step, see `block_means_s`."""
    step = 0

    def run() -> None:
        nonlocal step
        task.step_gradients(step)
        step += 1

    for _ in range(2):
        run()
    return block_means_s(run, window_s, device)


def product_flops_per_s(window_s: float, device: torch.device, sizes: tuple[int, ...] = ()) -> float:
    """FLOP/s of fp32 matrix products, ``2 n^3`` each, of the size at which they are the fastest."""
    sizes = sizes or PRODUCTS[device.type]
    best = 0.0
    for size in sizes:
        a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
        out = torch.empty_like(a)

        def run(a: Tensor = a, b: Tensor = b, out: Tensor = out) -> None:
            torch.mm(a, b, out=out)

        best = max(best, 2 * size**3 / float(np.median(block_means_s(run, window_s / len(sizes), device))))
    return best


def copy_bytes_per_s(window_s: float, device: torch.device, nbytes: int = COPIED_BYTES) -> float:
    """Bytes read and written per second by a copy within memory: twice its size over its time."""
    source = torch.zeros(nbytes // 4, device=device).fill_(1.0)
    target = torch.empty_like(source).fill_(0.0)
    return 2 * nbytes / float(np.median(block_means_s(lambda: target.copy_(source), window_s, device)))


def wire_seconds(
    window_s: float, device: torch.device, elements: tuple[int, ...] = WIRE_ELEMENTS
) -> dict[str, list[tuple[int, float, float]]]:
    """Seconds of encoding and of decoding so many numbers, by wire format.

    Args:
        window_s: of each format, size and direction.
        device: where.
        elements: numbers in a tensor; of sparse formats an eighth of them, as pairs.

    Returns:
        ``(n, encode_s, decode_s)`` of each size, n numbers or pairs.
    """
    told: dict[str, list[tuple[int, float, float]]] = {}
    for count in elements:
        for name, (encode, decode) in _formats(count, device).items():
            encode_s, decode_s = (
                float(np.median(block_means_s(run, window_s, device, 3))) for run in (encode, decode)
            )  # fmt: skip
            of = count // KEPT if name.startswith("sparse") else count
            told.setdefault(name, []).append((of, encode_s, decode_s))
    return told


def _formats(count: int, device: torch.device) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """For each wire format what encodes so many numbers, and what decodes them."""
    x = torch.randn(count, device=device)
    made: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for name, wire in WIRE_FORMATS.items():
        if wire.exact_dtype:
            continue  # travels as it is
        sent = wire.encode(x)
        made[name] = (lambda wire=wire: wire.encode(x)), (lambda wire=wire, sent=sent: wire.decode(sent, x.dtype))  # type: ignore[misc]
    signs = PackedSigns()
    votes = signs.encode(x > 0)
    made["signs"] = (lambda: signs.encode(x > 0)), (lambda: signs.decode(votes, count, x.dtype))
    for bits in (4, 8, 5):  # two and one to a byte; six to a word
        packed = PackedIntegers(bits)
        values = (x.abs() * 3).clamp(0, 2**bits - 1).to(torch.uint8)
        words = packed.encode(values)
        made[f"integers-{bits}"] = (
            (lambda packed=packed, values=values: packed.encode(values)),  # type: ignore[misc]
            (lambda packed=packed, words=words: packed.decode(words, count, x.dtype)),  # type: ignore[misc]
        )
    kept = x[: count // KEPT]
    index = torch.arange(len(kept), device=device) % CHUNK
    for name, pairs in (("sparse-fp32", SparsePairs(64, "fp32")), ("sparse-bf16", SparsePairs(0, "bf16"))):
        held = pairs.encode(index, kept, CHUNK)
        made[name] = (
            (lambda pairs=pairs: pairs.encode(index, kept, CHUNK)),  # type: ignore[misc]
            (lambda pairs=pairs, held=held: pairs.decode(held, len(kept), CHUNK, x.dtype)),  # type: ignore[misc]
        )
    return made
