"""The rounds of rings, compiled; importing this module imports numba and loads the kernels.

A message is one step of an inner loop over neighbours in memory. Each block of workers makes several rounds at once
while its times are in the first-level cache, and recomputes at its borders the times that belong to the next block (its
halo). The sums and maxima of a message, and their order, are as in `syncline.sim.lockstep.rings`, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.acceleration import compiled

BLOCK = 1024
"""Number of workers' times in a block: 32 KB with the costs of their messages."""

BLOCK_ROUNDS = 64
"""Number of rounds that a block makes at once."""


@compiled
def _eager_round(own_times: Any, previous_times: Any, own_cost: Any, message_cost: Any, result: Any) -> None:
    """Compute a ring's round by the eager rule: ``result_i = max(own_i + own_cost_i, previous_i + message_cost_i)``.

    ``own_times`` and ``previous_times`` are the times of each worker and of the worker before it in the ring.
    """
    for i in range(len(result)):
        sent, received = own_times[i] + own_cost[i], previous_times[i] + message_cost[i]
        result[i] = sent if sent > received else received


@compiled
def _rendezvous_round(before: Any, times: Any, after: Any, cost_before: Any, cost: Any, result: Any) -> None:
    """Compute one round of a ring by the rendezvous rule: the later end of each worker's two messages.

    ``times`` has a time for each worker; ``before`` and ``after`` have those of its predecessor and successor in the
    ring. ``cost`` has the seconds of a worker's message, ``cost_before`` those of its predecessor's.
    """
    for i in range(len(result)):
        sent = (after[i] if after[i] > times[i] else times[i]) + cost[i]
        received = (before[i] if before[i] > times[i] else times[i]) + cost_before[i]
        result[i] = sent if sent > received else received


@compiled
def _padded(x: Any, before: int, after: int) -> Any:
    """Return the array with ``before`` more elements in front and ``after`` more behind, continued around the ring."""
    result, source = np.empty(before + len(x) + after), -before % len(x)  # index of the first element in ``x``
    for i in range(len(result)):
        result[i] = x[source]
        source = source + 1 if source + 1 < len(x) else 0
    return result


@compiled
def eager_ring(x: Any, own_cost: Any, message_cost: Any, stride: int, rounds: int) -> Any:
    """Return the times after ``rounds`` rounds of ``x_i <- max(x_i + own_cost_i, x_(i-s) + message_cost_(i-s))``.

    s is the stride, the distance in memory between neighbours of the ring.
    """
    block_rounds = max(1, BLOCK_ROUNDS // stride)
    max_halo = block_rounds * stride  # a block's times depend on so many workers before it, see the module
    own_cost, message_cost = _padded(own_cost, max_halo, after=0), _padded(message_cost, max_halo, after=0)
    x = x.copy()
    times, next_times = np.empty(BLOCK + max_halo), np.empty(BLOCK + max_halo)
    for first_round in range(0, rounds, block_rounds):
        halo = min(block_rounds, rounds - first_round) * stride
        padded = _padded(x, halo, after=0)
        for first in range(0, len(x), BLOCK):
            end = min(BLOCK, len(x) - first) + halo
            times[:end] = padded[first : first + end]
            cost_first = first + max_halo - halo  # index at which the costs of these workers begin
            for low in range(stride, halo + stride, stride):  # times from ``low`` on are right after this round
                _eager_round(
                    times[low:end],
                    times[low - stride : end - stride],
                    own_cost[cost_first + low : cost_first + end],
                    message_cost[cost_first + low - stride : cost_first + end - stride],
                    next_times[low:end],
                )
                times, next_times = next_times, times
            x[first : first + end - halo] = times[halo:end]
    return x


@compiled
def rendezvous_ring(x: Any, cost: Any, stride: int, rounds: int) -> Any:
    """Return x after ``rounds`` times ``x_i <- max(e_i, e_(i-s))`` around a ring, s the stride.

    ``e_i = max(x_i, x_(i+s)) + cost_i`` is the end of the message between workers i and i + s.
    """
    block_rounds = max(1, BLOCK_ROUNDS // stride)
    max_halo = block_rounds * stride  # a block's times depend on so many workers on each side, see the module
    cost, x = _padded(cost, max_halo, max_halo), x.copy()
    times, next_times = np.empty(BLOCK + 2 * max_halo), np.empty(BLOCK + 2 * max_halo)
    for first_round in range(0, rounds, block_rounds):
        halo = min(block_rounds, rounds - first_round) * stride
        padded = _padded(x, before=halo, after=halo)
        for first in range(0, len(x), BLOCK):
            end = min(BLOCK, len(x) - first) + 2 * halo
            times[:end] = padded[first : first + end]
            cost_first = first + max_halo - halo  # index at which the costs of these workers begin
            for low in range(stride, halo + stride, stride):
                high = end - low  # times from ``low`` to ``high`` are right after this round
                _rendezvous_round(
                    times[low - stride : high - stride],
                    times[low:high],
                    times[low + stride : high + stride],
                    cost[cost_first + low - stride : cost_first + high - stride],
                    cost[cost_first + low : cost_first + high],
                    next_times[low:high],
                )
                times, next_times = next_times, times
            x[first : first + end - 2 * halo] = times[halo : end - halo]
    return x
