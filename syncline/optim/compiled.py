"""Loops over numbers that numba compiles; importing this module imports numba and loads the compiled loops.

Each loop returns exactly the bits of the tensor operations that it replaces, but reads its numbers only once.
"""

from __future__ import annotations

from functools import partial
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
            z = start + np.uint64(i + 1) * _GAMMA  # SplitMix64, see `syncline.optim.quantisers`
            z = (z ^ (z >> np.uint64(30))) * _FIRST
            z = (z ^ (z >> np.uint64(27))) * _SECOND
            u = np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
            level = row[i] / norm * levels
            lower_level = np.floor(level)
            q = lower_level + np.float32(
                u >= unit - (level - lower_level)
            )  # not floor(level + u): that sum may be rounded up
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
def _kth_largest(v: Any, n: int, k: int, scratch: Any) -> Any:
    """Return the k-th largest of the first n numbers of ``v``, by quickselect.

    ``v`` and the working memory ``scratch`` have room for n + 1 numbers, and are overwritten. The loop writes each
    number, and the next one overwrites it if it is on the other side of the pivot: a branch would be mispredicted.
    """
    while True:
        first, middle, last = v[0], v[n // 2], v[n - 1]
        pivot = max(min(first, middle), min(max(first, middle), last))
        num_above = 0
        for j in range(n):
            scratch[num_above] = v[j]
            num_above += v[j] > pivot
        if num_above >= k:
            n = num_above
        else:
            num_below = 0
            for j in range(n):
                scratch[num_below] = v[j]
                num_below += v[j] < pivot
            if n - num_below >= k:
                return pivot
            k -= n - num_below
            n = num_below
        v, scratch = scratch, v


@compiled
def find_largest(x: Any, k: int, length: int, out: Any, is_complete: Any) -> None:
    """Write the rising indices of the k entries of largest magnitude of each row to ``out``.

    Entry i of a row is in group ``i % (n // length)``. The k-th largest of the groups' maxima is a lower bound of the
    k-th largest entry, so that only entries that reach it are candidates. A row is incomplete if more than k entries
    are as large as the k-th, or if one is NaN.

    Args:
        x: the bits of r rows of float32 numbers, ``(r, n)`` int32.
        k: number of entries to find per row.
        length: number of entries of a group; there are at least k groups.
        out: array for the indices, ``(r, k)`` int64.
        is_complete: array ``(r,)`` of booleans, which become true for the rows whose indices were found.
    """
    n = x.shape[1]
    num_groups = n // length
    maxima, values, scratch = np.empty(n + 1, x.dtype), np.empty(n + 1, x.dtype), np.empty(n + 1, x.dtype)
    candidates, reaching_groups = np.empty(n + 1, np.int64), np.empty(num_groups + 1, np.int64)
    for r in range(len(x)):
        row = x[r]
        for j in range(num_groups):
            maxima[j] = row[j] & _MAGNITUDE  # the bits without the sign are ordered as magnitudes
        for i in range(1, length):
            part = row[i * num_groups : (i + 1) * num_groups]
            for j in range(num_groups):
                maxima[j] = max(maxima[j], part[j] & _MAGNITUDE)
        values[:num_groups] = maxima[:num_groups]
        bound = _kth_largest(values, num_groups, k, scratch)
        # Find the groups that reach the bound, then their entries that reach it. Without a branch, each index is
        # written, and the next one overwrites it if it does not reach the bound.
        num_reaching = 0
        for j in range(num_groups):
            reaching_groups[num_reaching] = j
            num_reaching += maxima[j] >= bound
        num_candidates = 0
        for i in range(length):
            for j in range(num_reaching):
                candidates[num_candidates] = i * num_groups + reaching_groups[j]
                num_candidates += (row[i * num_groups + reaching_groups[j]] & _MAGNITUDE) >= bound
        for i in range(length * num_groups, n):
            candidates[num_candidates] = i
            num_candidates += (row[i] & _MAGNITUDE) >= bound
        for j in range(num_candidates):
            values[j] = row[candidates[j]] & _MAGNITUDE
        threshold = _kth_largest(values, num_candidates, k, scratch)
        num_taken, largest = 0, np.int32(0)
        for j in range(num_candidates):
            magnitude = row[candidates[j]] & _MAGNITUDE
            largest = max(largest, magnitude)
            if magnitude >= threshold:
                if num_taken < k:
                    out[r, num_taken] = candidates[j]
                num_taken += 1
        is_complete[r] = num_taken == k and largest <= _INFINITY  # the bits of NaN are larger


@compiled
def mean_of_pairs(index: Any, value: Any, size: int, over_senders: bool, out_index: Any, out_value: Any) -> None:
    """Write the means of the sparse vectors of M workers, as rising indices and values.

    Values are added in the order of the workers.

    Args:
        index: indices of the k entries that each of M workers sent of each of r vectors, ``(r, M, k)`` int64.
        value: values of these entries, ``(r, M, k)`` float32.
        size: length of a vector.
        over_senders: whether an entry is averaged over the workers that sent it; else over all M workers.
        out_index: array for the indices, ``(r, min(M k, size))`` int64. The last index fills up the array.
        out_value: array for the values, of the same shape, with zeros where the array is filled up.
    """
    total, senders, positions = np.zeros(size, np.float32), np.zeros(size, np.int64), np.empty(size + 1, np.int64)
    workers = index.shape[1]
    for r in range(len(index)):
        for m in range(workers):
            for e in range(index.shape[2]):
                total[index[r, m, e]] += value[r, m, e]
                senders[index[r, m, e]] += 1
        count = 0
        for i in range(size):
            positions[count] = i  # the next i overwrites it if no worker sent entry i
            count += senders[i] > 0
        for e in range(count):
            i = positions[e]
            out_index[r, e] = i
            out_value[r, e] = total[i] / np.float32(senders[i] if over_senders else workers)
            total[i], senders[i] = 0, 0
        out_index[r, count:] = positions[count - 1]
        out_value[r, count:] = 0


@partial(compiled, fused_multiply_add=True)
def transform_sparse_blocks(index: Any, value: Any, left_matrix: Any, right_matrix: Any, out: Any) -> None:
    """Write ``L^T S R`` to ``out`` for r blocks S with k nonzero entries each.

    The loop adds the terms of each sum in rising order, as most products of dense matrices do. It stores only the
    nonzero columns of ``L^T S``, and uses four of them at a time.

    Args:
        index: rising indices of the entries of each flattened block, ``(r, k)`` int64.
        value: values of these entries, ``(r, k)`` float32.
        left_matrix: L, ``(a, a)`` float32.
        right_matrix: R, ``(b, b)`` float32.
        out: array for the results, ``(r, a, b)`` float32.
    """
    a, b = len(left_matrix), len(right_matrix)
    columns = np.empty((b + 3, a), np.float32)  # up to three columns of zeros fill up the last four
    column_numbers = np.zeros(b + 3, np.int64)
    position_of_column = np.empty(b, np.int64)
    for r in range(len(index)):
        has_entry = np.zeros(b, np.bool_)
        for e in range(index.shape[1]):
            has_entry[index[r, e] % b] = True
        num_columns = 0
        for j in range(b):
            position_of_column[j] = num_columns
            column_numbers[num_columns] = j  # the next j overwrites it if column j has no entry
            num_columns += has_entry[j]
        columns[: num_columns + 3] = 0
        column_numbers[num_columns : num_columns + 3] = 0  # columns of zeros change no sum
        for e in range(index.shape[1]):
            i, j = index[r, e] // b, index[r, e] % b
            column, entry, row_of_left = columns[position_of_column[j]], value[r, e], left_matrix[i]
            for x in range(a):
                column[x] += entry * row_of_left[x]
        block = out[r]
        block[:] = 0
        for c in range(0, num_columns, 4):
            column_0, column_1, column_2, column_3 = columns[c], columns[c + 1], columns[c + 2], columns[c + 3]
            j0, j1, j2, j3 = column_numbers[c : c + 4]
            right_0, right_1, right_2, right_3 = right_matrix[j0], right_matrix[j1], right_matrix[j2], right_matrix[j3]
            for x in range(a):
                s0, s1, s2, s3 = column_0[x], column_1[x], column_2[x], column_3[x]
                row = block[x]
                for y in range(b):
                    row[y] = row[y] + s0 * right_0[y] + s1 * right_1[y] + s2 * right_2[y] + s3 * right_3[y]
