"""Loops over numbers that numba compiles; importing this module imports numba and loads the compiled loops.

Each loop returns exactly the bits of the tensor operations that it replaces, but reads its numbers only once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.acceleration import compiled

_GAMMA, _FIRST, _SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""Constants of SplitMix64, see `syncline.optim.quantisers`."""

_MAGNITUDE, _INFINITY = np.int32(0x7FFFFFFF), np.int32(0x7F800000)
"""A mask of the bits of a float32 without its sign, which are ordered as magnitudes, and the bits of infinity. Larger
bits are NaN."""


@compiled
def draw_levels(x: Any, norms: Any, levels: Any, starts: Any, out: Any) -> None:
    """Write QSGD's integers ``clamp(floor(x s / norm + u), -s, s) + s`` to ``out``, with random numbers u.

    Args:
        x: tensors ``(R, n)``, float32.
        norms: norms of the tensors, or 1 for a tensor of zeros, ``(R,)`` float32.
        levels: s, a float32 up to 127.
        starts: initial states of the random generators, ``(R,)`` uint64.
        out: array for the integers, ``(R, n)`` uint8.
    """
    unit = np.float32(1)
    for r in range(len(x)):
        row, norm, start, out_row = x[r], norms[r], starts[r], out[r]
        for i in range(len(row)):
            z = start + np.uint64(i + 1) * _GAMMA
            z = (z ^ (z >> np.uint64(30))) * _FIRST
            z = (z ^ (z >> np.uint64(27))) * _SECOND
            u = np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
            level = row[i] / norm * levels
            lower_level = np.floor(level)
            q = lower_level + np.float32(u >= unit - (level - lower_level))
            out_row[i] = np.uint8(np.int32(min(max(q, -levels), levels) + levels))


@compiled
def mean_of_levels(integers: Any, units: Any, levels: Any, out: Any) -> None:
    """Write the mean over M workers of ``(integers - levels) units`` to ``out (S, n)``, added in the order of workers.

    ``integers`` are ``(S, M, n)`` uint8, and ``units`` are ``(S, M)`` float32.
    """
    for s in range(len(integers)):
        out_row = out[s]
        for m in range(integers.shape[1]):
            row, unit = integers[s, m], units[s, m]
            for i in range(len(row)):
                part = (np.float32(row[i]) - levels) * unit
                out_row[i] = part if m == 0 else out_row[i] + part
        for i in range(len(out_row)):
            out_row[i] /= np.float32(integers.shape[1])


@compiled
def _kth_largest(v: Any, n: int, k: int, other: Any) -> Any:
    """Return the k-th largest of the first n numbers of ``v``, by quickselect.

    Both arrays are overwritten and have room for n + 1 numbers. Numbers on one side of the pivot are copied without a
    branch, which the processor could not predict.
    """
    while True:
        first, middle, last = v[0], v[n >> 1], v[n - 1]
        pivot = max(min(first, middle), min(max(first, middle), last))
        num_above = 0
        for j in range(n):
            other[num_above] = v[j]
            num_above += v[j] > pivot
        if num_above >= k:
            n = num_above
        else:
            num_below = 0
            for j in range(n):
                other[num_below] = v[j]
                num_below += v[j] < pivot
            if n - num_below >= k:
                return pivot
            k -= n - num_below
            n = num_below
        v, other = other, v


@compiled
def find_largest(x: Any, k: int, length: int, out: Any, is_complete: Any) -> None:
    """Write the rising indices of the k entries of largest magnitude of each row to ``out``.

    A row is incomplete if more than k entries are as large as the k-th, or if one is NaN. The method is that of
    ``_by_bound`` in `syncline.optim.largest`.

    Args:
        x: the bits of float32 numbers, ``(r, n)`` int32.
        k: number of entries to find per row.
        length: number of entries of a group; there are at least k groups.
        out: array for the indices, ``(r, k)`` int64.
        is_complete: array ``(r,)`` of booleans, which become true for the rows whose indices were found.
    """
    n = x.shape[1]
    count = n // length
    maxima, values, other = np.empty(n + 1, x.dtype), np.empty(n + 1, x.dtype), np.empty(n + 1, x.dtype)
    positions = np.empty(n + 1, np.int64)
    for r in range(len(x)):
        row = x[r]
        for j in range(count):
            maxima[j] = row[j] & _MAGNITUDE
        for i in range(1, length):
            part = row[i * count : (i + 1) * count]
            for j in range(count):
                maxima[j] = max(maxima[j], part[j] & _MAGNITUDE)
        bound = _kth_largest(maxima, count, k, other)
        reached = 0
        for i in range(n):
            positions[reached] = i
            reached += (row[i] & _MAGNITUDE) >= bound
        for j in range(reached):
            values[j] = row[positions[j]] & _MAGNITUDE
        threshold = _kth_largest(values, reached, k, other)
        num_taken, top = 0, np.int32(0)
        for j in range(reached):
            magnitude = row[positions[j]] & _MAGNITUDE
            top = max(top, magnitude)
            if magnitude >= threshold:
                if num_taken < k:
                    out[r, num_taken] = positions[j]
                num_taken += 1
        is_complete[r] = num_taken == k and top <= _INFINITY
