"""Loops over single numbers, compiled; importing this module imports numba and loads them.

Each returns what the tensor operations beside it return, to the last bit, but in one pass over numbers that stay in the
processor's first cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.acceleration import compiled

_GAMMA, _FIRST, _SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""SplitMix64's, see `syncline.optim.quantisers`."""

_MAGNITUDE, _INFINITY = np.int32(0x7FFFFFFF), np.int32(0x7F800000)
"""The bits of a float32 without its sign, which are ordered as its magnitude is, and infinity's, which none passes that
is a number."""


@compiled
def draw_levels(x: Any, norms: Any, levels: Any, starts: Any, out: Any) -> None:
    """``clamp(floor(x s / norm + u), -s, s) + s`` with the uniform numbers of generators that start there.

    Args:
        x: ``(R, n)`` float32.
        norms: ``(R,)`` float32, none of them zero.
        levels: s, a float32 up to 127.
        starts: ``(R,)`` uint64.
        out: where the integers go, ``(R, n)`` uint8.
    """
    unit = np.float32(1)
    for r in range(len(x)):
        row, norm, start, into = x[r], norms[r], starts[r], out[r]
        for i in range(len(row)):
            z = start + np.uint64(i + 1) * _GAMMA
            z = (z ^ (z >> np.uint64(30))) * _FIRST
            z = (z ^ (z >> np.uint64(27))) * _SECOND
            u = np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
            scaled = row[i] / norm * levels
            below = np.floor(scaled)
            q = below + np.float32(u >= unit - (scaled - below))
            into[i] = np.uint8(np.int32(min(max(q, -levels), levels) + levels))


@compiled
def mean_of_levels(integers: Any, units: Any, levels: Any, out: Any) -> None:
    """Write the mean over M of ``(integers - levels) units``, ``(S, M, n)`` uint8 and ``(S, M)``, in the order of M."""
    for s in range(len(integers)):
        into = out[s]
        for m in range(integers.shape[1]):
            row, unit = integers[s, m], units[s, m]
            for i in range(len(row)):
                part = (np.float32(row[i]) - levels) * unit
                into[i] = part if m == 0 else into[i] + part
        for i in range(len(into)):
            into[i] /= np.float32(integers.shape[1])


@compiled
def _kth_largest(v: Any, n: int, k: int, other: Any) -> Any:
    """Return the k-th largest of the first n numbers; overwrite both arrays, which have room for one more.

    Numbers on one side of a pivot are moved without a branch, as which side it is cannot be foretold.
    """
    while True:
        first, middle, last = v[0], v[n >> 1], v[n - 1]
        pivot = max(min(first, middle), min(max(first, middle), last))
        above = 0
        for j in range(n):
            other[above] = v[j]
            above += v[j] > pivot
        if above >= k:
            n = above
        else:
            below = 0
            for j in range(n):
                other[below] = v[j]
                below += v[j] < pivot
            if n - below >= k:
                return pivot
            k -= n - below
            n = below
        v, other = other, v


@compiled
def find_largest(x: Any, k: int, length: int, out: Any, is_complete: Any) -> None:
    """Find the indices of each row's k largest magnitudes, rising, ``(r, n)`` to ``(r, k)``; note complete rows.

    A row has none where several numbers are as large as the k-th and not all of them are among the k, or where one is
    no number.

    Args:
        x: the bits of float32 as int32.
        k: number of entries to find per row.
        length: numbers of a group, of whose maxima the k-th is a bound; at least k groups.
        out: array for the indices, int64.
        is_complete: array of booleans, true for the rows whose indices were found.
    """
    n = x.shape[1]
    count = n // length
    maxima, values, other = np.empty(n + 1, x.dtype), np.empty(n + 1, x.dtype), np.empty(n + 1, x.dtype)
    places = np.empty(n + 1, np.int64)
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
            places[reached] = i
            reached += (row[i] & _MAGNITUDE) >= bound
        for j in range(reached):
            values[j] = row[places[j]] & _MAGNITUDE
        threshold = _kth_largest(values, reached, k, other)
        num_taken, top = 0, np.int32(0)
        for j in range(reached):
            magnitude = row[places[j]] & _MAGNITUDE
            top = max(top, magnitude)
            if magnitude >= threshold:
                if num_taken < k:
                    out[r, num_taken] = places[j]
                num_taken += 1
        is_complete[r] = num_taken == k and top <= _INFINITY
