"""Seconds of a flush of GPipe on lines: in closed form on equal lines, and stage by stage on different ones.

All M forward passes run before the M backward passes; stage k takes F_k and B_k seconds for each. A line carries one
message at a time, m seconds each, and a message arrives alpha seconds after it has left; each direction has its own
lines. On equal lines between K equal stages a direction takes, with X = F or B,

    K X + (K - 1)(m + alpha) + (M - 1) max(X, m) + [X < m] min(d, M - 1) ((K - 2) m + X),

where d messages travel with the message before them on a busy line (`nccl_costs.messages_ahead`; 0 without NCCL). The
backward direction begins when the forward direction ends, so a flush is the sum of both. On different lines
`gpipe_ends_s` follows the messages hop by hop; both functions equal the event simulation of one pipeline. A message
that is ready just as the message before has left (X = m) is not queued, so d adds nothing; if times are not exact,
rounding can decide such ties differently in the events. The flushes before an update follow one another: the first
stage, which ends last, begins the next.

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
    """Return the seconds of a flush of equal stages on equal lines, by this module's formula; all numbers broadcast.

    Args:
        stages: K, number of stages.
        microbatches: M, number of micro-batches.
        forward_s: F, seconds of a stage's forward pass of a micro-batch.
        backward_s: B, seconds of a stage's backward pass of a micro-batch.
        message_s: m, seconds in which a message leaves.
        latency_s: alpha, latency of a line.
        ahead: d, number of messages that travel with the message before them.

    >>> float(gpipe_s(4, 8, 1.0, 2.0))
    33.0
    >>> line = 2**23 / 125e6  # 8 MiB at 1 Gbit/s
    >>> [round(float(gpipe_s(8, 64, 0.0207, 0.0621, line, 10e-3, ahead)), 2) for ahead in (0, 2)]
    [10.2, 11.97]
    """
    hops, total_s = np.subtract(stages, 1), 0.0
    for pass_s in (forward_s, backward_s):
        is_line_busy = np.less(pass_s, message_s) & np.greater(hops, 0)
        messages_ahead = np.minimum(ahead, np.subtract(microbatches, 1))
        queue_s = is_line_busy * messages_ahead * ((hops - 1) * message_s + pass_s)
        slowest_s = np.where(np.greater(hops, 0), np.maximum(pass_s, message_s), pass_s)
        fill_s = stages * np.asarray(pass_s) + hops * np.add(message_s, latency_s)
        total_s = total_s + fill_s + np.subtract(microbatches, 1) * slowest_s + queue_s
    return np.asarray(total_s, dtype=np.float64)[()]


def gpipe_ends_s(
    forward_s: ArrayLike,
    backward_s: ArrayLike,
    messages_s: ArrayLike,
    latencies_s: ArrayLike,
    microbatches: int,
    ahead: int = 0,
    flushes: int = 1,
) -> NDArray[np.float64]:
    """Return the end of each of K stages' last backward pass on lines that differ, ``(..., K)`` seconds.

    Args:
        forward_s: F_k, forward seconds of each stage, ``(..., K)``; further axes are independent pipelines.
        backward_s: B_k, backward seconds of each stage, ``(..., K)``.
        messages_s: seconds in which a message leaves, ``(..., 2, K - 1)``: from stage k to k + 1, and back.
        latencies_s: alpha, latencies of the same lines in seconds, ``(..., 2, K - 1)``.
        microbatches: M, number of micro-batches.
        ahead: d, number of messages that travel with the message before them.
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
    pipelines = np.broadcast_shapes(forward.shape[:-1], backward.shape[:-1], lines.shape[:-2], latencies.shape[:-2])
    end_s = np.zeros((*pipelines, stages))
    for direction, (passes_s, order) in enumerate(((forward, range(stages)), (backward, range(stages - 1, -1, -1)))):
        ready_s = np.zeros((*pipelines, microbatches))
        for position, stage in enumerate(order):
            ready_s = np.maximum(ready_s, end_s[..., stage, None])
            output_s = _completions(ready_s, passes_s[..., stage, None])
            end_s[..., stage] = output_s[..., -1]
            if position < stages - 1:
                line = stage if direction == 0 else stage - 1
                message_s, latency_s = lines[..., direction, line, None], latencies[..., direction, line, None]
                ready_s = _arrivals(output_s, message_s, latency_s, ahead)
    return end_s + (flushes - 1) * end_s[..., :1]


def _completions(ready_s: NDArray[np.float64], task_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ends of equal tasks that are ready at these times, ``(..., M)``, and run one after another."""
    number = np.arange(ready_s.shape[-1], dtype=np.float64)
    return np.maximum.accumulate(ready_s - number * task_s, axis=-1) + (number + 1) * task_s


def _arrivals(
    ready_s: NDArray[np.float64], message_s: NDArray[np.float64], latency_s: NDArray[np.float64], ahead: int
) -> NDArray[np.float64]:
    """Return the arrivals of messages that are ready at these times, ``(..., M)``, on a line.

    A message that has left arrives with the last of up to ``ahead`` messages that were queued behind it.
    """
    departure_s = _completions(ready_s, message_s)
    is_queued = ready_s[..., 1:] < departure_s[..., :-1] - TIE * message_s
    complete_s, all_queued = departure_s.copy(), np.ones_like(is_queued)
    for distance in range(1, min(ahead, ready_s.shape[-1] - 1) + 1):
        all_queued = all_queued[..., : is_queued.shape[-1] - distance + 1] & is_queued[..., distance - 1 :]
        complete_s[..., :-distance] = np.where(all_queued, departure_s[..., distance:], complete_s[..., :-distance])
    return complete_s + latency_s
