"""The rounds of rings, compiled; importing this module imports numba and loads the kernels.

A message is one step of an inner loop over neighbours in memory. Each block of workers makes ``deep`` rounds at once
while its times are in the first-level cache, and recomputes at its borders the times that belong to the next block. The
sums and maxima of a message are the same ones in the same order as in `syncline.sim.lockstep.rings`, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.kernels import compiled

BLOCK = 1024
"""Number of times that a block carries on: with their costs 32 KB."""

DEEP = 64
"""Number of rounds that a block makes at once."""


@compiled
def _eager_round(local: Any, previous: Any, stay: Any, go: Any, result: Any) -> None:
    for i in range(len(result)):
        stayed, sent = local[i] + stay[i], previous[i] + go[i]
        result[i] = stayed if stayed > sent else sent


@compiled
def _rendezvous_round(before: Any, local: Any, after: Any, cost_before: Any, cost: Any, result: Any) -> None:
    for i in range(len(result)):
        sent = (after[i] if after[i] > local[i] else local[i]) + cost[i]
        received = (before[i] if before[i] > local[i] else local[i]) + cost_before[i]
        result[i] = sent if sent > received else received


@compiled
def _padded(x: Any, before: int, after: int) -> Any:
    """Return the array with ``before`` elements more in front and ``after`` behind, around the ring."""
    result, source = np.empty(before + len(x) + after), -before % len(x)
    for i in range(len(result)):
        result[i] = x[source]
        source = source + 1 if source + 1 < len(x) else 0
    return result


@compiled
def eager_ring(x: Any, stay: Any, go: Any, next_to: int, times: int) -> Any:
    """Apply ``x_i <- max(x_i + stay_i, x_(i-s) + go_(i-s))`` around a ring ``times`` times; ``next_to`` is s."""
    deep = max(1, DEEP // next_to)
    reach = deep * next_to
    stay, go, x = _padded(stay, reach, 0), _padded(go, reach, 0), x.copy()
    now, then = np.empty(BLOCK + reach), np.empty(BLOCK + reach)
    for done in range(0, times, deep):
        count = min(deep, times - done)
        halo = count * next_to
        wide = _padded(x, halo, 0)
        for first in range(0, len(x), BLOCK):
            end = min(BLOCK, len(x) - first) + halo
            now[:end] = wide[first : first + end]
            cost_first = first + reach - halo  # index at which the costs of these workers begin
            for low in range(next_to, halo + next_to, next_to):
                _eager_round(
                    now[low:end],
                    now[low - next_to : end - next_to],
                    stay[cost_first + low : cost_first + end],
                    go[cost_first + low - next_to : cost_first + end - next_to],
                    then[low:end],
                )
                now, then = then, now
            x[first : first + end - halo] = now[halo:end]
    return x


@compiled
def rendezvous_ring(x: Any, cost: Any, next_to: int, times: int) -> Any:
    """Apply ``x_i <- max(e_i, e_(i-s))``, ``e_i = max(x_i, x_(i+s)) + cost_i`` around a ring ``times`` times."""
    deep = max(1, DEEP // next_to)
    reach = deep * next_to
    cost, x = _padded(cost, reach, reach), x.copy()
    now, then = np.empty(BLOCK + 2 * reach), np.empty(BLOCK + 2 * reach)
    for done in range(0, times, deep):
        count = min(deep, times - done)
        halo = count * next_to
        wide = _padded(x, halo, halo)
        for first in range(0, len(x), BLOCK):
            end = min(BLOCK, len(x) - first) + 2 * halo
            now[:end] = wide[first : first + end]
            cost_first = first + reach - halo
            for low in range(next_to, halo + next_to, next_to):
                high = end - low
                _rendezvous_round(
                    now[low - next_to : high - next_to],
                    now[low:high],
                    now[low + next_to : high + next_to],
                    cost[cost_first + low - next_to : cost_first + high - next_to],
                    cost[cost_first + low : cost_first + high],
                    then[low:high],
                )
                now, then = then, now
            x[first : first + end - 2 * halo] = now[halo : end - halo]
    return x
