"""Compute times of one process while the other processes compute too: products, copies, steps, wire formats.

A measurement repeats the work for a time window that is cut into blocks, and takes the mean of each block: if processes
share a core, most repetitions of a short piece of work run undisturbed and a few repetitions wait for the other
processes. The result is the median over the blocks, so that a disturbance of a few blocks does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from syncline.comm import WIRE_FORMATS, PackedIntegers, PackedSigns, SparsePairs
from syncline.costmodel.network.paths import Floats
from syncline.problems import Task

BLOCKS = 8

PRODUCTS = {"cpu": (256, 512, 1024), "cuda": (1024, 2048, 4096, 8192)}
"""Sizes n of square fp32 matrix products; the fastest product counts as the peak."""

COPIED_BYTES = 1 << 26
"""Bytes of a copied tensor, more than the caches hold."""

WIRE_ELEMENTS = (1 << 12, 1 << 15, 1 << 18, 1 << 20)

CHUNK, KEPT = 4096, 8
"""Number of entries in the chunk that an index of a sparse pair points into; and numbers for each sparse pair."""


def block_means_s(run: Callable[[], object], window_s: float, device: torch.device, blocks: int = BLOCKS) -> Floats:
    """Return the mean seconds of one ``run`` in each block of a time window; each block has at least one run.

    Args:
        run: the function to time; it runs once before the first block.
        window_s: seconds of all blocks together.
        device: the device to synchronize with at the end of each block.
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
    """Return the seconds of the gradients of a training step in each block, see `block_means_s`."""
    step = 0

    def run() -> None:
        nonlocal step
        task.step_gradients(step)
        step += 1

    for _ in range(2):
        run()
    return block_means_s(run, window_s, device)


def product_flops_per_s(window_s: float, device: torch.device, sizes: tuple[int, ...] = ()) -> float:
    """Return the FLOP/s of fp32 matrix products, ``2 n^3`` FLOPs each, at the fastest of the sizes."""
    sizes = sizes or PRODUCTS[device.type]
    best = 0.0
    for size in sizes:
        a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
        run = partial(torch.mm, a, b, out=torch.empty_like(a))
        best = max(best, 2 * size**3 / float(np.median(block_means_s(run, window_s / len(sizes), device))))
    return best


def copy_bytes_per_s(window_s: float, device: torch.device, nbytes: int = COPIED_BYTES) -> float:
    """Return the bytes read and written per second by a copy within memory: twice its size over its time."""
    source = torch.zeros(nbytes // 4, device=device).fill_(1.0)
    target = torch.empty_like(source).fill_(0.0)
    return 2 * nbytes / float(np.median(block_means_s(lambda: target.copy_(source), window_s, device)))


def wire_seconds(
    window_s: float, device: torch.device, elements: tuple[int, ...] = WIRE_ELEMENTS
) -> dict[str, list[tuple[int, float, float]]]:
    """Return the seconds to encode and to decode tensors of several sizes, by wire format.

    Args:
        window_s: seconds of the time window for each format, size and direction.
        elements: numbers in each tensor; a sparse format encodes an eighth of them, as pairs.

    Returns:
        ``(n, encode_s, decode_s)`` for each size, where n counts numbers, or pairs for sparse formats.
    """
    seconds: dict[str, list[tuple[int, float, float]]] = {}
    for count in elements:
        for name, (encode, decode) in _formats(count, device).items():
            encode_s, decode_s = (float(np.median(block_means_s(run, window_s, device, 3))) for run in (encode, decode))
            encoded = count // KEPT if name.startswith("sparse") else count
            seconds.setdefault(name, []).append((encoded, encode_s, decode_s))
    return seconds


def _formats(count: int, device: torch.device) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return a function that encodes a tensor of ``count`` numbers and one that decodes it, for each wire format."""
    x = torch.randn(count, device=device)
    functions: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for name, wire in WIRE_FORMATS.items():
        if wire.exact_dtype:
            continue  # this format sends the tensor as it is
        functions[name] = partial(wire.encode, x), partial(wire.decode, wire.encode(x), x.dtype)
    signs = PackedSigns()
    votes = signs.encode(x > 0)
    functions["signs"] = (lambda: signs.encode(x > 0)), partial(signs.decode, votes, count, x.dtype)
    for bits in (4, 8, 5):  # two and one numbers in a byte; six in a word
        packed = PackedIntegers(bits)
        values = (x.abs() * 3).clamp(0, 2**bits - 1).to(torch.uint8)
        decode = partial(packed.decode, packed.encode(values), count, x.dtype)
        functions[f"integers-{bits}"] = partial(packed.encode, values), decode
    entries = x[: count // KEPT]
    index = torch.arange(len(entries), device=device) % CHUNK
    for name, pairs in (("sparse-fp32", SparsePairs(64, "fp32")), ("sparse-bf16", SparsePairs(0, "bf16"))):
        encode = partial(pairs.encode, index, entries, CHUNK)
        functions[name] = encode, partial(pairs.decode, encode(), len(entries), CHUNK, x.dtype)
    return functions
