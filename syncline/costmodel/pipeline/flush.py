"""Seconds of a flush of GPipe on lines: in closed form on equal lines, and stage by stage on different ones.

All M forward passes run before the M backward passes; stage k takes F_k and B_k seconds for each. A line carries one
message at a time, m seconds each, and a message arrives alpha seconds after it has left; each direction has its own
lines. On equal lines between K equal stages a direction takes, with X = F or B,

    K X + (K - 1)(m + alpha) + (M - 1) max(X, m) + [X < m] min(d, M - 1) ((K - 2) m + X),

where d messages travel with the message before them on a busy line (`nccl_costs.messages_ahead`; 0 without NCCL). The
forward direction ends where the backward one begins, so their sum is the flush. On different lines `gpipe_ends_s`
follows the messages hop by hop; both equal the event simulation of one pipeline. A message that is ready just as the
one before it has left (X = m) is not queued behind it, so d adds nothing; where times are not exact, rounding can
decide such ties otherwise in the events. The flushes before an update follow one another: the first stage, which ends
last, begins the next.

Source: Y. Huang et al., "GPipe" (2019), section 2.3, for m = 0; the lines are our derivation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from syncline.costmodel.numerics.arrays import FloatOrArray, IntOrArray, require
from syncline.errors import SpecError

TIE = 1e-9
"""Part of a message's time within which a message counts as ready only when the one before it has left: not queued."""


def gpipe_s(
    stages: IntOrArray,
    microbatches: IntOrArray,
    forward_s: FloatOrArray,
    backward_s: FloatOrArray,
    message_s: FloatOrArray = 0.0,
    latency_s: FloatOrArray = 0.0,
    ahead: IntOrArray = 0,
) -> FloatOrArray:
    """Return the seconds of a flush of K equal stages on equal lines, by the closed form above; all numbers broadcast.

    Args:
        stages: K.
        microbatches: M.
        forward_s: F.
        backward_s: B.
        message_s: m, seconds in which a message leaves.
        latency_s: alpha.
        ahead: d.

    >>> gpipe_s(4, 8, 1.0, 2.0)
    33.0
    >>> line = 2**23 / 125e6  # 8 MiB at 1 Gbit/s
    >>> [round(float(gpipe_s(8, 64, 0.0207, 0.0621, line, 10e-3, ahead)), 2) for ahead in (0, 2)]
    [10.2, 11.97]
    """
    hops, total = np.subtract(stages, 1), 0.0
    for seconds in (forward_s, backward_s):
        busy = np.less(seconds, message_s) & np.greater(hops, 0)
        waits = busy * np.minimum(ahead, np.subtract(microbatches, 1)) * ((hops - 1) * message_s + seconds)
        slowest = np.where(np.greater(hops, 0), np.maximum(seconds, message_s), seconds)
        fill = stages * np.asarray(seconds) + hops * np.add(message_s, latency_s)
        total = total + fill + np.subtract(microbatches, 1) * slowest + waits
    return np.asarray(total, dtype=np.float64)[()]


def gpipe_ends_s(
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    messages_s: ArrayLike,
    latencies_s: ArrayLike,
    microbatches: int,
    ahead: int = 0,
    flushes: int = 1,
) -> NDArray[np.float64]:
    """Return the end of each stage's last backward pass, ``(..., K)`` seconds.

    Args:
        forward_s: F_k, ``(..., K)``; further axes are independent pipelines.
        backward_s: B_k, likewise.
        messages_s: seconds in which a message leaves, ``(..., 2, K - 1)``: from stage k to k + 1, and back.
        latencies_s: alpha of the same lines.
        microbatches: M.
        ahead: d.
        flushes: number of flushes before the update.

    Raises:
        SpecError: shapes that do not fit, or a number below 1.

    >>> gpipe_ends_s([1.0, 1.0], [2.0, 2.0], [[0.5], [0.5]], [[0.0], [0.0]], microbatches=3)
    array([13. , 10.5])
    """
    forward, backward = np.asarray(forward_s, dtype=np.float64), np.asarray(backward_s, dtype=np.float64)
    lines, latencies = np.asarray(messages_s, dtype=np.float64), np.asarray(latencies_s, dtype=np.float64)
    stages = forward.shape[-1]
    if backward.shape[-1] != stages or lines.shape[-2:] != (2, stages - 1) or latencies.shape[-2:] != lines.shape[-2:]:
        raise SpecError("messages_s", lines.shape, f"(..., 2, {stages - 1}): the lines between {stages} stages")
    require(microbatches >= 1, "microbatches", microbatches, "at least 1")
    require(flushes >= 1, "flushes", flushes, "at least 1")
    axes = np.broadcast_shapes(forward.shape[:-1], backward.shape[:-1], lines.shape[:-2], latencies.shape[:-2])
    count = np.arange(microbatches, dtype=np.float64)
    free = np.zeros((*axes, stages))
    ready = np.zeros((*axes, microbatches))
    for direction, (seconds, order) in enumerate(((forward, range(stages)), (backward, reversed(range(stages))))):
        ready = np.zeros((*axes, microbatches))
        for position, stage in enumerate(order):
            work = seconds[..., stage, None]
            ready = np.maximum(ready, free[..., stage, None])
            outputs = np.maximum.accumulate(ready - count * work, axis=-1) + (count + 1) * work
            free[..., stage] = outputs[..., -1]
            if position < stages - 1:
                line = stage if direction == 0 else stage - 1
                ready = _arrivals(
                    outputs, lines[..., direction, line, None], latencies[..., direction, line, None], ahead
                )
    return free + (flushes - 1) * free[..., :1]


def _arrivals(
    ready_s: NDArray[np.float64], message_s: NDArray[np.float64], latency_s: NDArray[np.float64], ahead: int
) -> NDArray[np.float64]:
    """Return the arrivals of messages that are ready at these times, ``(..., M)``, on a line.

    A message that has left arrives with the last of up to ``ahead`` messages that were queued behind it.
    """
    count = np.arange(ready_s.shape[-1], dtype=np.float64)
    left_s = np.maximum.accumulate(ready_s - count * message_s, axis=-1) + (count + 1) * message_s
    follows = ready_s[..., 1:] < left_s[..., :-1] - TIE * message_s
    arrived_s, together = left_s.copy(), np.ones_like(follows)
    for distance in range(1, min(ahead, ready_s.shape[-1] - 1) + 1):
        together = together[..., : follows.shape[-1] - distance + 1] & follows[..., distance - 1 :]
        arrived_s[..., :-distance] = np.where(together, left_s[..., distance:], arrived_s[..., :-distance])
    return arrived_s + latency_s
