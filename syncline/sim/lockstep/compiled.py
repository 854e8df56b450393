"""The rounds of rings, compiled; importing this module imports numba and loads the kernels.

A message is one step of an inner loop over neighbours in memory. Blocks of workers make ``deep`` rounds at once while
they are in the processor's first cache, and recompute at their borders what belongs to the next block: the sums and
maxima of a message are the same ones in the same order as in `syncline.sim.lockstep.rings`, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.kernels import compiled

BLOCK = 1024
"""Times that a block carries on: with their costs 32 KB."""

DEEP = 64
"""Rounds that it does so at once."""


@compiled
def _eager_round(here: Any, there: Any, stay: Any, go: Any, out: Any) -> None:
    for i in range(len(out)):
        own, sent = here[i] + stay[i], there[i] + go[i]
        out[i] = own if own > sent else sent


@compiled
def _rendezvous_round(before: Any, here: Any, after: Any, cost_before: Any, cost: Any, out: Any) -> None:
    for i in range(len(out)):
        own = (after[i] if after[i] > here[i] else here[i]) + cost[i]
        got = (before[i] if before[i] > here[i] else here[i]) + cost_before[i]
        out[i] = own if own > got else got


@compiled
def _around(x: Any, before: int, after: int) -> Any:
    """With so many more in front and behind, around the ring."""
    out, at = np.empty(before + len(x) + after), -before % len(x)
    for i in range(len(out)):
        out[i] = x[at]
        at = at + 1 if at + 1 < len(x) else 0
    return out


@compiled
def eager_ring(x: Any, stay: Any, go: Any, next_to: int, times: int) -> Any:
    """``x_i <- max(x_i + stay_i, x_(i-s) + go_(i-s))`` around a ring, so many times; ``next_to`` is s."""
    deep = max(1, DEEP // next_to)
    reach = deep * next_to
    stay, go, x = _around(stay, reach, 0), _around(go, reach, 0), x.copy()
    now, then = np.empty(BLOCK + reach), np.empty(BLOCK + reach)
    for done in range(0, times, deep):
        count = min(deep, times - done)
        beside = count * next_to
        wide = _around(x, beside, 0)
        for first in range(0, len(x), BLOCK):
            end = min(BLOCK, len(x) - first) + beside
            now[:end] = wide[first : first + end]
            of = first + reach - beside  # where the costs of these begin
            for low in range(next_to, beside + next_to, next_to):
                _eager_round(
                    now[low:end],
                    now[low - next_to : end - next_to],
                    stay[of + low : of + end],
                    go[of + low - next_to : of + end - next_to],
                    then[low:end],
                )
                now, then = then, now
            x[first : first + end - beside] = now[beside:end]
    return x


@compiled
def rendezvous_ring(x: Any, cost: Any, next_to: int, times: int) -> Any:
    """``x_i <- max(e_i, e_(i-s))``, ``e_i = max(x_i, x_(i+s)) + cost_i`` around a ring, so many times."""
    deep = max(1, DEEP // next_to)
    reach = deep * next_to
    cost, x = _around(cost, reach, reach), x.copy()
    now, then = np.empty(BLOCK + 2 * reach), np.empty(BLOCK + 2 * reach)
    for done in range(0, times, deep):
        count = min(deep, times - done)
        beside = count * next_to
        wide = _around(x, beside, beside)
        for first in range(0, len(x), BLOCK):
            end = min(BLOCK, len(x) - first) + 2 * beside
            now[:end] = wide[first : first + end]
            of = first + reach - beside
            for low in range(next_to, beside + next_to, next_to):
                high = end - low
                _rendezvous_round(
                    now[low - next_to : high - next_to],
                    now[low:high],
                    now[low + next_to : high + next_to],
                    cost[of + low - next_to : of + high - next_to],
                    cost[of + low : of + high],
                    then[low:high],
                )
                now, then = then, now
            x[first : first + end - 2 * beside] = now[beside : end - beside]
    return x
