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
def run_rounds(x: Any, own_cost: Any, message_cost: Any, stride: int, rounds: int, eager: bool) -> Any:
    """Return the times x after equal rounds on a ring, in which s, the ``stride``, is the distance of neighbours.

    A round is ``x_i <- max(x_i + own_cost_i, x_(i-s) + message_cost_(i-s))`` by the eager rule. By the rendezvous rule
    it is ``x_i <- max(max(x_i, x_(i+s)) + own_cost_i, max(x_i, x_(i-s)) + message_cost_(i-s))``.
    """
    block_rounds = max(1, BLOCK_ROUNDS // stride)
    max_halo = block_rounds * stride  # a block's times depend on so many workers on each side, see the module
    own_cost, message_cost, x = _padded(own_cost, max_halo), _padded(message_cost, max_halo), x.copy()
    times, next_times = np.empty(BLOCK + 2 * max_halo), np.empty(BLOCK + 2 * max_halo)
    for first_round in range(0, rounds, block_rounds):
        halo = min(block_rounds, rounds - first_round) * stride
        padded = _padded(x, halo)
        for first in range(0, len(x), BLOCK):
            end = min(BLOCK, len(x) - first) + 2 * halo
            times[:end] = padded[first : first + end]
            first_cost = first + max_halo - halo  # index at which the costs of these workers begin
            for low in range(stride, halo + stride, stride):
                high = end - low  # times from ``low`` to ``high`` are right after this round
                before, own_times, result = times[low - stride : high - stride], times[low:high], next_times[low:high]
                sent = own_cost[first_cost + low : first_cost + high]
                received = message_cost[first_cost + low - stride : first_cost + high - stride]
                if eager:
                    for i in range(len(result)):
                        result[i] = max(own_times[i] + sent[i], before[i] + received[i])
                else:
                    after = times[low + stride : high + stride]
                    for i in range(len(result)):
                        result[i] = max(
                            max(after[i], own_times[i]) + sent[i], max(before[i], own_times[i]) + received[i]
                        )
                times, next_times = next_times, times
            x[first : first + end - 2 * halo] = times[halo : end - halo]
    return x


@compiled
def _padded(x: Any, halo: int) -> Any:
    """Return the array with ``halo`` more elements at each end, continued around the ring."""
    return np.concatenate((x[np.arange(-halo, 0) % len(x)], x, x[np.arange(halo) % len(x)]))
